"""What can go wrong, in words a person can act on: state, reason, way out. Nothing here knows
HTTP; `http/problems.py` maps it.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldError:
    field: str  # where: "spec.layout[2].lane"; "" speaks of the whole
    message: str
    way_out: str = ""


MOST_FIELDS = 100  # faults that one answer names: a body can hold thousands
LONGEST_NAME, LONGEST_TEXT = 300, 2000  # characters of a field's name, and of what is said of it


def cap_fields(fields: Iterable[FieldError]) -> tuple[FieldError, ...]:
    """At most MOST_FIELDS of them and a last one that says how many more there are, each of a
    bounded length.
    """
    rest = iter(fields)
    found = [_shorten(each) for each in islice(rest, MOST_FIELDS + 1)]
    if more := sum(1 for _ in rest):
        found[-1] = FieldError(
            "", f"{more + 1} more fields are wrong and not listed here.", "Mend these first."
        )
    return tuple(found)


def _shorten(error: FieldError) -> FieldError:
    if (
        len(error.field) <= LONGEST_NAME
        and len(error.message) <= LONGEST_TEXT
        and len(error.way_out) <= LONGEST_TEXT
    ):
        return error
    return FieldError(
        error.field[:LONGEST_NAME], error.message[:LONGEST_TEXT], error.way_out[:LONGEST_TEXT]
    )


class BerthError(Exception):
    """Base of everything that is refused for a reason. `code` is stable and meant for programs,
    `detail` for people.
    """

    code = "refused"

    def __init__(
        self,
        detail: str = "",
        *,
        code: str = "",
        way_out: str = "",
        fields: Iterable[FieldError] = (),
        **data: Any,
    ) -> None:
        self.fields = cap_fields(fields)
        self.detail = detail or _summary(self.fields) or type(self).__name__
        self.code = code or type(self).code
        self.way_out = way_out
        self.data = data  # further members of the answer: the wait reason, the present generation
        super().__init__(self.detail)

    def as_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "detail": self.detail,
            "way_out": self.way_out,
            "errors": [asdict(e) for e in self.fields],
            **self.data,
        }


class Invalid(BerthError):
    """What was given is wrong; every fault has a field error of its own."""

    code = "invalid"


class NotFound(BerthError):
    code = "not_found"


class Forbidden(BerthError):
    """The caller lacks a role, which is named."""

    code = "forbidden"

    def __init__(self, detail: str = "", *, role: str = "", **kwargs: Any) -> None:
        self.role = role
        detail = detail or (f"This needs the role {role}." if role else "This is not allowed.")
        super().__init__(detail, **(kwargs | ({"role": role} if role else {})))


class Conflict(BerthError):
    """It does not fit the present state: a name in use, a key used with another body, a move
    that is not possible now.
    """

    code = "conflict"


class StaleGeneration(Conflict):
    """The caller acts for a hold that is over. Nothing was changed."""

    code = "stale_generation"


class Refused(BerthError):
    """A policy or a rule said no."""

    code = "refused"


class TooLarge(BerthError):
    """More bytes than are accepted here."""

    code = "too_large"


class OutOfSpace(BerthError):
    """A disk here has too little room. Nothing was kept. `retry_after` is in seconds."""

    code = "out_of_space"

    def __init__(
        self, detail: str = "", *, retry_after: float | None = None, **kwargs: Any
    ) -> None:
        self.retry_after = retry_after
        super().__init__(detail, **kwargs)


class TooMany(BerthError):
    """More than the caller's share. `retry_after` is in seconds."""

    code = "too_many"

    def __init__(self, detail: str = "", *, retry_after: float = 1.0, **kwargs: Any) -> None:
        self.retry_after = retry_after
        super().__init__(detail, **kwargs)


class SlowClient(BerthError):
    """The client sends its request slower than is accepted."""

    code = "too_slow"


class Unavailable(BerthError):
    """Not now, and not the caller's fault: something here is busy or down. The same call may be
    sent again.
    """

    code = "unavailable"

    def __init__(self, detail: str = "", *, retry_after: float = 1.0, **kwargs: Any) -> None:
        self.retry_after = retry_after
        super().__init__(detail, **kwargs)


def _summary(fields: tuple[FieldError, ...]) -> str:
    if not fields:
        return ""
    first = f"{fields[0].field}: {fields[0].message}" if fields[0].field else fields[0].message
    return first if len(fields) == 1 else f"{len(fields)} fields are wrong. First: {first}"
