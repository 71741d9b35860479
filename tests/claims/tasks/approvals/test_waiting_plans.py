"""Waiting plans follow changes of their pool, of rivals and of uploaded files."""

from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from claims.controllers import Allocator
from claims.lifecycle import chores, tasks_sql
from claims.lifecycle.chores import apply_pool_changes, check_due_claims
from claims.models import Plan
from claims.tasks.agent_api.tasks import save_files
from claims.tasks.approvals import reservations
from claims.tasks.files.sealed_files import read_file
from claims.tasks.runs import agents_sql
from claims.tasks.runs.services import confirm_stopped
from claims.tasks.runs.work_order import TaskHold
from claims.tasks.task_result import parse_result
from pools.lifecycle.selectors import spec_of
from pools.lifecycle.services import update_pool
from pools.models import Pool
from project.kernel.errors import BerthError
from project.kernel.security import encryption
from tests.claims.tasks.approvals.helpers import (
    again,
    agents,
    begin,
    digest,
    events,
    is_sound,
    member,
    planned,
    result,
    row,
    run_of,
    sql,
    states,
    task,
    tell,
    verbs,
)
from tests.slots.concurrent_actors import Actor, Gate

pytestmark = pytest.mark.usefixtures("tables")


@pytest.fixture(autouse=True)
def files(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.BERTH_HOME = tmp_path
    options = {"location": tmp_path / "files"}
    settings.STORAGES = settings.STORAGES | {
        "sealed": {"BACKEND": "claims.tasks.files.sealed_files.DurableStorage", "OPTIONS": options}
    }
    encryption.forget()
    monkeypatch.setattr(chores._Known, "revisions", {})


def hold(pool: Pool, value: str) -> None:
    update_pool(
        pool.name,
        spec_of(Pool.objects.get(pk=pool.pk)).as_config() | {"approval": {"hold": value}},
        reason="a test",
    )


def turn() -> None:
    apply_pool_changes()
    check_due_claims()
    Allocator().step()


def test_a_changed_hold_parks_or_reserves_waiting_plans() -> None:
    pool = agents()
    claim = planned()
    turn()
    assert again(claim).state == "reserved"
    hold(pool, "0s")
    turn()
    assert (again(claim).state, row(claim).is_seeking) == ("parked", False)
    hold(pool, "always")
    turn()
    assert again(claim).state == "reserved"
    assert verbs(claim)[-2:] == ["park", "reserve_again"]
    assert is_sound()


def test_waiting_plans_are_not_checked_while_no_pool_changes() -> None:
    agents()
    claim = planned()
    turn()
    # The clock of the database stands still in this test: another check would give the first time.
    sql("UPDATE claims_claim SET due_at = due_at - interval '1 s'")
    due = row(claim).due_at
    turn()
    assert row(claim).due_at == due is not None


def test_parked_plans_of_a_full_pool_do_not_hide_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Red where the first so many of all are looked at, whether there is a slot for them or not."""
    monkeypatch.setattr(reservations, "AT_A_TIME", 2)
    full, free = agents("full", slots=["any"] * 3, members=1), agents("free", members=1)
    stuck = [planned("full", f"full/{i}") for i in range(3)]
    lucky = planned("free", "free/0")
    for pool in (full, free):
        hold(pool, "0s")
    turn()
    assert {again(claim).state for claim in (*stuck, lucky)} == {"parked"}
    others = [task("full", f"busy/{i}") for i in range(3)]
    for pool in (full, free):
        hold(pool, "always")
    turn()
    assert again(lucky).state == "reserved", "though three before it wait in vain"
    assert {again(claim).state for claim in stuck} == {"parked"}
    assert sql("SELECT scale_requested_at IS NOT NULL FROM pools_pool WHERE id = %s", full.pk) == [
        (True,)
    ], "it asks for more"
    for claim in others:
        begin(claim)
        tell(claim, result("failed"))
    turn()
    turn()
    assert {again(claim).state for claim in stuck} == {"reserved"}
    assert is_sound()


def late_upload(is_locked: bool) -> tuple[Any, bytes | None]:
    """The result is being taken as the same plan comes once more. What the second upload is
    answered, and what the plan's file holds.
    """
    agents()
    claim = begin(task())
    held = TaskHold(
        agents_sql.hold(claim=claim.id, generation=claim.generation, member=member().pk), {}
    )
    about = {"plan_digest": digest().hex(), "plan_size": 6}
    save_files(held, {"plan": b"a plan"}, about)
    gate = Gate()
    read = tasks_sql.lock_run if is_locked else tasks_sql.run_of

    def lock_run(**values: Any) -> Any:
        found = read(**values)
        gate.stop_here()
        return found

    def take() -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tasks_sql, "lock_run", lock_run)
            return tell(claim, result())

    def send() -> Any:
        try:
            with transaction.atomic():
                save_files(held, {"plan": b"a plan"}, about)
        except BerthError as error:
            return error.code
        return "kept"

    taking = gate.stops(take)
    sending = Actor(send).begin()
    sending.until_blocked_or_done()
    gate.open()
    answer = sending.result()
    assert taking.result().state == "reserved"
    try:
        return answer, read_file(Plan.objects.get(claim_id=claim.id).file)
    except BerthError:
        return answer, None


@pytest.mark.usefixtures("committed_tables")
def test_a_late_upload_does_not_replace_the_file_of_a_reported_plan() -> None:
    assert late_upload(is_locked=True) == ("stale_generation", b"a plan")


@pytest.mark.usefixtures("committed_tables")
def test_without_the_lock_a_late_upload_deletes_the_file_of_the_plan() -> None:
    """Red: what the race comes to where the result does not hold on to its run."""
    assert late_upload(is_locked=False) == ("kept", None)


def test_a_slot_with_processes_left_drains_until_its_agent_confirms() -> None:
    agents(members=1)
    claim = begin(task())
    tell(
        claim,
        parse_result(
            {
                "outcome": "failed",
                "code": "timeout",
                "reason": "It ran too long.",
                "left_running": 2,
            }
        ),
    )
    assert states() == {"draining": 1}
    assert "2 of its processes cannot be ended" in events("failed")[0].reason
    assert run_of(claim).facts["left_running"] == 2
    confirm_stopped(member(), [(sql("SELECT id FROM slots_slot")[0][0], claim.generation)])
    assert states() == {"idle": 1}
