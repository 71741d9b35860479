"""The events of a watch."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

from urllib3.response import BaseHTTPResponse

from project.kernel.kubernetes.objects import Object

LONGEST_LINE = 16_000_000  # bytes; an object of a cluster has at most a tenth of that


class Handle:
    """Shuts a connection that another thread reads. The handle has a file descriptor of its own:
    TLS replaces the socket, and a number that was closed may belong to another connection.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._lock = threading.Lock()
        self._socket = socket.socket(fileno=os.dup(sock.fileno()))

    def shut(self) -> None:
        """End the connection below TLS. Only the thread that reads may end TLS itself."""
        with self._lock, suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self._socket.close()


class Stream:
    """Iterates over the events, one JSON object per line."""

    def __init__(self, response: BaseHTTPResponse) -> None:
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
        """End the stream from another thread; the reader finds its end. A close from there would
        wait for the read.
        """
        if self._handle is not None:
            self._handle.shut()

    def close(self) -> None:
        """Close the stream from the thread that reads. Its connection is not used again."""
        self._response.close()
        if self._handle is not None:
            self._handle.close()
