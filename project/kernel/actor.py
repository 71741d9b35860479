"""The current actor: set once for a request, command or controller, and read by events."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_actor: ContextVar[str] = ContextVar("actor", default="system")

MAX_ACTOR_LENGTH = 80  # length of the event's column


def current_actor() -> str:
    return _actor.get()


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    token = _actor.set(name[:MAX_ACTOR_LENGTH])
    try:
        yield
    finally:
        _actor.reset(token)
