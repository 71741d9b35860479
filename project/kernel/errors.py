"""Errors for callers: state, reason and way out. `http/problems.py` maps them to HTTP."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldError:
    field: str  # like "spec.layout[2].lane"; "" for the whole
    message: str
    way_out: str = ""


MOST_FIELDS = 100  # faults in one answer: a body can have thousands
LONGEST_NAME, LONGEST_TEXT = 300, 2000  # characters of a field's name, and of its texts


def cap_fields(fields: Iterable[FieldError]) -> tuple[FieldError, ...]:
    """At most MOST_FIELDS faults of bounded length, and a last one that counts the others."""
    rest = iter(fields)
    found = [_shorten(each) for each in islice(rest, MOST_FIELDS + 1)]
    if more := sum(1 for _ in rest):
        found[-1] = FieldError(
            "", f"{more + 1} more fields are wrong and not listed here.", "Fix these first."
        )
    return tuple(found)


def _shorten(error: FieldError) -> FieldError:
    return FieldError(
        error.field[:LONGEST_NAME], error.message[:LONGEST_TEXT], error.way_out[:LONGEST_TEXT]
    )


class BerthError(Exception):
    """Base of all expected errors. `code` is stable and meant for programs, `detail` for people."""

    code = "refused"
    retry_after: float | None = None  # seconds until the same call may succeed

    def __init__(
        self,
        detail: str = "",
        *,
        code: str = "",
        way_out: str = "",
        fields: Iterable[FieldError] = (),
        retry_after: float | None = None,
        **data: object,
    ) -> None:
        if retry_after is not None:
            self.retry_after = retry_after
        self.fields = cap_fields(fields)
        self.detail = detail or _summary(self.fields) or type(self).__name__
        self.code = code or type(self).code
        self.way_out = way_out
        self.data = data  # further members of the answer, such as the current generation
        super().__init__(self.detail)


class Invalid(BerthError):
    """The input is wrong; each fault has a field error of its own."""

    code = "invalid"


def wrong_field(name: str, message: str, way_out: str = "") -> Invalid:
    """The error of an input with one wrong field."""
    return Invalid(fields=[FieldError(name, message, way_out)])


class NotFound(BerthError):
    code = "not_found"


class Forbidden(BerthError):
    """The caller lacks a role, which the error names."""

    code = "forbidden"

    def __init__(self, detail: str = "", *, role: str = "", **kwargs: Any) -> None:
        self.role = role
        detail = detail or (f"This needs the role {role}." if role else "This is not allowed.")
        super().__init__(detail, **(kwargs | ({"role": role} if role else {})))


class Conflict(BerthError):
    """The call does not fit the current state, such as a name in use or a key of another body."""

    code = "conflict"


class StaleGeneration(Conflict):
    """The caller acts for a hold that is over. The call changed no row."""

    code = "stale_generation"


class Refused(BerthError):
    """A policy or rule rejects the call."""

    code = "refused"


class TooLarge(BerthError):
    """The body has more bytes than the limit."""

    code = "too_large"


class OutOfSpace(BerthError):
    """A disk of the server has too little space. The call stored no data."""

    code = "out_of_space"


class TooMany(BerthError):
    """The caller exceeds its rate limit."""

    code = "too_many"
    retry_after = 1.0


class SlowClient(BerthError):
    """The client sends its request too slowly."""

    code = "too_slow"


class Unavailable(BerthError):
    """A part of the server is busy or down. The caller may send the same call again."""

    code = "unavailable"
    retry_after = 1.0


def _summary(fields: tuple[FieldError, ...]) -> str:
    if not fields:
        return ""
    first = f"{fields[0].field}: {fields[0].message}" if fields[0].field else fields[0].message
    return first if len(fields) == 1 else f"{len(fields)} fields are wrong. First: {first}"
