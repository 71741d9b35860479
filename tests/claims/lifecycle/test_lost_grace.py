"""F3: a claim is not lost in the first seconds after its bind; later all of its slots are released
together.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from claims.lifecycle.chores import lose_claims
from claims.lifecycle.update import resize_claim
from project.kernel.outbox.operations import perform_due
from project.settings import base
from slots.members.chores import check_draining_slots
from slots.members.liveness import lose_member
from slots.models import Slot
from slots.sync.watcher import observe_pool
from tests.claims.helpers import again, ask, elapse, held, is_sound, let_go, make_pool, member, sql
from tests.pools.providers.fake_providers import ALL, ShelfProvider, fresh

pytestmark = pytest.mark.usefixtures("tables")


@pytest.fixture(autouse=True)
def _as_in_production(settings: Any) -> Iterator[None]:
    settings.BERTH_LOST_GRACE = base.BERTH_LOST_GRACE
    settings.BERTH_PROVIDERS = ALL
    fresh()
    yield
    fresh()


def test_a_claim_is_not_lost_in_the_ten_seconds_after_its_bind() -> None:
    make_pool(members=2)
    claim = ask()
    lose_member(member_id=member("m0").pk, reason="gone", is_gone=True)
    elapse(claim, 9)
    assert not lose_claims()
    assert (again(claim).state, held()) == ("bound", 1)
    elapse(claim, 1)
    lose_claims()
    assert (again(claim).outcome, held()) == ("lost", 0)
    assert is_sound()


def test_older_claims_are_lost_while_a_new_one_has_its_grace() -> None:
    make_pool(slots=2)
    old, new = ask(), ask()
    elapse(old, 60)
    lose_member(member_id=member("m0").pk, reason="gone")
    lose_claims()
    assert (again(old).outcome, again(new).state) == ("lost", "bound")
    assert len(again(new).slots) == 1


def test_slots_that_still_drain_for_a_lost_claim_are_let_go_with_it() -> None:
    shelf = make_pool("shelf", provider="shelf", slots=1, members=["a", "b", "c", "d"])
    perform_due("shelf")
    observe_pool(shelf)
    perform_due("shelf")
    claim, other = ask("shelf", size=3), ask("shelf")
    ShelfProvider.world.sessions = set(Slot.objects.values_list("pk", flat=True))
    left = claim.slots[2].id
    claim = resize_claim(claim_id=claim.id, generation=claim.generation, size=2)
    let_go(other)
    perform_due("shelf")
    assert states() == {"a": "held", "b": "held", "c": "draining", "d": "draining"}
    elapse(claim, 60)
    lose_member(member_id=member("a").pk, reason="gone")
    lose_claims()
    assert again(claim).outcome == "lost"
    overdue = "SELECT id FROM slots_slot WHERE state = 'draining' AND drain_until <= now()"
    assert sql(overdue) == [(left,)], "neither the drain of another claim, nor its last slot"
    check_draining_slots()
    sql("UPDATE kernel_operation SET due_at = now() WHERE done_at IS NULL")
    perform_due("shelf")
    assert states() == {"a": "retired", "b": "draining", "c": "idle", "d": "draining"}
    assert is_sound()


def states() -> dict[str, str]:
    return dict(Slot.objects.values_list("member__name", "state"))
