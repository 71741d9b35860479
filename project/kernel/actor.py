"""Who acts. Set once at the edge (request, command, controller), read where events are written."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_actor: ContextVar[str] = ContextVar("actor", default="system")

LONGEST = 80  # what the event's column takes


def current_actor() -> str:
    return _actor.get()


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    token = _actor.set(name[:LONGEST])
    try:
        yield
    finally:
        _actor.reset(token)
