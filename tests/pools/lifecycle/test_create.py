"""A pool is created whole, with its members and slots, or not at all."""

import pytest

from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.errors import Conflict, Invalid
from project.kernel.models import Event
from slots.models import Slot
from tests.dashboard.helpers import chief
from tests.dashboard.plain_browser import browser_of

pytestmark = pytest.mark.django_db

FIVE_FAULTS = {
    "name": "Lab Benches",
    "provider": "statik",
    "slots": ["any", "plna"],
    "members": {"min": 3, "max": 2},
    "lease": {"hold": "8"},
}


def test_pool_is_created_with_its_members_and_slots() -> None:
    pool = create_pool(
        {
            "name": "lab",
            "slots": ["any", "plan", "plan"],
            "members": {"list": ["a", {"name": "b", "labels": {"zone": "x"}}]},
        }
    )
    assert (pool.state, pool.lanes, pool.queue) == ("active", ["plan", "any"], "")
    members = list(Member.objects.order_by("position"))
    assert [(m.name, m.state, m.position, m.labels, m.is_owned) for m in members] == [
        ("a", "ready", 0, {}, False),
        ("b", "ready", 1, {"zone": "x"}, False),
    ]
    slots = (
        Slot.objects.filter(member=members[1])
        .order_by("number")
        .values_list("lane", "number", "rank", "is_open", "state")
    )
    assert list(slots) == [
        ("any", 0, 1, True, "idle"),
        ("plan", 1, 1, True, "idle"),
        ("plan", 2, 1, True, "idle"),
    ]
    assert [e.verb for e in Event.objects.order_by("id")] == ["create", "add", "add"]


def test_invalid_pool_reports_all_faults_and_leaves_no_row() -> None:
    with pytest.raises(Invalid) as caught:
        create_pool(FIVE_FAULTS)
    assert [f.field for f in caught.value.fields] == [
        "name",
        "provider",
        "slots[1]",
        "members.min",
        "lease.hold",
    ]
    assert not Pool.objects.exists()
    assert not Event.objects.exists()


def test_pool_name_is_unique_among_pools_that_are_not_gone() -> None:
    first = create_pool({"name": "lab", "slots": 1})
    with pytest.raises(Conflict) as caught:
        create_pool({"name": "lab", "slots": 1})
    assert caught.value.fields[0].field == "name"
    Pool.objects.filter(pk=first.pk).update(state="deleting")
    with pytest.raises(Conflict, match="being deleted"):
        create_pool({"name": "lab", "slots": 1})
    Pool.objects.filter(pk=first.pk).update(state="gone")
    create_pool({"name": "lab", "slots": 1})


@pytest.mark.parametrize("revision", ["9" * 5000, "--1", "first"])
def test_revision_of_the_form_that_is_no_number_is_no_server_error(revision: str) -> None:
    create_pool({"name": "lab", "slots": 2})
    fields = {"name": "lab", "form": "plain", "count": "2", "revision": revision}
    assert browser_of(chief()).post("/pools/lab/edit/", fields).status_code < 500
