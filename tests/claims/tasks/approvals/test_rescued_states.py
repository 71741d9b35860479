"""A member with the only copy of a Terraform state stays until the server has the state."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.drain import force_drain
from claims.models import RescuedState
from claims.scaling.scaler import scale_pools
from claims.tasks.approvals.lost_apply import resolve_lost_apply
from claims.tasks.files.sealed_files import list_names, list_shelves
from claims.tasks.runs.services import lose_runs
from claims.tasks.states.selectors import list_rescued
from claims.tasks.states.services import (
    ReportedState,
    discard_state,
    read_state,
    store_state,
    sync_rescued,
)
from pools.models import Member, Pool
from project.kernel.errors import NotFound
from project.kernel.security import encryption
from slots.members.chores import finish_leaving_members
from slots.members.drain import finish_drain
from slots.members.liveness import lose_member
from slots.members.policy import STAY, RestartCondition, decide_restart
from slots.members.restart import rebuild_if_empty
from slots.members.services import remove_member
from slots.models import UnsavedState
from tests.claims.tasks.approvals.helpers import (
    again,
    agents,
    applying,
    code_of,
    events,
    is_sound,
    member_of,
    result,
    sql,
    states,
    tell,
    workspace,
    ws,
)
from tests.slots.concurrent_actors import Actor, Gate

pytestmark = pytest.mark.usefixtures("tables")
STATE = b'{"serial": 7}'


@pytest.fixture(autouse=True)
def files(tmp_path: Path, settings: Any) -> None:
    settings.BERTH_HOME = tmp_path
    options = {"location": tmp_path / "files"}
    settings.STORAGES = settings.STORAGES | {
        "sealed": {"BACKEND": "claims.tasks.files.sealed_files.DurableStorage", "OPTIONS": options}
    }
    encryption.forget()


def only_on_its_agent() -> tuple[ClaimView, Member]:
    """The apply has ended, its slot is idle, and only the agent has the state."""
    agents(members=2)
    claim = applying()
    member = member_of(claim)
    tell(claim, result("failed", code="state_not_saved", reason="507", rescued_bytes=len(STATE)))
    assert states() == {"idle": 2}
    return claim, member


def upload(claim: ClaimView, member: Member) -> bool:
    return store_state(claim_id=claim.id, generation=claim.generation, member=member, data=STATE)


def is_there(member: Member) -> bool:
    return Member.objects.get(pk=member.pk).state == "ready"


def scale_in(member: Member) -> None:
    Pool.objects.filter(name="tf").update(pin_count=0, pin_until=None)
    sql(
        "UPDATE pools_pool SET spec = spec || %s::jsonb WHERE name = 'tf'",
        '{"scaling": {"policy": "utilisation"}}',
    )
    sql(
        "UPDATE pools_member SET is_owned = true, created_at = now() - interval '1 d', state_at = "
        "now() - interval '1 d'"
    )
    sql("UPDATE slots_slot SET changed_at = now() - interval '1 d'")
    sql("UPDATE pools_pool SET observed_at = now(), min_members = 0 WHERE name = 'tf'")
    for _ in range(2):
        scale_pools([Pool.objects.get(name="tf").pk])


def drain(member: Member) -> None:
    force_drain(member_id=member.pk, reason="empty it")
    sql("UPDATE pools_member SET drain_until = now() - interval '1 h' WHERE id = %s", member.pk)
    finish_drain(member.pk)
    finish_leaving_members()


def remove(member: Member) -> None:
    remove_member(member_id=member.pk, reason="too many")
    finish_leaving_members()


def roll(member: Member) -> None:
    assert not rebuild_if_empty(Pool.objects.get(name="tf"), member, "outdated", labels={})


WAYS: dict[str, Callable[[Member], None]] = {
    "scale-in": scale_in,
    "drain by force": drain,
    "remove": remove,
    "roll": roll,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_member_with_the_only_copy_of_a_state_is_not_removed(way: str) -> None:
    _, member = only_on_its_agent()
    WAYS[way](member)
    assert is_there(member)
    assert UnsavedState.objects.filter(member_id=member.pk).exists()


@pytest.mark.parametrize("way", [way for way in WAYS if way != "roll"])
def test_a_member_may_go_once_the_server_has_the_state(way: str) -> None:
    claim, member = only_on_its_agent()
    WAYS[way](member)
    assert upload(claim, member)
    WAYS[way](member) if way == "scale-in" else finish_leaving_members()
    assert not is_there(member)
    assert [e.data["size"] for e in events("state_kept")] == [len(STATE)]


def test_scale_in_removes_the_member_without_the_state() -> None:
    _, member = only_on_its_agent()
    scale_in(member)
    assert not Member.objects.filter(pool__name="tf", state="ready").exclude(pk=member.pk).exists()


def test_a_silent_member_with_the_only_copy_is_not_restarted() -> None:
    silent = RestartCondition("offline", 3000.0, is_lost=True)
    assert decide_restart(silent, 600.0).action == "restart"
    assert (
        decide_restart(
            RestartCondition("offline", 3000.0, is_lost=True, has_unsaved_state=True), 600.0
        )
        == STAY
    )
    assert (
        decide_restart(
            RestartCondition("offline", 3000.0, is_down=True, has_unsaved_state=True), 600.0
        ).action
        == "restart"
    )


def test_a_killed_agent_reports_its_state_before_its_slot_is_free() -> None:
    agents(members=1)
    claim = applying()
    member = member_of(claim)
    sync_rescued(
        member=member,
        boot="boot-2",
        reported=[ReportedState(claim.id, claim.generation, 5)],
    )
    assert states() == {"held": 1}
    assert lose_runs(member, "boot-2", []) == 1
    sql(
        "UPDATE slots_slot SET state = 'idle', drain_until = NULL, due_at = NULL "
        "WHERE state = 'draining'"
    )
    remove(member)
    assert is_there(member)
    assert upload(again(claim), member)
    finish_leaving_members()
    assert not is_there(member)


def test_a_state_reported_by_another_member_is_not_recorded() -> None:
    claim, member = only_on_its_agent()
    UnsavedState.objects.all().delete()
    RescuedState.objects.all().delete()
    other = Member.objects.exclude(pk=member.pk).get(pool__name="tf")
    sync_rescued(
        member=other,
        boot="b",
        reported=[ReportedState(claim.id, claim.generation, 5)],
    )
    assert not RescuedState.objects.exists()
    assert (
        code_of(
            lambda: store_state(
                claim_id=claim.id, generation=claim.generation, member=other, data=STATE
            )
        )
        == "not_yours"
    )


def test_a_state_that_a_restarted_agent_does_not_find_is_lost() -> None:
    claim, member = only_on_its_agent()
    # The start that ran it: an older hello may come late.
    sync_rescued(member=member, boot="boot-1", reported=[])
    assert [view.status for view in list_rescued(claim.id)] == ["on_agent"]
    sync_rescued(member=member, boot="boot-2", reported=[])
    assert [view.status for view in list_rescued(claim.id)] == ["lost"]
    assert [e.claim_id for e in events("state_lost")] == [claim.id]
    remove(member)
    assert not is_there(member)


def test_a_state_is_lost_with_a_member_that_is_gone_and_recorded() -> None:
    claim, member = only_on_its_agent()
    lose_member(member_id=member.pk, reason="its pod is gone", is_gone=True)
    assert [(e.claim_id, e.reason) for e in events("state_lost")] == [(claim.id, "its pod is gone")]
    finish_leaving_members()
    assert not is_there(member)


def test_a_download_is_recorded_and_settling_deletes_the_state() -> None:
    claim, member = only_on_its_agent()
    upload(claim, member)
    assert read_state(claim_id=claim.id, generation=claim.generation) == STATE
    assert [(e.claim_id, e.pool_id) for e in events("state_download")] == [
        (claim.id, claim.pool_id)
    ]
    assert workspace().lost_claim_id == claim.id
    resolve_lost_apply(workspace_id=ws("net"), what="applied", reason="pushed it")
    assert [view.status for view in list_rescued(claim.id)] == ["settled"]
    assert [name for shelf in list_shelves() for name in list_names(shelf)] == []
    with pytest.raises(NotFound):
        read_state(claim_id=claim.id, generation=claim.generation)


def test_a_discarded_state_keeps_no_member_and_is_not_stored_later() -> None:
    claim, member = only_on_its_agent()
    assert (
        code_of(lambda: discard_state(claim_id=claim.id, generation=claim.generation, reason=""))
        == "invalid"
    )
    discard_state(
        claim_id=claim.id, generation=claim.generation, reason="the backend has a newer one"
    )
    assert not upload(claim, member)
    assert [e.reason for e in events("state_discard")] == ["the backend has a newer one"]
    remove(member)
    assert not is_there(member)
    assert is_sound()


def test_a_repeated_upload_leaves_one_file() -> None:
    claim, member = only_on_its_agent()
    assert upload(claim, member) and upload(claim, member)
    assert len([name for shelf in list_shelves() for name in list_names(shelf)]) == 1
    assert not UnsavedState.objects.exists()


def remove_beside_a_hello(monkeypatch: pytest.MonkeyPatch) -> tuple[str, bool]:
    """An agent that came back tells its state, and a person removes its member before that is
    committed. Whether the removal waited, and whether the member is there."""
    claim, member = only_on_its_agent()
    UnsavedState.objects.all().delete()
    RescuedState.objects.all().delete()
    told = [ReportedState(claim.id, claim.generation, 5)]
    gate = Gate().after(monkeypatch, "claims.tasks.states.services.record_rescued")
    agent = gate.stops(lambda: sync_rescued(member=member, boot="boot-2", reported=told))
    person = Actor(lambda: remove_member(member_id=member.pk, reason="too many")).begin()
    waited = person.until_blocked_or_done()
    gate.open()
    agent.result()
    person.result()
    finish_leaving_members()
    return waited, is_there(member)


@pytest.mark.usefixtures("committed_tables")
def test_removing_a_member_waits_for_the_state_its_agent_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert remove_beside_a_hello(monkeypatch) == ("blocked", True)


@pytest.mark.usefixtures("committed_tables")
def test_without_the_member_lock_the_only_copy_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claims.tasks.states.services.lock_member", lambda _: None)
    assert remove_beside_a_hello(monkeypatch) == ("done", False)
