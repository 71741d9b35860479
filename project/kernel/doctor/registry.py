"""Broken invariants: what is wrong, why it matters, how it is mended. Each app registers its
own checks.

A check is a query that finds nothing while all is well. What the database can refuse is a
constraint instead.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from project.kernel.errors import Invalid


@dataclass(frozen=True)
class Finding:
    subject: str  # "claim 17", "slot 4 of member db-1"
    detail: str
    repair: str = ""  # what a person does, or what --repair will do
    fix: Callable[[], None] | None = field(default=None, compare=False, repr=False)


Look = Callable[[], Iterable[Finding]]


@dataclass(frozen=True)
class Check:
    id: str  # "I18"
    title: str
    explain: str
    look: Look


_checks: dict[str, Check] = {}
_facts: list[Callable[[], str]] = []


def fact(tell: Callable[[], str]) -> Callable[[], str]:
    """Register a sentence about this installation that the doctor says whether or not anything
    is wrong. Empty: there is nothing to say.
    """
    _facts.append(tell)
    return tell


def list_facts() -> list[str]:
    return [text for text in (tell() for tell in _facts) if text]


def check(id: str, title: str, explain: str) -> Callable[[Look], Look]:
    """Register a query under the id of its invariant. An invariant of several queries gives them
    letters: I12a, I12b.
    """

    def register(look: Look) -> Look:
        if id in _checks:
            raise ValueError(f"check {id} is registered twice")
        _checks[id] = Check(id, title, explain, look)
        return look

    return register


def list_checks() -> list[Check]:
    return sorted(
        _checks.values(), key=lambda c: (int("".join(filter(str.isdigit, c.id)) or 0), c.id)
    )


def get_check(id: str) -> Check:
    if id not in _checks:
        raise Invalid(
            f"There is no check {id}.", way_out=f"Checks: {', '.join(c.id for c in list_checks())}."
        )
    return _checks[id]


@dataclass(frozen=True)
class Report:
    check: Check
    findings: Sequence[Finding]

    def as_dict(self) -> dict[str, Any]:
        found = [
            {
                "subject": f.subject,
                "detail": f.detail,
                "repair": f.repair,
                "is_repairable": f.fix is not None,
            }
            for f in self.findings
        ]
        return {
            "id": self.check.id,
            "title": self.check.title,
            "explain": self.check.explain,
            "findings": found,
        }


def examine(ids: Iterable[str] = ()) -> list[Report]:
    chosen = [get_check(i) for i in ids] or list_checks()
    return [Report(c, list(c.look())) for c in chosen]


def repair(id: str) -> tuple[int, list[Finding]]:
    """Mend what can be mended: how many were, and what is left."""
    mended = 0
    for finding in list(get_check(id).look()):
        if finding.fix is not None:
            finding.fix()
            mended += 1
    return mended, list(get_check(id).look())
