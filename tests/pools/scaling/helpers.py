"""Short constructors for scaling snapshots."""

from datetime import UTC, datetime
from typing import Any

from pools.scaling import DemandQueue, MemberLimits, ScaledMember, Snapshot

NOW = datetime(2026, 3, 12, 14, 0, tzinfo=UTC).timestamp()
EACH = 3


def member(number: int = 1, running: int = 0, reserved: int = 0, **more: Any) -> ScaledMember:
    """The higher its number, the newer."""
    values: dict[str, Any] = {
        "state": "ready",
        "slots": EACH,
        "created": NOW + 60.0 * number,
        "quiet_for": 3600.0,
    }
    return ScaledMember(
        number, f"m{number}", **(values | {"running": running, "reserved": reserved} | more)
    )


def fleet(*running: int, **more: Any) -> tuple[ScaledMember, ...]:
    """Members with so many running slots each."""
    return tuple(member(i, count, **more) for i, count in enumerate(running, 1))


def waits(
    slots: int = 1, *, urgent: int = 0, lanes: tuple[str, ...] = ("slot",), **more: Any
) -> tuple[DemandQueue, ...]:
    return (DemandQueue(lanes, slots, slots, urgent, **more),)


def snapshot(*members: ScaledMember, low: int = 0, high: int = 10, **more: Any) -> Snapshot:
    limits = more.pop("limits", None) or MemberLimits(
        low, high, **{n: more.pop(n) for n in ("window", "pin", "paused", "frozen") if n in more}
    )
    free = more.pop("free", None)
    if free is None:
        free = {
            "slot": sum(m.usable - m.occupied for m in members if m.state == "ready" and m.is_there)
        }
    values: dict[str, Any] = {"each": {"slot": EACH}, "seen": 3.0}
    return Snapshot("lab", members, limits=limits, free=free, **(values | more))
