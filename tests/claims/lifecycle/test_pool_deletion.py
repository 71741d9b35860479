"""A pool is deleted with its claims and the members that Berth made, and the deletion completes."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from claims.lifecycle.chores import end_claims_of_deleted_pools
from claims.lifecycle.pool_deletion import delete_pool
from pools.models import Member, Pool
from pools.providers.base import MemberReport, MemberSnapshot, PoolSnapshot
from pools.providers.local.provider import LocalProvider
from project.kernel.errors import Conflict
from project.kernel.models import Event
from project.kernel.outbox.operations import PermanentError, Throttled
from slots.members.chores import end_pools, finish_drains, finish_leaving_members
from slots.members.selectors import snapshot_of
from slots.models import Slot
from slots.sync import performers
from slots.sync.performers import record_report
from tests.claims.helpers import ask, make_pool
from tests.claims.tasks.approvals.helpers import (
    again,
    agents,
    applying,
    begin,
    is_sound,
    planned,
    sql,
    task,
    workspace,
)

pytestmark = pytest.mark.usefixtures("tables")


def finalize() -> None:
    end_claims_of_deleted_pools()
    finish_drains()
    finish_leaving_members()
    for member in Member.objects.filter(state="deleting"):
        found = snapshot_of(member.pk)
        assert found is not None
        record_report(*found, performers.call_provider(*found))
    end_pools()


def state_of(pool: Pool) -> str:
    return Pool.objects.get(pk=pool.pk).state


def test_a_pool_with_a_claim_is_not_deleted_without_cascade() -> None:
    pool = make_pool()
    ask()
    with pytest.raises(Conflict, match="has 1 claim"):
        delete_pool("lab")
    assert state_of(pool) == "active"


def test_a_cascading_deletion_cancels_every_claim_with_an_event() -> None:
    pool = agents(slots=("any", "any", "plan"), members=1)
    claims = [
        begin(task(workspace="a")),
        planned(workspace="b"),
        task(workspace="", what="plan"),
        task(workspace="", what="plan"),
    ]
    delete_pool("tf", cascade=True, reason="moved")
    assert {again(claim).outcome for claim in claims} == {"cancelled"}
    assert (
        Event.objects.filter(
            verb__in=("force_release", "cancel"), claim_id__in=[claim.id for claim in claims]
        ).count()
        == 4
    )
    assert state_of(pool) == "deleting"


def test_a_running_apply_of_a_deleted_pool_locks_its_workspace() -> None:
    agents(members=1)
    claim = applying()
    delete_pool("tf", cascade=True)
    assert again(claim).outcome == "cancelled"
    assert workspace().locked_at is not None


def test_a_deletion_completes_after_the_drain_limit_of_its_slots() -> None:
    pool = agents(members=2)
    begin(task())
    delete_pool("tf", cascade=True)
    finalize()
    assert (state_of(pool), Slot.objects.filter(state="draining").count()) == ("deleting", 1)
    sql("UPDATE slots_slot SET drain_until = now() - interval '1 s' WHERE state = 'draining'")
    finalize()
    assert state_of(pool) == "gone"
    assert set(Member.objects.values_list("state", flat=True)) == {"gone"}
    assert is_sound()


def test_the_page_of_a_pool_being_deleted_shows_its_remaining_members() -> None:
    pool = agents(members=2)
    begin(task())
    delete_pool("tf", cascade=True)
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", client.get("/pools/tf/").content.decode()))
    assert "Being deleted." in page
    assert "2 members are left." in page
    assert state_of(pool) == "deleting"


class Stubborn(LocalProvider):
    """Fails some times before it removes."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.removed = list(errors), list[str]()

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        if self.errors:
            raise self.errors.pop(0)
        self.removed.append(member.name)
        return MemberReport(is_gone=member.state == "deleting")


def test_failed_deletions_outside_are_retried_until_the_pool_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = agents(members=1)
    Member.objects.update(is_owned=True)
    outside = Stubborn(Throttled("slow down"), PermanentError("forbidden"))
    monkeypatch.setattr(performers, "provider_of", lambda kind: outside)
    delete_pool("tf", cascade=True)
    for error in (Throttled, PermanentError):
        with pytest.raises(error):
            finalize()
        assert state_of(pool) == "deleting"
    finalize()
    assert (state_of(pool), outside.removed) == ("gone", ["tf-0"])


def test_only_members_that_berth_made_are_deleted_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = agents(members=2)
    Member.objects.filter(name="tf-0").update(is_owned=True)
    outside = Stubborn()
    monkeypatch.setattr(performers, "provider_of", lambda kind: outside)
    delete_pool("tf")
    finalize()
    assert (state_of(pool), outside.removed) == ("gone", ["tf-0"])


def test_the_name_of_a_gone_pool_can_be_used_again() -> None:
    first = make_pool()
    delete_pool("lab")
    finalize()
    assert state_of(first) == "gone"
    assert make_pool().pk != first.pk


def test_a_repeated_deletion_is_accepted() -> None:
    pool = agents(members=1)
    begin(task())
    delete_pool("tf", cascade=True)
    delete_pool("tf", cascade=True)
    assert state_of(pool) == "deleting"
