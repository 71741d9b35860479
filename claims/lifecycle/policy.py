"""Decisions about deadlines of claims, and about claims whose slot is lost. Pure."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from project.kernel.ui.formatting import duration

Outcome = Literal["", "unacknowledged", "silent", "expired", "lost"]

# -- deadlines: all times are seconds by the clock of the database ---------------------------------


@dataclass(frozen=True, slots=True)
class TimedClaim:
    """A bound claim that is due for a check."""

    held: float  # since it was bound
    silent: float | None  # since the last heartbeat; None: there was none
    is_acknowledged: bool
    acknowledge: float | None = None
    heartbeat: float | None = None
    hold: float | None = None


@dataclass(frozen=True, slots=True)
class DeadlineCheck:
    """The outcome that ends the claim, or the seconds until the next check (None: no check)."""

    outcome: Outcome
    again: float | None
    reason: str = ""


def check_deadlines(timed: TimedClaim) -> DeadlineCheck:
    """Ends the claim by the first limit that has passed, in the order of `checks`."""
    silent = timed.held if timed.silent is None else timed.silent
    acknowledge = None if timed.is_acknowledged else timed.acknowledge
    checks: tuple[tuple[Outcome, float | None, float, str], ...] = (
        ("expired", timed.hold, timed.held, "held for {0}, the limit is {1}"),
        ("unacknowledged", acknowledge, timed.held, "not acknowledged within {1}"),
        ("silent", timed.heartbeat, silent, "silent for {0}, the limit is {1}"),
    )
    ahead = []
    for outcome, limit, passed, text in checks:
        if limit is None:
            continue
        if passed >= limit:
            reason = text.format(duration(passed), duration(limit))
            return DeadlineCheck(outcome, None, reason)
        ahead.append(limit - passed)
    return DeadlineCheck("", min(ahead, default=None))


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A plan that waits for its approval and is due for a check."""

    left: float  # until its deadline
    waited: float  # since the agent sent the plan
    notice: float  # before the deadline at which approvers are notified; 0: never
    is_notified: bool
    is_reserved: bool  # the claim holds a slot
    is_seeking: bool = False  # the claim waits for a slot to reserve
    hold: float | None = None  # how long the pool reserves a slot; None: until the deadline


@dataclass(frozen=True, slots=True)
class PendingCheck:
    action: Literal["", "expire", "park", "seek", "stop_seeking", "notify"]
    again: float = 0.0  # seconds until the next check, if there is no action


def check_pending_approval(p: PendingApproval) -> PendingCheck:
    """The next action for the plan. Approvers are not notified after the deadline."""
    if p.left <= 0:
        return PendingCheck("expire")
    is_held_enough = p.hold is not None and p.waited >= p.hold
    if is_held_enough and p.is_reserved:
        return PendingCheck("park")
    if is_held_enough and p.is_seeking:
        return PendingCheck("stop_seeking")
    # The pool was configured to hold slots for longer than before.
    if not is_held_enough and not p.is_reserved and not p.is_seeking:
        return PendingCheck("seek")
    ahead = [p.left]
    if p.notice > 0 and not p.is_notified:
        if p.left <= p.notice:
            return PendingCheck("notify")
        ahead.append(p.left - p.notice)
    if p.hold is not None and (p.is_reserved or p.is_seeking):
        ahead.append(p.hold - p.waited)
    return PendingCheck("", min(ahead))


# -- loss ------------------------------------------------------------------------------------------

BACK_OFF = (5.0, 10.0, 20.0, 40.0, 60.0)  # seconds before a lost plan runs again
MOST_ATTEMPTS = 5


def back_off(attempts: int) -> float:
    """Seconds to wait after this number of failed attempts."""
    return BACK_OFF[min(max(attempts, 1), len(BACK_OFF)) - 1]


class Fate(NamedTuple):
    """The next state of a claim whose member or task was lost."""

    to: Literal["waiting", "blocked", "parked", "ended"]
    outcome: str
    reason: str
    wait: float = 0.0  # seconds of back-off
    rank: int | None = None  # 0: the claim is approved and goes first
    step: str | None = None  # `plan`: the claim plans again, and no failed attempt is counted


def fate_of_lost(
    *,
    step: str,
    is_retried: bool,
    is_reserved: bool = False,
    is_started: bool = True,
    has_task: bool = False,  # an agent runs it
    attempts: int = 0,  # that failed before
    what: str = "its member was lost",
) -> Fate:
    """An apply that may have begun never runs again by itself: its progress is unknown."""
    if is_reserved:
        return Fate("parked", "", f"{what}; its plan is kept")
    if step == "apply":
        if is_started:
            return Fate("ended", "lost", f"{what} while it applied")
        return Fate("waiting", "", f"{what} before it began to apply, it goes on elsewhere", rank=0)
    if has_task:
        if attempts + 1 >= MOST_ATTEMPTS:
            return Fate("ended", "lost", f"{what}, {attempts + 1} times in a row")
        wait = back_off(attempts + 1)
        reason = f"{what}, it is tried again in {duration(wait)}"
        return Fate("blocked", "", reason, wait=wait)
    if is_retried:
        return Fate("waiting", "", f"{what}, it is tried again")
    return Fate("ended", "lost", what)


def fate_of_drained(
    *, step: str, is_retried: bool, is_reserved: bool, is_started: bool, has_task: bool
) -> Fate:
    """The next state of a claim that a drain evicts. A drain is no failure: a plan returns to its
    queue at once, and no attempt is counted.
    """
    what = "its member was drained"
    if has_task and step != "apply" and not is_reserved:
        return Fate("waiting", "", f"{what}, it plans again", step="plan")
    return fate_of_lost(
        step=step,
        is_retried=is_retried,
        is_reserved=is_reserved,
        is_started=is_started,
        has_task=has_task,
        what=what,
    )
