"""P18: a pool goes with its claims and members, says how far it is, takes along only what Berth
made, and always comes to its end.
"""

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
from slots.members.chores import end_pools, settle_drains, settle_leaving_members
from slots.members.selectors import snapshot_of
from slots.models import Slot
from slots.sync import performers
from slots.sync.performers import settle_report
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
    settle_drains()
    settle_leaving_members()
    for member in Member.objects.filter(state="deleting"):
        found = snapshot_of(member.pk)
        assert found is not None
        settle_report(found[1], performers.ask_provider(*found))
    end_pools()


def state_of(pool: Pool) -> str:
    return Pool.objects.get(pk=pool.pk).state


def test_refused_while_somebody_is_there() -> None:
    pool = make_pool()
    ask()
    with pytest.raises(Conflict, match="has 1 claim"):
        delete_pool("lab")
    assert state_of(pool) == "active"


def test_it_takes_its_claims_along_each_with_its_event() -> None:
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


def test_an_apply_that_runs_locks_its_workspace() -> None:
    agents(members=1)
    claim = applying()
    delete_pool("tf", cascade=True)
    assert again(claim).outcome == "cancelled"
    assert workspace().locked_at is not None


def test_it_ends_also_where_nobody_says_that_it_is_clean() -> None:
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


def test_it_says_how_far_it_is() -> None:
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


def test_what_fails_outside_is_tried_again_until_it_is_gone(
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


def test_only_what_we_made_is_deleted_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = agents(members=2)
    Member.objects.filter(name="tf-0").update(is_owned=True)
    outside = Stubborn()
    monkeypatch.setattr(performers, "provider_of", lambda kind: outside)
    delete_pool("tf")
    finalize()
    assert (state_of(pool), outside.removed) == ("gone", ["tf-0"])


def test_its_name_is_free_again() -> None:
    first = make_pool()
    delete_pool("lab")
    finalize()
    assert state_of(first) == "gone"
    assert make_pool().pk != first.pk


def test_said_twice_it_goes_on() -> None:
    pool = agents(members=1)
    begin(task())
    delete_pool("tf", cascade=True)
    delete_pool("tf", cascade=True)
    assert state_of(pool) == "deleting"
