"""A watch, line by line."""

import json
from collections.abc import Iterator
from typing import Any

from project.kernel.kubernetes.deadline import Handle
from project.kernel.kubernetes.objects import Object

LONGEST_LINE = 16_000_000  # bytes; an object of a cluster has at most a tenth of it


class Stream:
    """Lines of a watch."""

    def __init__(self, response: Any) -> None:
        self._response = response
        sock = getattr(getattr(response, "connection", None), "sock", None)
        self._handle = None if sock is None else Handle(sock)

    def __iter__(self) -> Iterator[Object]:
        buffer = bytearray()
        for piece in self._response.stream(amt=None, decode_content=False):
            buffer.extend(piece)
            while (end := buffer.find(b"\n")) != -1:
                line = bytes(buffer[:end])
                del buffer[: end + 1]
                if line.strip():
                    yield json.loads(line)
            if len(buffer) > LONGEST_LINE:
                raise ValueError("a line of the watch does not end")

    def break_off(self) -> None:
        """From another thread: whoever reads finds the end. Closing it there would wait
        for the read.
        """
        if self._handle is not None:
            self._handle.shut()

    def close(self) -> None:
        """By the thread that reads. What was not read to its end is not used again."""
        self._response.close()
        if self._handle is not None:
            self._handle.close()
