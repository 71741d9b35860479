"""Walks over a large JSON text without building all of it: members of an object and items of a
list, each as a place in the text.

The text is the JSON decoded as Latin-1, so a place in it is a place in its bytes. The usual decoder
checks every value.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

BLANK = re.compile(r"[ \t\n\r]*")


def _nothing(pairs: list[tuple[str, Any]]) -> None:
    """In the place of an object, so that a value that is passed over takes no memory."""


_passing = json.JSONDecoder(object_pairs_hook=_nothing)


class Scan:
    """Every method raises ValueError or RecursionError where the text is no JSON."""

    def __init__(self, data: bytes) -> None:
        self.text = data.decode("latin-1")
        # Of values that were walked or measured, until the walk goes on behind them.
        self._ends: dict[int, int] = {}

    def begin(self) -> int:
        return self._skip_blank(0)

    def check_end(self, start: int) -> None:
        """Nothing follows the value that begins at `start`."""
        at = self._skip_blank(self._pass(start))
        if at != len(self.text):
            raise ValueError(f"Extra data: char {at}")

    def size(self, start: int) -> int:
        end = self._ends.get(start)
        if end is None:
            end = self._ends[start] = _passing.raw_decode(self.text, start)[1]
        return end - start

    def read(self, start: int) -> Any:
        """The value, built."""
        return json.loads(self.text[start : start + self.size(start)].encode("latin-1"))

    def is_object(self, start: int) -> bool:
        return self.text[start : start + 1] == "{"

    def is_list(self, start: int) -> bool:
        return self.text[start : start + 1] == "["

    def members(self, start: int) -> Iterator[tuple[str, int]]:
        """Key and place of the value of each member of an object, to its end."""
        at = self._skip_blank(start + 1)
        is_first = True
        while not (is_first and self.text[at : at + 1] == "}"):
            is_first = False
            if self.text[at : at + 1] != '"':
                raise ValueError(f"Expecting a key: char {at}")
            key: str = self.read(at)
            at = self._expect(self._pass(at), ":")
            yield key, at
            at = self._skip_blank(self._pass(at))
            if self.text[at : at + 1] == "}":
                break
            at = self._expect(at, ",")
        self._ends[start] = at + 1

    def items(self, start: int) -> Iterator[int]:
        """Place of each item of a list, to its end."""
        at = self._skip_blank(start + 1)
        is_first = True
        while not (is_first and self.text[at : at + 1] == "]"):
            is_first = False
            yield at
            at = self._skip_blank(self._pass(at))
            if self.text[at : at + 1] == "]":
                break
            at = self._expect(at, ",")
        self._ends[start] = at + 1

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
