"""Requests to the control socket of a forwarder."""

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pools.providers.forwarder.process.control import NAME
from project.kernel.embedded import detached
from project.kernel.outbox.operations import ConflictError, PermanentError, ProviderError

PATIENCE = 5.0  # seconds for one answer
LARGEST = 64_000_000  # bytes of an answer
OPEN_FILES = Path("/proc/self/fd")


class NotAnswering(ProviderError):
    """No process listens at the control socket, or it does not answer in time."""


def ask(
    folder: Path, request: Mapping[str, object], patience: float = PATIENCE
) -> Mapping[str, Any]:
    """The state of the forwarder after the request."""
    try:
        answer = _exchange(folder, json.dumps(request).encode() + b"\n", patience)
    except (OSError, ValueError) as error:
        raise NotAnswering(f"The forwarder in {folder} does not answer: {error}") from None
    match answer.get("error"):
        case None:
            return answer
        case "stale":
            raise ConflictError(f"The forwarder refused an outdated request: {answer['text']}")
        case "unsaved":
            raise ProviderError(f"The forwarder cannot save its state: {answer['text']}")
    raise PermanentError(f"The forwarder does not understand a request: {answer['text']}")


def _exchange(folder: Path, request: bytes, patience: float) -> Mapping[str, Any]:
    with socket.socket(socket.AF_UNIX) as control, _short_name(folder) as name:
        control.settimeout(patience)
        control.connect(name)
        control.sendall(request)
        with control.makefile("rb") as lines:
            answer = json.loads(lines.readline(LARGEST))
    if not isinstance(answer, dict):
        raise ValueError("the answer is not an object")
    return answer


@contextmanager
def _short_name(folder: Path) -> Iterator[str]:
    """A path to the socket within the 108 bytes that the name of a socket can have."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        has_links = detached.PROC.joinpath("self").exists()
        yield str(OPEN_FILES / str(opened) / NAME) if has_links else str(folder / NAME)
    finally:
        os.close(opened)
