"""Classes of members and pools for display, and the words of all classes. The classes are derived
and never stored. dashboard_queries.sql has the rule for slots.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from project.kernel.ui import formatting

TASK_LANES = ("plan", "any")  # lanes with slots that run tasks

# In the order of the bar: used slots, draining slots, unreachable slots, free slots.
SLOT_CLASSES = ("running", "bound", "reserved", "draining", "offline", "lost", "closed", "idle")
SLOT_WORDS = {name: name for name in SLOT_CLASSES} | {"idle": "open"}
HIDDEN = ""  # the class of a retired slot, unless its last claim was lost with it


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
