"""Iterate over a large JSON text without parsing all of it: members of objects and items of lists,
each as a position in the text.

The text is decoded as Latin-1, so a position in it is a position in its bytes. The decoder of the
standard library checks every value.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

BLANK = re.compile(r"[ \t\n\r]*")


def _drop(pairs: list[tuple[str, object]]) -> None:
    """Replaces each object by None, so that a skipped value takes no memory."""


_skipping = json.JSONDecoder(object_pairs_hook=_drop)


class Scan:
    """Each method raises ValueError or RecursionError if the text is not JSON."""

    def __init__(self, data: bytes) -> None:
        self.text = data.decode("latin-1")
        # Ends of measured values, until the walk continues behind them.
        self._ends: dict[int, int] = {}

    def begin(self) -> int:
        return self._skip_blank(0)

    def check_end(self, start: int) -> None:
        """Raises if text follows the value that begins at `start`."""
        at = self._skip_blank(self._pass(start))
        if at != len(self.text):
            raise ValueError(f"Extra data: char {at}")

    def size(self, start: int) -> int:
        end = self._ends.get(start)
        if end is None:
            end = self._ends[start] = _skipping.raw_decode(self.text, start)[1]
        return end - start

    def read(self, start: int) -> Any:
        """Parses the value."""
        return json.loads(self.text[start : start + self.size(start)].encode("latin-1"))

    def is_object(self, start: int) -> bool:
        return self.text[start : start + 1] == "{"

    def is_list(self, start: int) -> bool:
        return self.text[start : start + 1] == "["

    def members(self, start: int) -> Iterator[tuple[str, int]]:
        """Key of each member of an object, and position of its value."""
        return self._entries(start, "}", self._read_key)

    def items(self, start: int) -> Iterator[int]:
        """Position of each item of a list."""
        return (at for _, at in self._entries(start, "]", lambda at: ("", at)))

    def _entries(
        self, start: int, end: str, begin: Callable[[int], tuple[str, int]]
    ) -> Iterator[tuple[str, int]]:
        """`begin` gets the position of an entry and returns its key and the position of its
        value.
        """
        at = self._skip_blank(start + 1)
        is_open = self.text[at : at + 1] != end
        while is_open:
            key, at = begin(at)
            yield key, at
            at = self._skip_blank(self._pass(at))
            is_open = self.text[at : at + 1] != end
            if is_open:
                at = self._expect(at, ",")
        self._ends[start] = at + 1

    def _read_key(self, at: int) -> tuple[str, int]:
        if self.text[at : at + 1] != '"':
            raise ValueError(f"Expecting a key: char {at}")
        key: str = self.read(at)
        return key, self._expect(self._pass(at), ":")

    def _pass(self, start: int) -> int:
        end = start + self.size(start)
        del self._ends[start]
        return end

    def _expect(self, at: int, sign: str) -> int:
        at = self._skip_blank(at)
        if self.text[at : at + 1] != sign:
            raise ValueError(f"Expecting {sign!r}: char {at}")
        return self._skip_blank(at + 1)

    def _skip_blank(self, at: int) -> int:
        match = BLANK.match(self.text, at)
        assert match is not None
        return match.end()
