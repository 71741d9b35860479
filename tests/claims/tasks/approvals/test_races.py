"""Races of decisions, tasks and workspaces in two threads, played in both orders: the first has
acted and not committed when the second starts. One wins and the other gets a clear answer; each
race fails without its guard.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from claims import claims_sql
from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import view_claim
from claims.lifecycle import tasks_sql
from claims.lifecycle.cancel import cancel_claim
from claims.lifecycle.chores import check_due_claims, lose_claims
from claims.lifecycle.lost_member import lose_claim
from claims.models import Plan, Run
from claims.tasks.approvals.reservations import extend_reservation, plan_again, reserve_parked
from claims.tasks.approvals.services import ApprovalResult
from claims.tasks.runs.results import RunEnd
from claims.tasks.runs.services import lose_runs, start_run
from claims.workspaces.services import lock_workspace
from pools.access import permissions_sql
from pools.models import Grant
from pools.roles.services import revoke_grant
from project.kernel.db.sql import Statements
from project.kernel.events.log import record
from slots.members.liveness import lose_member
from slots.models import Slot
from tests.claims.tasks.approvals.helpers import (
    BEN,
    BOOT,
    again,
    agents,
    approvals,
    begin,
    code_of,
    events,
    is_sound,
    member,
    member_of,
    no,
    pass_time,
    planned,
    result,
    row,
    serve,
    sql,
    task,
    tell,
    workspace,
    ws,
    yes,
)
from tests.slots.concurrent_actors import Actor, Gate

pytestmark = pytest.mark.usefixtures("committed_tables")

ORDERS = ("first leads", "second leads")


def short(answer: Any) -> str:
    """What it came to, in a word: the code of a refusal, else the state."""
    if isinstance(answer, ApprovalResult | RunEnd):
        return answer.state
    if isinstance(answer, ClaimView):
        return answer.outcome or answer.state
    return answer if isinstance(answer, str) else str(bool(answer))


Act = Callable[[ClaimView], Any]
Judge = Callable[[ClaimView, str, str], bool]


@dataclass(frozen=True)
class Race:
    name: str
    setup: Callable[[], ClaimView]
    one: Act
    two: Act
    judge: Judge  # the claim, what the first was answered, what the second

    def play(self, order: str) -> None:
        claim = self.setup()
        sides = [self.one, self.two] if order == ORDERS[0] else [self.two, self.one]
        gate = Gate()

        def lead() -> str:
            with transaction.atomic():
                answer = code_of(lambda: sides[0](claim))
                gate.stop_here()
            return short(answer)

        leader = gate.stops(lead)
        follower = Actor(lambda: short(code_of(lambda: sides[1](claim)))).begin()
        follower.until_blocked_or_done()
        gate.open()
        answers = [leader.result(), follower.result()]
        first, second = answers if order == ORDERS[0] else reversed(answers)
        told = f"{first} / {second}; {row(claim).state} {row(claim).outcome} {row(claim).step}"
        assert self.judge(again(claim), first, second), told
        assert is_sound(), told


# -- the sides -------------------------------------------------------------------------------------


def waits(**approval: Any) -> Callable[[], ClaimView]:
    def setup() -> ClaimView:
        agents(approval=approval) if approval else agents()
        return planned()

    return setup


def overdue() -> ClaimView:
    claim = waits()()
    check_due_claims()
    pass_time(claim, 86400)
    return claim


def nearly_overdue() -> ClaimView:
    """Due now: an agent may still begin, and the finalizer does not end it yet."""
    claim = waits()()
    sql("UPDATE claims_claim SET due_at = now()")
    return claim


def member_dies() -> ClaimView:
    claim = waits()()
    lose_member(member_id=member_of(claim).pk, reason="gone")
    return claim


def runs() -> ClaimView:
    agents()
    return begin(task())


def ordered() -> ClaimView:
    agents()
    return task()


def parked() -> ClaimView:
    claim = member_dies()
    lose_claims()
    return claim


def held_enough() -> ClaimView:
    claim = waits(hold="30m")()
    pass_time(claim, 1801)
    return claim


def finalize(claim: ClaimView) -> str:
    check_due_claims()
    return "looked"


def die(claim: ClaimView) -> bool:
    return lose_claim(claim_id=claim.id, member_id=member("tf-0").pk)


def by_eve(claim: ClaimView) -> ApprovalResult:
    return yes(claim, "eve")


def extend(claim: ClaimView) -> ClaimView:
    return extend_reservation(claim_id=claim.id, seconds=3600, reason="away")


def cancel(claim: ClaimView) -> ClaimView:
    return cancel_claim(claim_id=claim.id)


def report(claim: ClaimView) -> RunEnd:
    return tell(claim, result(), claim.generation, member("tf-0"))


def start_as(boot: str) -> Act:
    def start(claim: ClaimView) -> str:
        start_run(claim_id=claim.id, generation=claim.generation, member=member("tf-0"), boot=boot)
        return "started"

    return start


def lose_it(claim: ClaimView) -> bool:
    return bool(lose_runs(member("tf-0"), "another", []))


def lock(claim: ClaimView) -> str:
    lock_workspace(workspace_id=ws("net"), reason="look")
    return "locked"


def withdraw(claim: ClaimView) -> str:
    revoke_grant(Grant.objects.get(user__username=BEN).pk, reason="left the team")
    return "withdrawn"


def deactivate(claim: ClaimView) -> str:
    """As the admin does: with an event."""
    with transaction.atomic():
        user = User.objects.get(username=BEN)
        user.is_active = False
        user.save()
        record("change_user", data={"user": BEN})
    return "deactivated"


def approved() -> ClaimView:
    """An approved claim whose apply has not started."""
    claim = waits()()
    yes(claim)
    return again(claim)


def anew(claim: ClaimView) -> ClaimView:
    return plan_again(claim_id=claim.id, reason="main has moved")


def keep_place(claim: ClaimView) -> bool:
    return bool(reserve_parked())


# -- allowed outcomes ------------------------------------------------------------------------------


def any_of(*fine: str) -> Judge:
    """State and step (or outcome) of the claim, and both answers: one of these."""

    def judge(claim: ClaimView, first: str, second: str) -> bool:
        return f"{claim.outcome or f'{claim.state} {claim.step}'}, {first}, {second}" in fine

    return judge


def one_plan(claim: ClaimView, first: str, second: str) -> bool:
    return (first, second, Plan.objects.count(), len(events("plan"))) == (
        "reserved",
        "reserved",
        1,
        1,
    )


def approved_whatever_dies(claim: ClaimView, first: str, second: str) -> bool:
    """The yes is kept: it goes first, elsewhere."""
    lose_claims()
    now = row(claim)  # type: ignore[arg-type]
    assert approvals(claim) == [("ben", True)]
    return first in ("bound", "waiting") and (now.state, now.step, now.rank) == (
        "waiting",
        "apply",
        0,
    )


def nothing_starts_in_a_locked_workspace(claim: ClaimView, first: str, second: str) -> bool:
    if first == "bound":
        return (claim.step, second) == ("apply", "locked") and events("approve")[0].pk < events(
            "lock"
        )[0].pk
    return (claim.state, first, second) == ("reserved", "workspace_locked", "locked")


def told_of_its_result(claim: ClaimView, first: str, second: str) -> bool:
    """Cancelled it is in any case; an agent that is told that its plan waits was there first."""
    reserved = [event.pk for event in events("reserve")]
    assert (claim.outcome, first) == ("cancelled", "cancelled")
    return (
        bool(reserved) and reserved[0] < events("cancel")[0].pk
        if second == "reserved"
        else second == "stale_generation"
    )


def once(claim: ClaimView, first: str, second: str) -> bool:
    return sorted((first, second)) == ["already_started", "started"] and Run.objects.count() == 1


def nothing_runs_in_a_free_slot(claim: ClaimView, first: str, second: str) -> bool:
    slot = Slot.objects.get(member=member("tf-0"))
    if first == "started":
        return slot.state == "draining" and second == "cancelled"
    return (first, second, slot.state, Run.objects.count()) == (
        "stale_generation",
        "cancelled",
        "idle",
        0,
    )


def result_or_loss(claim: ClaimView, first: str, second: str) -> bool:
    if first == "reserved":
        return second == "False" and claim.state == "reserved"
    return (first, second, claim.state) == ("stale_generation", "True", "blocked") and len(
        events("stale_report")
    ) == 1


def counts_only_if_first(verb: str, said: str) -> Judge:
    """An approval that was given before the right was lost stands; one that comes after
    is refused.
    """

    def judge(claim: ClaimView, first: str, second: str) -> bool:
        if first == "bound":
            return (claim.step, second) == ("apply", said) and events("approve")[0].pk < events(
                verb
            )[0].pk
        return (claim.state, claim.step, first, second) == ("reserved", "plan", "forbidden", said)

    return judge


def starts_only_if_first(verb: str, said: str) -> Judge:
    """An apply that started before the right was lost goes on; later it does not start, and
    waits for a decision.
    """

    def judge(claim: ClaimView, first: str, second: str) -> bool:
        if first == "started":
            return (claim.step, second) == ("apply", said) and events("start")[-1].pk < events(
                verb
            )[0].pk
        waits_again = (claim.state, claim.step, first, second) == (
            "parked",
            "plan",
            "stale_generation",
            said,
        )
        return waits_again and Run.objects.filter(step="apply").count() == 0

    return judge


RACES = [
    Race(
        "approve, role withdrawn",
        waits(),
        yes,
        withdraw,
        counts_only_if_first("ungrant", "withdrawn"),
    ),
    Race(
        "approve, deactivated",
        waits(),
        yes,
        deactivate,
        counts_only_if_first("change_user", "deactivated"),
    ),
    Race(
        "apply starts, role withdrawn",
        approved,
        start_as(BOOT),
        withdraw,
        starts_only_if_first("ungrant", "withdrawn"),
    ),
    Race(
        "apply starts, deactivated",
        approved,
        start_as(BOOT),
        deactivate,
        starts_only_if_first("change_user", "deactivated"),
    ),
    Race(
        "approve, expiry: too late",
        overdue,
        yes,
        finalize,
        any_of("expired, expired, looked", "reserved plan, expired, looked"),
    ),
    Race(
        "approve, expiry: in time",
        nearly_overdue,
        yes,
        finalize,
        any_of("bound apply, bound, looked"),
    ),
    Race(
        "approve, reject",
        waits(),
        yes,
        no,
        any_of("bound apply, bound, approved", "rejected, rejected, ended"),
    ),
    Race(
        "approve, approve",
        waits(),
        yes,
        by_eve,
        any_of("bound apply, bound, approved", "bound apply, approved, bound"),
    ),
    Race(
        "two of two",
        waits(needed=2),
        yes,
        by_eve,
        any_of("bound apply, bound, reserved", "bound apply, reserved, bound"),
    ),
    Race("the same yes twice", waits(), yes, yes, any_of("bound apply, bound, bound")),
    Race("approve, its member dies", member_dies, yes, die, approved_whatever_dies),
    Race(
        "approve, held long enough",
        held_enough,
        yes,
        finalize,
        any_of("bound apply, bound, looked", "waiting apply, waiting, looked"),
    ),
    Race(
        "approve, plan again",
        waits(),
        yes,
        anew,
        any_of("bound apply, bound, not_pending", "bound plan, not_pending, bound"),
    ),
    Race(
        "approve, cancel",
        waits(),
        yes,
        cancel,
        any_of("cancelled, bound, cancelled", "cancelled, ended, cancelled"),
    ),
    Race(
        "approve, lock of its workspace", waits(), yes, lock, nothing_starts_in_a_locked_workspace
    ),
    Race(
        "approve, a place again",
        parked,
        yes,
        keep_place,
        any_of("waiting apply, waiting, False", "bound apply, bound, True"),
    ),
    Race(
        "reject, expiry",
        overdue,
        no,
        finalize,
        any_of("expired, expired, looked", "reserved plan, expired, looked"),
    ),
    Race(
        "extend, expiry: too late",
        overdue,
        extend,
        finalize,
        any_of(
            "expired, not_pending, looked",
            "expired, expired, looked",
            "reserved plan, expired, looked",
        ),
    ),
    Race(
        "extend, expiry: in time",
        nearly_overdue,
        extend,
        finalize,
        any_of("reserved plan, reserved, looked"),
    ),
    Race(
        "extend, approve",
        waits(),
        extend,
        yes,
        any_of("bound apply, reserved, bound", "bound apply, not_pending, bound"),
    ),
    Race("cancel, result", runs, cancel, report, told_of_its_result),
    Race("result twice", runs, report, report, one_plan),
    Race("result, its agent lost it", runs, report, lose_it, result_or_loss),
    Race("started twice", ordered, start_as(BOOT), start_as("another"), once),
    Race("start, cancel", ordered, start_as(BOOT), cancel, nothing_runs_in_a_free_slot),
    Race(
        "a place again twice",
        parked,
        keep_place,
        keep_place,
        any_of("reserved plan, True, False", "reserved plan, False, True"),
    ),
]
BY_NAME = {race.name: race for race in RACES}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_racing_operations_on_a_task_end_consistently(race: Race, order: str) -> None:
    race.play(order)


# -- seen red --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    race: str
    guards: tuple[tuple[str, str, str], ...]  # statement, what stands there, what instead


NO_LOCK = (("lock_claim", "FOR NO KEY UPDATE", ""), ("lock_run", "FOR NO KEY UPDATE", ""))
NO_LOCKS = (
    *NO_LOCK,
    ("share_workspace_of", "FOR SHARE", ""),
    ("lock_workspace_of", "FOR UPDATE", ""),
)
NO_DEADLINE = (("lock_claim", "expires_at <= now() AS is_over", "false AS is_over"),)
NO_RIGHTS_HELD = (("hold_rights", "FOR SHARE", ""), ("hold_rights", "FOR KEY SHARE", ""))
MUTANTS = [
    Mutant("approve, expiry: too late", (*NO_DEADLINE, ("resume", "AND expires_at > now()", ""))),
    Mutant(
        "approve, expiry: in time",
        (
            ("expire", "AND expires_at <= now()", ""),
            ("lock_due_claim", "c.expires_at - now()", "- interval '1 s'"),
        ),
    ),
    *(
        Mutant(name, NO_LOCK)
        for name in (
            "approve, reject",
            "approve, approve",
            "two of two",
            "the same yes twice",
            "approve, held long enough",
            "approve, plan again",
            "approve, a place again",
            "extend, approve",
            "result twice",
        )
    ),
    *(
        Mutant(name, NO_LOCKS)
        for name in (
            "approve, its member dies",
            "approve, cancel",
            "cancel, result",
            "result, its agent lost it",
        )
    ),
    *(
        Mutant(name, NO_RIGHTS_HELD)
        for name in (
            "approve, role withdrawn",
            "approve, deactivated",
            "apply starts, role withdrawn",
            "apply starts, deactivated",
        )
    ),
    Mutant("approve, lock of its workspace", (("share_workspace_of", "FOR SHARE", ""),)),
    Mutant("extend, expiry: too late", NO_DEADLINE),
    Mutant("started twice", (("start_run", "ON CONFLICT (claim_id, generation) DO NOTHING", ""),)),
    Mutant("start, cancel", (("start_run", "FOR NO KEY UPDATE OF c", ""),)),
]


def take_away(
    guards: tuple[tuple[str, str, str], ...],
    homes: tuple[Statements, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, guard, instead in guards:
        home = next(s for s in homes if name in s.texts)
        assert guard in home.texts[name], "the statement has changed: name its guard anew"
        monkeypatch.setitem(home.texts, name, home.texts[name].replace(guard, instead))


def see_red(race: Race, order: str, red: dict[str, list[str]]) -> None:
    """Plays a race without its guard, and notes the order if it goes wrong."""
    try:
        race.play(order)
    except Exception as error:
        # Judged wrong, or a rule of the database stopped it: the guard was needed.
        red.setdefault(race.name, []).append(f"{order}: {error}")
    if order == ORDERS[1]:
        assert red.get(race.name), "it does not go wrong without its guard: the race proves nothing"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.race)
@pytest.mark.parametrize("order", ORDERS)
def test_each_race_fails_without_its_guard(
    mutant: Mutant, order: str, monkeypatch: pytest.MonkeyPatch, red: dict[str, list[str]]
) -> None:
    take_away(
        mutant.guards,
        (claims_sql.statements, tasks_sql.statements, permissions_sql.statements),
        monkeypatch,
    )
    see_red(BY_NAME[mutant.race], order, red)


@pytest.fixture(scope="module")
def red() -> dict[str, list[str]]:
    """The orders in which each race went wrong."""
    return {}


def test_a_reported_plan_is_reserved_and_locks_no_workspace() -> None:
    """No race: the states of the helpers and of the claim agree."""
    claim = runs()
    report(claim)
    assert (short(view_claim(claim.id)), workspace().locked_at) == ("reserved", None)
    serve()
