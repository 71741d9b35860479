"""Classes of slots, members and pools for display. They are derived and never stored.

The rule for slots exists twice: here, and in dashboard_queries.sql for many rows. A test compares
both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from project.kernel.ui import formatting

TASK_LANES = ("plan", "any")  # lanes with slots that run tasks
AWAY = ("offline", "creating", "deleting")  # states of members that take no claims

# In the order of the bar: used slots, draining slots, unreachable slots, free slots.
SLOT_CLASSES = ("running", "bound", "reserved", "draining", "offline", "lost", "closed", "idle")
SLOT_WORDS = {name: name for name in SLOT_CLASSES} | {"idle": "open"}
HIDDEN = ""


def slot_class(
    state: str, *, lane: str, is_open: bool, member_state: str, last_outcome: str = ""
) -> str:
    """The class of a slot. HIDDEN for a retired slot, unless its last claim was lost with it."""
    if state == "retired" or member_state == "gone":
        return "lost" if last_outcome == "lost" else HIDDEN
    if state in ("held", "reserved") and member_state == "offline":
        return "offline"
    if state == "held":
        return "running" if lane in TASK_LANES else "bound"
    if state in ("reserved", "draining"):
        return state
    if is_open:
        return "idle"
    return "offline" if member_state in AWAY else "closed"


def member_class(
    state: str,
    *,
    is_cordoned: bool,
    is_leaving: bool,
    is_lost: bool = False,
    is_outdated: bool = False,
) -> str:
    if state in ("creating", "deleting"):
        return state
    if state == "gone" or is_lost:
        return "lost"
    if state == "offline":
        return "unhealthy"
    if is_leaving:
        return "draining"
    if is_cordoned:
        return "cordoned"
    return "outdated" if is_outdated else "ready"


MEMBER_WORDS = {"unhealthy": "offline", "draining": "leaving"}


def pool_class(
    state: str,
    *,
    paused_until: datetime | None,
    now: datetime,
    frozen_until: datetime | None = None,
) -> str:
    if state == "active" and paused_until is not None and paused_until > now:
        return "paused"
    if state == "active" and frozen_until is not None:
        return "frozen"
    return "deleting" if state == "gone" else state


CLOCK_WORDS = {"running": " for", "bound": " for", "draining": " for", "reserved": ", time left"}


@dataclass(frozen=True, slots=True)
class BarPart:
    """One part of a pool's bar."""

    name: str
    count: int

    @property
    def word(self) -> str:
        return SLOT_WORDS[self.name]

    @property
    def clock_words(self) -> str:
        """Meaning of the clock in such a slot; empty without a clock."""
        return CLOCK_WORDS.get(self.name, "")

    @property
    def digits(self) -> int:
        return len(f"{self.count:,}")


def bar_parts(counts: Mapping[str, int]) -> list[BarPart]:
    return [BarPart(name, counts[name]) for name in SLOT_CLASSES if counts.get(name)]


@dataclass(frozen=True, slots=True)
class SlotUse:
    """Utilisation: used slots of all slots that are not retired."""

    held: int
    reserved: int
    total: int

    @property
    def formula(self) -> str:
        """The formula of `percent`."""
        return (
            f"({self.held} held + {self.reserved} reserved) / {formatting.number(self.total)} slots"
        )

    @property
    def percent(self) -> float | None:
        return 100 * (self.held + self.reserved) / self.total if self.total else None
