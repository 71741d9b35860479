"""The doctor finds evacuations that went wrong, and repairs what is safe to repair."""

import pytest

from claims.checks.evacuations import find_wrong_evacuations
from slots.models import Evacuation, Slot
from tests.claims.helpers import member, sql
from tests.claims.ports.evacuation.helpers import claim_routed, evacuate, step
from tests.claims.ports.quay import make_quay

pytestmark = pytest.mark.usefixtures("committed_tables")


def test_an_evacuation_under_way_is_no_finding() -> None:
    make_quay(members=2)
    claim_routed()
    step(evacuate("lb0"))
    assert list(find_wrong_evacuations()) == []


def test_i46_an_evacuated_member_that_takes_claims_is_cordoned_again() -> None:
    make_quay(members=2)
    evacuate("lb0")
    sql("UPDATE pools_member SET is_cordoned = false")
    sql("UPDATE slots_slot SET is_open = true")
    (found,) = find_wrong_evacuations()
    assert found.detail == "is being evacuated and takes claims"
    assert found.fix is not None
    found.fix()
    assert member("lb0").is_cordoned and list(find_wrong_evacuations()) == []
    assert not Slot.objects.filter(member=member("lb0"), is_open=True).exists()


def test_i46_the_evacuation_of_a_gone_member_is_deleted() -> None:
    make_quay(members=2)
    found_id = evacuate("lb0")
    Evacuation.objects.filter(pk=found_id).update(member_id=found_id + 1000)
    (found,) = find_wrong_evacuations()
    assert found.fix is not None
    found.fix()
    assert not Evacuation.objects.exists()


def test_i46_a_step_that_nobody_takes_is_found() -> None:
    make_quay(members=2)
    evacuate("lb0")
    sql("UPDATE slots_evacuation SET due_at = now() - interval '2 min'")
    (found,) = find_wrong_evacuations()
    assert found.detail.startswith("the next step of its evacuation was due 12")
