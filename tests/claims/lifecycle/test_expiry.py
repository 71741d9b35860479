"""Claims end at their acknowledge, heartbeat and hold limits. Tests move the times in the rows,
because the clock is that of the database.
"""

import pytest

from claims.allocation.selectors import view_claim
from claims.lifecycle.chores import check_due_claims
from claims.lifecycle.update import acknowledge_claim, record_claim_heartbeat, resize_claim
from project.kernel.errors import Conflict, StaleGeneration
from project.kernel.models import Event
from tests.claims.helpers import again, ask, elapse, let_go, make_pool, serve, sql, verbs

pytestmark = pytest.mark.usefixtures("tables")


@pytest.mark.usefixtures("committed_tables")
def test_an_unacknowledged_claim_ends_and_its_slot_is_used_again() -> None:
    make_pool(lease={"acknowledge": "30s"})
    claim, waiting = ask(), ask()
    assert claim.acknowledge_by is not None
    elapse(claim, 29)
    assert not check_due_claims()
    assert again(claim).state == "bound"
    elapse(claim, 1)
    check_due_claims()
    ended = again(claim)
    assert (ended.outcome, verbs(claim)) == ("unacknowledged", ["create", "unacknowledged"])
    assert Event.objects.get(verb="unacknowledged").reason == "not acknowledged within 30 s"
    serve()
    assert again(waiting).state == "bound", "a lost answer leaks no slot"


def test_an_acknowledged_claim_has_no_further_deadline() -> None:
    make_pool()
    claim = ask(acknowledge_within="30s")
    answered = acknowledge_claim(claim_id=claim.id, generation=claim.generation)
    assert (answered.acknowledge_by, answered.acknowledged_at is not None) == (None, True)
    assert acknowledge_claim(claim_id=claim.id, generation=claim.generation).state == "bound", (
        "said twice"
    )
    elapse(claim, 3600)
    check_due_claims()
    assert again(claim).state == "bound"
    assert sql("SELECT due_at FROM claims_claim") == [(None,)]


def test_a_late_acknowledgement_is_refused_before_the_finalizer_ran() -> None:
    make_pool()
    claim = ask(acknowledge_within="30s")
    elapse(claim, 31)
    with pytest.raises(Conflict) as caught:
        acknowledge_claim(claim_id=claim.id, generation=claim.generation)
    assert caught.value.code == "too_late"
    assert again(claim).state == "bound"
    check_due_claims()
    assert again(claim).outcome == "unacknowledged"
    with pytest.raises(Conflict, match="has already ended"):
        acknowledge_claim(claim_id=claim.id, generation=claim.generation)
    assert verbs(claim).count("late_acknowledge") == 2


def test_the_acknowledge_deadline_of_a_waiting_claim_starts_at_its_bind() -> None:
    make_pool()
    first = ask()
    claim = ask(acknowledge_within="30s")
    elapse(claim, 600)
    check_due_claims()
    assert again(claim).state == "waiting"
    let_go(first)
    serve()
    bound = again(claim)
    acknowledge_claim(claim_id=claim.id, generation=bound.generation)


def test_heartbeats_keep_a_claim_and_silence_ends_it() -> None:
    make_pool(lease={"heartbeat": "2m"})
    claim = ask()
    elapse(claim, 119)
    record_claim_heartbeat(claim_id=claim.id, generation=claim.generation)
    elapse(claim, 60)
    check_due_claims()
    assert again(claim).state == "bound"
    assert (
        55 < float(sql("SELECT extract(epoch FROM due_at - now()) FROM claims_claim")[0][0]) <= 60
    )
    elapse(claim, 61)
    check_due_claims()
    assert (again(claim).outcome, Event.objects.get(verb="silent").reason[:10]) == (
        "silent",
        "silent for",
    )
    with pytest.raises(Conflict, match="has already ended"):
        record_claim_heartbeat(claim_id=claim.id, generation=claim.generation)


def test_a_heartbeat_of_an_old_generation_is_refused() -> None:
    make_pool(slots=2, lease={"heartbeat": "2m"})
    claim = ask(size=2)
    smaller = resize_claim(claim_id=claim.id, generation=claim.generation, size=1)
    with pytest.raises(StaleGeneration):
        record_claim_heartbeat(claim_id=claim.id, generation=claim.generation)
    record_claim_heartbeat(claim_id=claim.id, generation=smaller.generation)


@pytest.mark.usefixtures("committed_tables")
def test_a_claim_expires_after_its_hold() -> None:
    make_pool(lease={"hold": "8h"})
    claim, short = ask(), None
    assert claim.expires_at is not None
    assert claim.bound_at is not None
    assert (claim.expires_at - claim.bound_at).total_seconds() == 8 * 3600
    let_go(claim)
    short = ask(hold_for="1m", acknowledge_within="30s")
    acknowledge_claim(claim_id=short.id, generation=short.generation)
    elapse(short, 60)
    check_due_claims()
    assert view_claim(short.id).outcome == "expired"


def test_a_claim_that_cannot_be_read_does_not_stop_the_others() -> None:
    make_pool(slots=2)
    bad, good = ask(hold_for="1s"), ask(hold_for="1s")
    elapse(bad, 99)
    elapse(good, 9)
    sql("UPDATE claims_claim SET spec = '[1]' WHERE id = %s", bad.id)
    with pytest.raises(Exception, match="list"):
        check_due_claims()
    assert again(good).outcome == "expired"
    assert sql(
        "SELECT due_at > now() + interval '50 s' FROM claims_claim WHERE id = %s", bad.id
    ) == [(True,)]
