"""The sync performer: provider calls and the effect of their answers, through rows, outbox and
watch.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.db.guards import InsideTransaction
from project.kernel.models import Event, Operation
from project.kernel.outbox.budgets import CallBudget
from project.kernel.outbox.operations import ProviderError, Throttled, perform_due
from slots.members import members_sql
from slots.members.chores import (
    check_draining_slots,
    end_pools,
    finish_leaving_members,
    retry_syncs,
)
from slots.members.provider_status import record_external_state
from slots.members.selectors import snapshot_of
from slots.members.services import clean_slot, close_pool, remove_member
from slots.members.store import request_sync
from slots.models import Slot
from slots.sync.performers import call_provider
from slots.sync.watcher import Watcher, observe_pool
from tests.pools.providers.fake_providers import ALL, CraneProvider, ShelfProvider, World, fresh
from tests.slots.helpers import give_back, hold, is_consistent, open_slots

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tables")]


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> Iterator[None]:
    settings.BERTH_PROVIDERS = ALL
    fresh()
    yield
    assert is_consistent()


def shelf(**more: Any) -> tuple[Pool, World]:
    """A pool whose provider has been looked at, with one member that is ready."""
    pool = create_pool(
        {"name": "shelf", "provider": "shelf", "slots": 2, "members": {"list": ["a"]}, **more}
    )
    assert (pool.state, open_slots(pool)) == ("pending", 0)
    perform_due("shelf")
    observe_pool(pool)
    pool.refresh_from_db()
    assert (pool.state, open_slots(pool)) == ("active", 2)
    assert perform_due("shelf") == 0
    return pool, ShelfProvider.world


def let_drain(pool: Pool) -> Slot:
    claim, slot, generation = hold(pool)
    assert perform_due(pool.queue) == 1
    give_back(claim, generation)
    return Slot.objects.get(pk=slot)


def due_now() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_operation SET due_at = now() WHERE done_at IS NULL")
        cursor.execute("UPDATE slots_slot SET due_at = now() WHERE due_at IS NOT NULL")


def overdue() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE slots_slot SET drain_until = now() WHERE state = 'draining'")
    due_now()


def test_slot_is_free_again_once_its_provider_confirms() -> None:
    pool, _ = shelf()
    slot = let_drain(pool)
    assert (slot.state, slot.claim_id) == ("draining", None)
    assert perform_due("shelf") == 1
    slot.refresh_from_db()
    assert (slot.state, slot.is_open, slot.drain_until, slot.due_at) == ("idle", True, None, None)
    assert (
        Event.objects.filter(verb="clean", slot_id=slot.pk, before="draining", after="idle").count()
        == 1
    )


def test_failed_cleaning_keeps_the_slot_draining_and_is_retried() -> None:
    pool, world = shelf()
    world.errors = [Throttled("slow down"), ProviderError("no answer")]
    slot = let_drain_without_sync(pool, world)
    for said in ("slow down", "no answer"):
        perform_due("shelf")
        slot.refresh_from_db()
        operation = Operation.objects.get(done_at=None)
        assert (slot.state, operation.error) == ("draining", said)
        due_now()
    perform_due("shelf")
    slot.refresh_from_db()
    assert slot.state == "idle"
    assert not Operation.objects.filter(done_at=None).exists()


def let_drain_without_sync(pool: Pool, world: World) -> Slot:
    errors, world.errors = world.errors, []
    slot = let_drain(pool)
    world.errors = errors
    return slot


def test_permanently_failed_cleaning_blocks_no_other_slot(settings: Any) -> None:
    pool = create_pool(
        {"name": "jammed", "provider": "broken", "slots": 2, "members": {"list": ["a"]}}
    )
    perform_due("broken")
    observe_pool(pool)
    slot = let_drain(pool)
    assert perform_due("broken") == 1
    slot.refresh_from_db()
    assert slot.state == "draining"
    open_operations = Operation.objects.filter(done_at=None)
    assert {o.error_code for o in open_operations} == {"permanent"}
    assert hold(pool)[1] != slot.pk  # the other slot is handed out all the same


def test_not_found_is_success_for_a_deletion() -> None:
    pool, world = shelf()
    slot = let_drain(pool)
    world.vanished.add("a")
    perform_due("shelf")
    slot.refresh_from_db()
    assert slot.state == "idle"


def test_lingering_session_is_checked_again_and_ended_at_the_deadline() -> None:
    pool, world = shelf()
    slot = let_drain(pool)
    world.sessions.add(slot.pk)
    perform_due("shelf")
    slot.refresh_from_db()
    assert slot.state == "draining"
    assert Operation.objects.filter(done_at=None).count() == 1  # the next look, in a while
    overdue()
    perform_due("shelf")
    slot.refresh_from_db()
    assert slot.state == "idle"
    assert not Operation.objects.filter(done_at=None).exists()


def test_finalizer_adds_one_operation_for_an_overdue_slot_without_one() -> None:
    pool, _ = shelf()
    slot = let_drain(pool)
    Operation.objects.filter(done_at=None).delete()
    overdue()
    check_draining_slots()
    check_draining_slots()
    assert Operation.objects.filter(done_at=None).count() == 1
    perform_due("shelf")
    slot.refresh_from_db()
    assert slot.state == "idle"


def test_provider_status_of_a_starting_member_is_dropped_once_ready() -> None:
    """A look takes seconds: the first heartbeat may arrive meanwhile, and the old status would
    then stay for a while.
    """
    pool, _ = shelf()
    member = Member.objects.get(pool=pool)
    before = member.outside
    assert member.state == "ready"
    told: dict[str, Any] = {
        "member_id": member.pk,
        "incarnation": member.incarnation,
        "external_id": "thing-7",
    }
    assert record_external_state(**told, state="creating", why="its agent has not connected yet"), (
        "its name is news"
    )
    assert not record_external_state(
        **told, state="creating", why="its agent has not connected yet"
    )
    member.refresh_from_db()
    assert (member.outside, member.external_id) == (before, "thing-7")
    assert record_external_state(**told, state="ready", why="its disk is full")
    member.refresh_from_db()
    assert member.outside == "its disk is full"


def test_late_answer_does_not_affect_the_next_holder() -> None:
    pool, _ = shelf()
    slot = let_drain(pool)
    old = slot.generation
    perform_due("shelf")
    claim, again, _ = hold(pool)
    assert again == slot.pk
    assert not clean_slot(slot_id=slot.pk, generation=old)
    slot.refresh_from_db()
    assert (slot.state, slot.claim_id) == ("held", claim)


def test_no_provider_is_called_inside_a_transaction() -> None:
    shelf()
    found = snapshot_of(Member.objects.get().pk)
    assert found is not None
    with transaction.atomic(), pytest.raises(InsideTransaction):
        call_provider(*found)


def test_member_is_created_at_its_provider_becomes_ready_and_is_deleted() -> None:
    pool = create_pool(
        {"name": "yard", "provider": "crane", "slots": 1, "members": {"list": ["a"]}}
    )
    member = Member.objects.get()
    assert (member.state, member.is_owned) == ("creating", True)
    CraneProvider.world.errors_after = [ProviderError("timed out")]
    perform_due("crane")
    due_now()
    perform_due("crane")
    member.refresh_from_db()
    assert (member.state, member.external_id, CraneProvider.world.made) == ("ready", "thing-1", 1)
    observe_pool(pool)
    assert open_slots(pool) == 1
    CraneProvider.world.errors = [ProviderError("no answer")]
    assert remove_member(member_id=member.pk, reason="sold").state == "deleting"
    perform_due("crane")
    member.refresh_from_db()
    assert member.state == "deleting"  # it stays until it is confirmed
    due_now()
    perform_due("crane")
    member.refresh_from_db()
    assert (member.state, CraneProvider.world.things) == ("gone", {})


def test_creating_member_without_an_operation_gets_one() -> None:
    create_pool({"name": "yard", "provider": "crane", "slots": 1, "members": {"list": ["a"]}})
    Operation.objects.all().delete()
    retry_syncs()
    retry_syncs()
    assert Operation.objects.filter(done_at=None).count() == 1
    perform_due("crane")
    assert Member.objects.get().state == "ready"


def test_watcher_stamps_a_pool_after_a_full_look_only() -> None:
    pool, world = shelf()
    first = Pool.objects.get().observed_at
    assert first is not None
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pools_pool SET observed_at = observed_at - interval '1 hour'")
    watcher = Watcher()
    world.errors = [ProviderError("no answer")]
    assert watcher.step()
    assert Pool.objects.get().observed_at < first
    assert not watcher.step()  # it waits before it asks again
    watcher = Watcher()
    assert watcher.step()
    assert Pool.objects.get().observed_at > first
    assert not watcher.step()
    assert pool.pk == Pool.objects.get().pk


def test_unknown_provider_delays_no_other_pool(settings: Any) -> None:
    shelf()
    create_pool({"name": "lab", "slots": 1, "members": {"list": ["a"]}})
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pools_pool SET observed_at = NULL")
    settings.BERTH_PROVIDERS = ALL[:1]
    watcher = Watcher()
    while watcher.step():
        pass
    assert dict(Pool.objects.values_list("name", "observed_at"))["shelf"] is None
    assert Pool.objects.get(name="lab").observed_at is not None
    pool = Pool.objects.get(name="shelf")
    claim, _, generation = hold(pool)
    give_back(claim, generation)
    perform_due("shelf")
    assert {o.error_code for o in Operation.objects.filter(done_at=None)} == {"permanent"}


def test_vanished_member_leaves_placement_at_once_and_is_listed_as_lost() -> None:
    pool, world = shelf()
    claim, _, generation = hold(pool)
    world.vanished.add("a")
    observe_pool(pool)
    member = Member.objects.get()
    assert (member.state, member.is_leaving, open_slots(pool)) == ("offline", True, 0)
    assert [row.id for row in members_sql.lost_with_holders(50)] == [member.pk]
    give_back(claim, generation, lost_member=member.pk)
    finish_leaving_members()
    perform_due("shelf")
    member.refresh_from_db()
    assert member.state == "gone"


def test_unready_member_takes_no_claims_until_it_is_ready() -> None:
    pool, world = shelf()
    world.sick.add("a")
    observe_pool(pool)
    assert (Member.objects.get().state, open_slots(pool)) == ("offline", 0)
    assert Event.objects.get(verb="offline").reason == "door open"
    world.sick.clear()
    observe_pool(pool)
    assert (Member.objects.get().state, open_slots(pool)) == ("ready", 2)


def test_pool_is_gone_once_the_deletion_of_its_last_member_is_confirmed() -> None:
    pool, _ = shelf()
    close_pool(pool_id=pool.pk, reason="moved")
    end_pools()
    assert Pool.objects.get().state == "deleting"
    perform_due("shelf")
    end_pools()
    assert Pool.objects.get().state == "gone"


def test_due_operations_of_a_member_take_one_provider_call() -> None:
    pool, world = shelf()
    slot = let_drain(pool)
    request_sync(pool, Member.objects.get())
    request_sync(pool, Member.objects.get())
    calls = world.calls
    assert perform_due("shelf") == 3
    slot.refresh_from_db()
    assert (slot.state, world.calls) == ("idle", calls + 1)
    assert not Operation.objects.filter(done_at=None).exists()


def test_follow_up_is_added_once_for_several_operations() -> None:
    pool, world = shelf()
    world.sessions.add(let_drain(pool).pk)
    request_sync(pool, Member.objects.get())
    assert perform_due("shelf") == 2
    assert Operation.objects.filter(done_at=None).count() == 1


def test_exhausted_call_budget_postpones_the_sync_without_an_error() -> None:
    CraneProvider.world.budget = CallBudget("yard", rate=0.5, burst=1)
    create_pool({"name": "yard", "provider": "crane", "slots": 1, "members": {"list": ["a", "b"]}})
    assert perform_due("crane") == 1
    assert CraneProvider.world.made == 1
    (waiting,) = Operation.objects.filter(done_at=None)
    assert (waiting.error_code, waiting.error) == ("", "")
    assert timedelta(0) < waiting.due_at - timezone.now() <= timedelta(seconds=2)
    assert perform_due("crane") == 0, "not due yet"
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_budget SET filled_at = filled_at - interval '1 hour'")
    due_now()
    assert perform_due("crane") == 1
    assert {member.state for member in Member.objects.all()} == {"ready"}
