"""Decisions about members. Pure: plain values in, a verdict with its reason out."""

from dataclasses import dataclass
from typing import Literal

Action = Literal["stay", "go_offline", "lose", "come_back"]


@dataclass(frozen=True, slots=True)
class Verdict:
    action: Action
    next_look: float | None  # seconds from now; None: no timer, only somebody's word
    reason: str = ""


def decide_liveness(*, state: str, is_lost: bool, silent_for: float | None, heartbeat: float | None, lost: float | None) -> Verdict:
    """What becomes of a member whose timer has run out.

    Offline is the absence of heartbeats, nothing else. Lost is counted from there: while nobody could be heard (our own outage), members
    go offline together, and they have the whole time to be heard again.
    """
    if heartbeat is None or state not in ("ready", "offline"):
        return Verdict("stay", None)
    is_heard = silent_for is not None and silent_for < heartbeat
    if state == "ready":
        if is_heard and silent_for is not None:
            return Verdict("stay", heartbeat - silent_for)
        return Verdict("go_offline", lost, f"no heartbeat for {_words(heartbeat)}")
    if is_heard:
        return Verdict("come_back", heartbeat)
    if is_lost or lost is None:
        return Verdict("stay", None)
    return Verdict("lose", None, f"offline for {_words(lost)}")


def _words(seconds: float) -> str:
    if seconds >= 120 and seconds % 60 == 0:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:g} s"
