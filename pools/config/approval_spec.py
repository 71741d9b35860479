"""`approval:` of a pool's configuration: how many must say yes, by when, and whether the slot
waits with them. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pools.config.durations import format_duration
from pools.config.parsing import (
    Faults,
    field_path,
    read_duration,
    read_flag,
    read_integer,
    read_mapping,
    show_value,
)

FIELDS = ("needed", "own", "expires", "notice", "hold")
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
MOST_NEEDED = 10
DEFAULT_EXPIRES = 24 * HOUR
DEFAULT_NOTICE = 2 * HOUR
ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class ApprovalSpec:
    needed: int = 1
    own: bool = True  # whether the yes of whoever asked for the claim counts
    expires: float = DEFAULT_EXPIRES  # seconds a plan may wait for its decision
    notice: float = DEFAULT_NOTICE  # seconds before that at which people are told; 0: never
    # Seconds its slot waits with it; None: as long as it does, 0: not at all.
    hold: float | None = None

    def as_config(self) -> dict[str, Any]:
        return {
            "needed": self.needed,
            "own": self.own,
            "expires": format_duration(self.expires),
            "notice": format_duration(self.notice),
            "hold": ALWAYS if self.hold is None else format_duration(self.hold),
        }

    def holds(self, waited: float) -> bool:
        """Whether a plan that has waited for so long has a slot kept for it."""
        return self.hold is None or waited < self.hold


DEFAULT = ApprovalSpec()


def read_approval(value: Any, where: str, faults: Faults) -> ApprovalSpec:
    if value is None:
        return DEFAULT
    given = read_mapping(value, where, FIELDS, faults)
    needed = read_integer(given, where, "needed", faults, 1, MOST_NEEDED, 1)
    expires = (
        read_duration(given, where, "expires", faults, MINUTE, 30 * DAY, DEFAULT_EXPIRES)
        or DEFAULT_EXPIRES
    )
    return ApprovalSpec(
        needed=needed,
        own=needed == 1 if given.get("own") is None else read_flag(given, where, "own", faults),
        expires=expires,
        notice=_read_notice(given, where, expires, faults),
        hold=_read_hold(given.get("hold"), field_path(where, "hold"), faults),
    )


def _read_notice(given: Mapping[str, Any], where: str, expires: float, faults: Faults) -> float:
    if given.get("notice") is None:
        return min(DEFAULT_NOTICE, expires / 2)
    notice = read_duration(given, where, "notice", faults, 0.0, 30 * DAY, 0.0) or 0.0
    if notice >= expires:
        what = f"{format_duration(notice)} is not shorter than expires, {format_duration(expires)}."
        faults.add(field_path(where, "notice"), what, "Shorten it, or write 0s for no notice.")
    return notice


def _read_hold(value: Any, where: str, faults: Faults) -> float | None:
    if value is None or value == ALWAYS:
        return None
    if not isinstance(value, str):
        faults.add(
            where,
            f"{show_value(value)} is not a length of time.",
            f"Write {ALWAYS}, 0s, or how long, like 30m.",
        )
        return None
    return read_duration({"hold": value}, where.rpartition(".")[0], "hold", faults, 0.0, 30 * DAY)
