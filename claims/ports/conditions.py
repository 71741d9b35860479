"""Whether the ports of a claim are allocated, programmed and ready, since when, and why not. Pure.

A port is programmed once its listener exists outside and sends traffic to the backend of the claim;
ready once its health check has passed, or, without a health check, as soon as it is programmed with
a backend. `READY` in claims/allocation/api/long_poll.py is the same rule in SQL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

PASSED = ("healthy", "unchecked")
NOT_PASSED = {
    "initial": "The health check has not passed yet",
    "unhealthy": "The health check of the backend fails",
    "draining": "The backend is being removed",
}


class Condition(NamedTuple):
    is_met: bool
    since: datetime | None
    reason: str = ""
    is_failed: bool = False


class PortConditions(NamedTuple):
    programmed: Condition
    ready: Condition


@dataclass(frozen=True, slots=True)
class PortFacts:
    """A held port: the wish of its claim, and what the provider has seen during the hold."""

    held_since: datetime | None
    target: str = ""  # wanted; empty: the claim has no backend
    withheld: str = ""  # why the target is not registered though the claim has it
    observed: Mapping[str, object] | None = None  # None: not seen yet
    since: Mapping[str, datetime] | None = None


def judge_port(facts: PortFacts) -> PortConditions:
    programmed = _programmed(facts)
    if not programmed.is_met:
        return PortConditions(programmed, programmed)
    if not facts.target:
        return PortConditions(programmed, Condition(False, programmed.since, "No backend is set"))
    health = str((facts.observed or {}).get("health") or "")
    since = _latest(programmed.since, _since(facts, "health"))
    if health in PASSED:
        return PortConditions(programmed, Condition(True, since))
    reason = NOT_PASSED.get(health, "The provider does not report its health")
    return PortConditions(programmed, Condition(False, since, reason))


def _programmed(facts: PortFacts) -> Condition:
    seen = facts.observed
    if seen is None:
        return Condition(False, facts.held_since, "The listener is being created")
    since = _latest(*(_since(facts, name) for name in ("presence", "problem", "target")))
    if problem := seen.get("problem"):
        return Condition(False, since, str(problem), is_failed=True)
    presence = seen.get("presence")
    if presence == "foreign":
        return Condition(False, since, "A foreign listener has this port", is_failed=True)
    if presence != "present":
        return Condition(False, since, "The listener is missing outside")
    if facts.withheld:
        return Condition(False, since, facts.withheld, is_failed=True)
    if changed := seen.get("changed"):
        since = _latest(since, _since(facts, "changed"))
        return Condition(False, since, f"The listener was changed outside: {changed}")
    target = str(seen.get("target") or "")
    if target != facts.target:
        reason = "The backend is not registered yet"
        return Condition(False, since, reason if facts.target else "A former backend is registered")
    return Condition(True, since)


def join_conditions(
    ports: Sequence[tuple[str, PortConditions]],
) -> tuple[Condition, Condition]:
    """Programmed and ready for all ports of a claim, by the name of each port."""
    return (
        _join([(name, each.programmed) for name, each in ports]),
        _join([(name, each.ready) for name, each in ports]),
    )


def _join(named: Sequence[tuple[str, Condition]]) -> Condition:
    """Met since the last port met it. Not met: the reason of the first port, a failed one first."""
    unmet = [(name, each) for name, each in named if not each.is_met]
    if not unmet:
        return Condition(True, _latest(*(each.since for _, each in named)))
    name, first = next((pair for pair in unmet if pair[1].is_failed), unmet[0])
    more = f", and {len(unmet) - 1} more" if len(unmet) > 1 else ""
    return Condition(False, first.since, f"{name}: {first.reason}{more}", first.is_failed)


def _since(facts: PortFacts, name: str) -> datetime | None:
    return (facts.since or {}).get(name)


def _latest(*times: datetime | None) -> datetime | None:
    return max((each for each in times if each is not None), default=None)
