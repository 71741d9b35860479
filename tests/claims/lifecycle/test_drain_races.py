"""Races on a draining member, played in both orders: the first operation has acted and not
committed when the second starts. One wins and the other gets a clear answer; each race fails
without its guard (the last test).
"""

from dataclasses import dataclass
from typing import Any

import pytest

from claims import claims_sql
from claims.allocation.claim_view import ClaimView
from claims.lifecycle import tasks_sql
from claims.lifecycle.drain import evict_claim
from claims.models import Run
from claims.tasks.runs.services import start_run
from pools.models import Member, Pool
from slots.members import members_sql
from slots.members.drain import drain_member, finish_drain, undrain_member
from slots.members.services import cordon_member, finish_leaving, remove_member
from slots.models import Slot
from tests.claims.lifecycle.drain_helpers import drain, find, pass_deadline
from tests.claims.tasks.approvals.helpers import (
    BOOT,
    agents,
    approvals,
    begin,
    events,
    member,
    planned,
    result,
    serve,
    sql,
    task,
    tell,
    yes,
)
from tests.claims.tasks.approvals.test_races import ORDERS, Race, any_of, see_red, take_away

pytestmark = pytest.mark.usefixtures("committed_tables")


# -- scenes ----------------------------------------------------------------------------------------


def over(claim: ClaimView) -> ClaimView:
    drain(stays=True)
    pass_deadline()
    return claim


def runs_past_the_deadline() -> ClaimView:
    agents(members=1)
    return over(begin(task()))


def ordered_past_the_deadline() -> ClaimView:
    agents(members=1)
    return over(task())


def undecided_past_the_deadline() -> ClaimView:
    agents(members=1)
    return over(planned())


def waits_beside_a_free_slot() -> ClaimView:
    agents(members=1)
    cordon_member(member_id=member().pk, reason="so that it waits")
    claim = task()
    sql("UPDATE pools_member SET is_cordoned = false")
    sql("UPDATE slots_slot SET is_open = true")
    return claim


def left_empty() -> ClaimView:
    """A leaving member without claims, before the finalizer has seen it."""
    agents(members=1)
    claim = begin(task())
    drain()
    tell(claim, result("no_changes"))
    return claim


def unclean() -> ClaimView:
    agents(members=1)
    claim = begin(task())
    drain(force=True)
    evict_claim(claim_id=claim.id, member_id=member().pk)
    sql("UPDATE slots_slot SET drain_until = now() - interval '1 s'")
    return claim


# -- sides -----------------------------------------------------------------------------------------


def deadline(claim: ClaimView) -> bool:
    return evict_claim(claim_id=claim.id, member_id=find().pk)


def undrain(claim: ClaimView) -> str:
    undrain_member(member_id=find().pk)
    return "open"


def start_drain(claim: ClaimView) -> str:
    return drain_member(member_id=find().pk, reason="kernel patch").state


def start_rest(claim: ClaimView) -> str:
    return drain_member(member_id=find().pk, reason="kernel patch", stays=True).state


def remove(claim: ClaimView) -> str:
    return remove_member(member_id=find().pk, reason="sold").state


def bind(claim: ClaimView) -> int:
    return serve()


def report(claim: ClaimView) -> Any:
    return tell(claim, result(), claim.generation, find())


def start(claim: ClaimView) -> str:
    start_run(claim_id=claim.id, generation=claim.generation, member=find(), boot=BOOT)
    return "started"


def leave(claim: ClaimView) -> bool:
    return finish_leaving(find().pk)


def give_up(claim: ClaimView) -> bool:
    return finish_drain(find().pk)


# -- allowed outcomes ------------------------------------------------------------------------------


def taken_back_or_put_out(claim: ClaimView, first: str, second: str) -> bool:
    """No claim is evicted from a member whose drain was cancelled."""
    assert (first, find().drain_until) == ("open", None)
    if claim.state == "bound":
        return second == "False" and not events("put_out")
    return (
        second == "True"
        and claim.state == "waiting"
        and events("put_out")[0].pk < events("undrain")[0].pk
    )


def bound_or_leaving(claim: ClaimView, first: str, second: str) -> bool:
    if claim.state == "bound":
        return (first, second) == ("ready", "True") and find().is_leaving
    return (claim.state, first, second) == ("waiting", "deleting", "False")


