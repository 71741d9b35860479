"""Decisions about members. Pure: plain values in, a verdict with its reason out."""

from dataclasses import dataclass
from typing import Literal

Action = Literal["stay", "go_offline", "lose", "come_back"]


@dataclass(frozen=True, slots=True)
class LivenessDecision:
    action: Action
    next_look: float | None  # seconds from now; None: no timer, only somebody's word
    reason: str = ""


def decide_liveness(
    *,
    state: str,
    is_lost: bool,
    silent_for: float | None,
    heartbeat: float | None,
    lost: float | None,
) -> LivenessDecision:
    """What becomes of a member whose timer has run out.

    Offline is the absence of heartbeats, nothing else. Lost is counted from there: while nobody
    could be heard (our own outage), members go offline together, and they have the whole time to be
    heard again.
    """
    if heartbeat is None or state not in ("ready", "offline"):
        return LivenessDecision("stay", None)
    is_heard = silent_for is not None and silent_for < heartbeat
    if state == "ready":
        if is_heard and silent_for is not None:
            return LivenessDecision("stay", heartbeat - silent_for)
        return LivenessDecision("go_offline", lost, f"no heartbeat for {_words(heartbeat)}")
    if is_heard:
        return LivenessDecision("come_back", heartbeat)
    if is_lost or lost is None:
        return LivenessDecision("stay", None)
    return LivenessDecision("lose", None, f"offline for {_words(lost)}")


RestartAction = Literal["stay", "restart", "give_up", "lose", "forget"]
# Seconds one that is unwell has to get well by itself; none, where nothing of it runs.
GRACE = 120.0
BACK_OFF = (0.0, 60.0, 120.0, 240.0, 480.0)  # seconds more before each restart in a row
MOST_RESTARTS = len(BACK_OFF)
WELL_AFTER = 600.0  # seconds after which its restarts are forgotten


@dataclass(frozen=True, slots=True)
class RestartCondition:
    """How a member is that can be started again."""

    state: str
    for_s: float  # how long it has been so: down, if it is known to be, else in its state
    is_down: bool = False  # nothing of it runs
    is_planned: bool = False  # it was ended on purpose
    is_busy: bool = False  # something may run there
    is_lost: bool = False  # what ran there has been given up
    restarts: int = 0
    has_given_up: bool = False
    has_unsaved_state: bool = False  # its agent has the only copy of a Terraform state


@dataclass(frozen=True, slots=True)
class RestartVerdict:
    action: RestartAction
    reason: str = ""
    is_counted: bool = True


STAY = RestartVerdict("stay")


def decide_restart(now: RestartCondition, lost_after: float | None) -> RestartVerdict:
    """What becomes of a member that is unwell, or was.

    One that is silent may still be at work: it is not started anew under its task, only once that
    is lost or nothing of it runs.
    """
    if now.state == "ready":
        was_unwell = now.restarts > 0 or now.has_given_up
        return (
            RestartVerdict("forget", f"well for {_words(WELL_AFTER)}")
            if was_unwell and now.for_s >= WELL_AFTER
            else STAY
        )
    if now.state not in ("offline", "creating"):
        return STAY
    if now.is_down and now.is_planned:
        return RestartVerdict("restart", "it was ended on purpose", is_counted=False)
    grace = 0.0 if now.is_down else GRACE
    if now.has_given_up:
        is_over = lost_after is not None and now.for_s >= lost_after and not now.is_lost
        return RestartVerdict("lose", f"not back in {_words(lost_after or 0)}") if is_over else STAY
    if now.is_busy and not now.is_down and not now.is_lost:
        return STAY
    if now.has_unsaved_state and not now.is_down:  # its files may go with it
        return STAY
    if now.restarts >= MOST_RESTARTS:
        return (
            RestartVerdict("give_up", f"started {now.restarts} times in a row in vain")
            if now.for_s >= grace
            else STAY
        )
    if now.for_s < grace + BACK_OFF[now.restarts]:
        return STAY
    what = "its process has ended" if now.is_down else f"unwell for {_words(round(now.for_s))}"
    return RestartVerdict("restart", f"{what}; restart {now.restarts + 1} of {MOST_RESTARTS}")


def _words(seconds: float) -> str:
    if seconds >= 120 and seconds % 60 == 0:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:g} s"
