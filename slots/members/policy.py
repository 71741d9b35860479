"""Pure decisions about members: liveness and restarts."""

from dataclasses import dataclass
from typing import Literal

Action = Literal["stay", "go_offline", "lose", "come_back"]


@dataclass(frozen=True, slots=True)
class LivenessDecision:
    action: Action
    next_look: float | None  # seconds until the next check; None: no timer
    reason: str = ""


def decide_liveness(
    *,
    state: str,
    is_lost: bool,
    silent_for: float | None,
    heartbeat: float | None,
    lost: float | None,
) -> LivenessDecision:
    """Decide on a member with a due timer.

    A member without heartbeats goes offline first, and the time until it is lost starts there. So
    after an outage of Berth itself, all members have the whole time to send a heartbeat again.
    """
    if heartbeat is None or state not in ("ready", "offline"):
        return LivenessDecision("stay", None)
    is_heard = silent_for is not None and silent_for < heartbeat
    if state == "ready":
        if is_heard and silent_for is not None:
            return LivenessDecision("stay", heartbeat - silent_for)
        return LivenessDecision("go_offline", lost, f"no heartbeat for {_show(heartbeat)}")
    if is_heard:
        return LivenessDecision("come_back", heartbeat)
    if is_lost or lost is None:
        return LivenessDecision("stay", None)
    return LivenessDecision("lose", None, f"offline for {_show(lost)}")


RestartAction = Literal["stay", "restart", "give_up", "lose", "forget"]
GRACE = 120.0  # seconds that an unwell member has to recover, if its process may still run
BACK_OFF = (0.0, 60.0, 120.0, 240.0, 480.0)  # extra seconds before each restart in a row
MOST_RESTARTS = len(BACK_OFF)
WELL_AFTER = 600.0  # seconds in state ready after which the restart count is reset


@dataclass(frozen=True, slots=True)
class RestartCondition:
    """Facts about a member that Berth can restart, in the order of `restart_condition`."""

    state: str
    for_s: float  # seconds since it went down if `is_down`, else since its last change of state
    is_down: bool = False  # no process of the member runs
    is_planned: bool = False  # its process was ended on purpose
    is_busy: bool = False  # a task may run there
    is_lost: bool = False  # its claims have been given up
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
    """Decide on a member that is unwell, or was.

    A silent member may still run a task. It is restarted only once the task is lost or its process
    has ended.
    """
    if now.state == "ready":
        was_unwell = now.restarts > 0 or now.has_given_up
        return (
            RestartVerdict("forget", f"well for {_show(WELL_AFTER)}")
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
        return RestartVerdict("lose", f"not back in {_show(lost_after or 0)}") if is_over else STAY
    if now.is_busy and not now.is_down and not now.is_lost:
        return STAY
    if now.has_unsaved_state and not now.is_down:  # a restart may delete its files
        return STAY
    if now.restarts >= MOST_RESTARTS:
        return (
            RestartVerdict("give_up", f"started {now.restarts} times in a row in vain")
            if now.for_s >= grace
            else STAY
        )
    if now.for_s < grace + BACK_OFF[now.restarts]:
        return STAY
    what = "its process has ended" if now.is_down else f"unwell for {_show(round(now.for_s))}"
    return RestartVerdict("restart", f"{what}; restart {now.restarts + 1} of {MOST_RESTARTS}")


def _show(seconds: float) -> str:
    if seconds >= 120 and seconds % 60 == 0:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:g} s"