def goes_either_way(claim: ClaimView, first: str, second: str) -> bool:
    """No drain begins on a member that is deleted."""
    drained = [event.pk for event in events("drain")]
    return (
        second == "deleting"
        and (first, len(drained)) in (("ready", 1), ("conflict", 0))
        and len(events("delete")) == 1
    )


def gone_or_kept(claim: ClaimView, first: str, second: str) -> bool:
    now = find()
    if now.state == "deleting":
        return (first, second) == ("conflict", "True") and now.is_leaving
    return (first, second, now.state, now.is_leaving) == ("open", "False", "ready", False)


def nothing_runs_in_a_free_slot(claim: ClaimView, first: str, second: str) -> bool:
    slot = Slot.objects.get()
    if first == "started":
        return (slot.state, second) == ("draining", "True")
    return (first, second, slot.state, Run.objects.count()) == (
        "stale_generation",
        "True",
        "idle",
        0,
    )


def yes_is_kept(claim: ClaimView, first: str, second: str) -> bool:
    assert approvals(claim) == [("ben", True)]
    return (claim.state, claim.step, second) == ("waiting", "apply", "True") and first in (
        "bound",
        "waiting",
    )


RACES = [
    Race("undrain, deadline", runs_past_the_deadline, undrain, deadline, taken_back_or_put_out),
    Race("drain, bind", waits_beside_a_free_slot, start_drain, bind, bound_or_leaving),
    Race("drain, removal", waits_beside_a_free_slot, start_rest, remove, goes_either_way),
    Race("undrain, it goes", left_empty, undrain, leave, gone_or_kept),
    Race("undrain, it goes unclean", unclean, undrain, give_up, gone_or_kept),
    Race(
        "result, deadline",
        runs_past_the_deadline,
        report,
        deadline,
        any_of("parked plan, reserved, True", "waiting plan, stale_generation, True"),
    ),
    Race(
        "start, deadline", ordered_past_the_deadline, start, deadline, nothing_runs_in_a_free_slot
    ),
    Race("approve, deadline", undecided_past_the_deadline, yes, deadline, yes_is_kept),
    Race(
        "deadline twice",
        runs_past_the_deadline,
        deadline,
        deadline,
        any_of("waiting plan, True, False", "waiting plan, False, True"),
    ),
]
BY_NAME = {race.name: race for race in RACES}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_racing_operations_on_a_draining_member_end_consistently(race: Race, order: str) -> None:
    race.play(order)


# -- seen red --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    race: str
    guards: tuple[tuple[str, str, str], ...] = ()  # statement, what stands there, what instead
    is_member_unlocked: bool = False


NO_LOCK = (
    ("lock_claim", "FOR NO KEY UPDATE", ""),
    ("share_workspace_of", "FOR SHARE", ""),
    ("lock_workspace_of", "FOR UPDATE", ""),
)
MUTANTS = [
    Mutant("undrain, deadline", (("lock_overdue", "FOR SHARE OF m", ""),)),
    Mutant("drain, bind", (("is_member_empty", "NOT EXISTS", "true OR NOT EXISTS"),)),
    Mutant("drain, removal", is_member_unlocked=True),
    Mutant("undrain, it goes", is_member_unlocked=True),
    Mutant("undrain, it goes unclean", is_member_unlocked=True),
    Mutant("result, deadline", NO_LOCK),
    Mutant("start, deadline", (("start_run", "FOR NO KEY UPDATE OF c", ""),)),
    Mutant("approve, deadline", NO_LOCK),
    Mutant("deadline twice", NO_LOCK),
]


def read_member(member_id: int) -> tuple[Pool, Member]:
    """As lock_member, without its locks."""
    found = Member.objects.select_related("pool").get(pk=member_id)
    return found.pool, found


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.race)
@pytest.mark.parametrize("order", ORDERS)
def test_each_drain_race_fails_without_its_guard(
    mutant: Mutant, order: str, monkeypatch: pytest.MonkeyPatch, red: dict[str, list[str]]
) -> None:
    take_away(
        mutant.guards,
        (claims_sql.statements, tasks_sql.statements, members_sql.statements),
        monkeypatch,
    )
    if mutant.is_member_unlocked:
        for place in ("slots.members.drain.lock_member", "slots.members.services.lock_member"):
            monkeypatch.setattr(place, read_member)
    see_red(BY_NAME[mutant.race], order, red)


@pytest.fixture(scope="module")
def red() -> dict[str, list[str]]:
    """The orders in which each race went wrong."""
    return {}
