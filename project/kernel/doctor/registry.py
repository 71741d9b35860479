"""The registry of the doctor's checks. Each app registers its own checks.

A check is a function that yields a finding for each broken row. A fault that the database can
refuse is a constraint instead.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from project.kernel.errors import Invalid


@dataclass(frozen=True)
class Finding:
    subject: str  # "claim 17", "slot 4 of member db-1"
    detail: str
    repair: str = ""  # instruction for a person, or the effect of --repair
    fix: Callable[[], None] | None = field(default=None, compare=False, repr=False)


Find = Callable[[], Iterable[Finding]]


@dataclass(frozen=True)
class Check:
    id: str  # "I18"
    title: str
    explain: str
    find: Find


_checks: dict[str, Check] = {}
_facts: list[Callable[[], str]] = []


def fact(describe: Callable[[], str]) -> Callable[[], str]:
    """Registers a sentence about this installation, which the doctor prints in every report. An
    empty text is left out.
    """
    _facts.append(describe)
    return describe


def list_facts() -> list[str]:
    return [text for text in (describe() for describe in _facts) if text]


def check(id: str, title: str, explain: str) -> Callable[[Find], Find]:
    """Registers a check under the id of its invariant. Several checks of one invariant carry
    letters: I12a, I12b.
    """

    def register(find: Find) -> Find:
        if id in _checks:
            raise ValueError(f"check {id} is registered twice")
        _checks[id] = Check(id, title, explain, find)
        return find

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

    def as_dict(self) -> dict[str, object]:
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
    return [Report(c, list(c.find())) for c in chosen]


def repair(id: str) -> tuple[int, list[Finding]]:
    """Runs the repairs of a check. Returns how many ran, and the findings that are left."""
    repaired = 0
    for finding in list(get_check(id).find()):
        if finding.fix is not None:
            finding.fix()
            repaired += 1
    return repaired, list(get_check(id).find())
