"""Races of a quarantine, in threads with connections of their own: the first side has acted and not
committed when the second begins. A docstring says how its test was seen red.
"""

from typing import Any

import pytest

from claims import claims_sql
from claims.allocation.claim_view import ClaimView
from pools.models import Member
from slots.members import store
from slots.members.services import cordon_member, uncordon_member
from slots.models import Slot
from slots.sync.quarantine import find_quarantine, quarantine_slot
from tests.claims.helpers import again, ask, sql
from tests.claims.tasks.approvals.test_races import take_away
from tests.pools.providers.fake_providers import ALL, fresh
from tests.slots.concurrent_actors import in_order
from tests.slots.helpers import is_consistent
from tests.slots.sync.test_stray_orders import make_yard

pytestmark = [pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> None:
    settings.BERTH_PROVIDERS = ALL
    fresh()


@pytest.fixture
def only() -> Slot:
    """The one slot of a pool."""
    make_yard(members={"max": 2, "list": [{"name": "a", "slots": 1}]})
    return Slot.objects.get()


def isolate(slot: Slot) -> bool:
    return quarantine_slot(slot_id=slot.pk, reason="it fails again and again")


def race_of_claim_after_quarantine(slot: Slot) -> tuple[Any, str]:
    """How the claim ended, and the state of the slot."""
    _, claim = in_order(lambda: isolate(slot), lambda: ask("yard"))
    slot.refresh_from_db()
    return (claim.state if isinstance(claim, ClaimView) else claim), slot.state


def test_claim_during_a_quarantine_does_not_get_the_slot(only: Slot) -> None:
    assert race_of_claim_after_quarantine(only) == ("waiting", "idle")
    assert find_quarantine(only.pk) is not None and not only.is_open and is_consistent()


@pytest.mark.parametrize("has_rule", [True, False])
def test_without_the_lock_of_the_search_the_claim_is_not_left_waiting(
    has_rule: bool, only: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above, red: the search reads the slot as open, and waits for it too late. A rule of
    the database refuses the claim then, and without the rule it gets the slot.
    """
    guard = "LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED"
    take_away((("create_and_bind", guard, "LIMIT 1"),), (claims_sql.statements,), monkeypatch)
    if has_rule:
        assert race_of_claim_after_quarantine(only)[0] != "waiting"
        return
    sql("ALTER TABLE slots_slot DISABLE TRIGGER slot_open_to_new")
    try:
        assert race_of_claim_after_quarantine(only) == ("bound", "held")
    finally:
        sql("ALTER TABLE slots_slot ENABLE TRIGGER slot_open_to_new")


def test_quarantine_during_a_claim_closes_the_slot_behind_it(only: Slot) -> None:
    claim, is_isolated = in_order(lambda: ask("yard"), lambda: isolate(only))
    assert is_isolated is True
    only.refresh_from_db()
    assert (again(claim).state, only.state, only.is_open) == ("bound", "held", False)
    assert ask("yard").state == "waiting" and is_consistent()


def race_of_uncordon_during_a_quarantine(slot: Slot) -> bool:
    """Whether the slot is open in the end."""
    cordon_member(member_id=slot.member_id, reason="a test")
    in_order(lambda: isolate(slot), lambda: uncordon_member(member_id=slot.member_id))
    assert find_quarantine(slot.pk) is not None
    slot.refresh_from_db()
    return slot.is_open


def test_uncordon_during_a_quarantine_does_not_open_the_slot(only: Slot) -> None:
    assert not race_of_uncordon_during_a_quarantine(only)
    assert ask("yard").state == "waiting"


def test_without_the_lock_of_the_member_the_uncordon_opens_the_slot(
    only: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above, red: the uncordon does not see the quarantine that is being written."""

    def read(member_id: int) -> tuple[Any, Member]:
        member = Member.objects.select_related("pool").get(pk=member_id)
        return member.pool, member

    monkeypatch.setattr(store, "lock_member", read)
    assert race_of_uncordon_during_a_quarantine(only)
    assert ask("yard").state == "bound"
