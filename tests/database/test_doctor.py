"""The doctor finds each broken invariant, repairs it where that is safe, and finds none in a
healthy database.
"""

import json
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from claims.allocation.queues.allocator import allocate
from claims.lifecycle.release import release_claim
from claims.lifecycle.update import resize_claim
from claims.models import Claim
from claims.workspaces.services import lock_workspace
from pools.models import Member, Pool
from project.kernel.doctor.registry import list_checks
from project.kernel.models import Event
from project.kernel.outbox.operations import Throttled, perform_due
from slots.members.services import cordon_member
from slots.models import Slot
from slots.rules import SLOT_CONSTRAINT
from slots.sync.watcher import observe_pool
from tests.claims.helpers import make_pool, ws
from tests.database.doctor_helpers import age, agree, ask, fill, find, is_told, mend, plant, told
from tests.pools.providers.fake_providers import ALL, ShelfProvider, World, fresh

pytestmark = pytest.mark.django_db


@pytest.mark.django_db(transaction=True)
def test_healthy_database_has_no_findings(pool: Pool) -> None:
    held = [ask(), ask(size=2)]
    waits = [
        ask(),
        ask(size=3),
        ask("nowhere"),
        ask(workspace="prod", task="plan_and_apply"),
        ask(workspace="prod", task="plan_and_apply"),
    ]
    resize_claim(claim_id=held[1].id, generation=held[1].generation, size=1)
    release_claim(claim_id=held[0].id, generation=held[0].generation)
    lock_workspace(workspace_id=ws("prod"), reason="looking")
    cordon_member(member_id=Member.objects.get(name="b").pk, reason="disk")
    allocate()
    assert len(waits) == 5
    wrong = {
        c.id: [f.detail for f in found]
        for c in list_checks()
        if c.id not in ("I23a", "I23b") and (found := list(c.find()))
    }
    assert wrong == {}


def test_each_invariant_that_is_no_constraint_has_a_check() -> None:
    """I3, I5, I7 and I15 are constraints or triggers; I6 finds missing ones."""
    there = {c.id.rstrip("abcdefghijklmnopqrstuvwxyz") for c in list_checks()}
    numbers = (1, 2, 4, 6, *range(8, 15), *range(16, 29), 31, 38, *range(40, 47))
    assert there == {f"I{n}" for n in numbers}


# -- holders and slots -----------------------------------------------------------------------------
@pytest.mark.parametrize("state", ["ended", "missing"])
def test_i1_a_slot_is_held_by_a_claim_that_does_not_hold(pool: Pool, state: str) -> None:
    claim = ask(size=2)
    if state == "ended":
        plant(
            "UPDATE claims_claim SET state = 'ended', outcome = 'released', named_generation = "
            "generation WHERE id = %s",
            claim.id,
        )
    else:
        plant("DELETE FROM claims_claim WHERE id = %s", claim.id)
    slots = ", ".join(str(s.id) for s in claim.slots)
    what = f"claim {claim.id}, which {'is ended' if state == 'ended' else 'does not exist'}"
    assert told("I1") == [(f"slots {slots}", f"held by {what}")]
    mend("I1")
    assert agree()
    assert is_told(claim.id)
    assert not Slot.objects.exclude(state="idle").exists()


def test_i1_repaired_slot_with_external_resources_drains(drains: Pool) -> None:
    claim = ask()
    plant("DELETE FROM claims_claim WHERE id = %s", claim.id)
    mend("I1")
    slot = Slot.objects.get(pk=claim.slots[0].id)
    assert (slot.state, slot.last_claim_id) == ("draining", claim.id)
    assert slot.due_at is not None


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            (
                "UPDATE slots_slot SET state = 'idle', claim_id = NULL, ordinal = NULL "
                "WHERE claim_id = %s AND ordinal = 1"
            ),
            "has 1 of 2 slots",
        ),
        (
            (
                "UPDATE slots_slot SET state = 'idle', claim_id = NULL, ordinal = NULL "
                "WHERE claim_id = %s"
            ),
            "has 0 of 2 slots",
        ),
        (
            "UPDATE slots_slot SET generation = generation - 1 WHERE claim_id = %s AND ordinal = 0",
            "of generation",
        ),
        (
            "UPDATE slots_slot SET ordinal = ordinal + 1 WHERE claim_id = %s AND ordinal = 1",
            "has 2 of 2 slots",
        ),
        (
            "UPDATE slots_slot SET state = 'reserved' WHERE claim_id = %s AND ordinal = 0",
            "held and reserved",
        ),
        (
            "UPDATE claims_claim SET state = 'reserved', expires_at = now() WHERE id = %s",
            "reserved, and has 2 of 2",
        ),
    ],
)
def test_i2_a_claim_that_holds_disagrees_with_its_slots(
    pool: Pool, damage: str, words: str
) -> None:
    claim = ask(size=2)
    plant(damage, claim.id)
    [(subject, detail)] = told("I2")
    assert subject == f"claim {claim.id}"
    assert words in detail
    mend("I2")
    assert agree()
    assert is_told(claim.id)
    assert Claim.objects.get(pk=claim.id).outcome == "lost"


def test_i4_generation_sequence_behind_used_generations_is_found(pool: Pool) -> None:
    assert find("I4") == []
    ask()
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval('generation', 1)")
    plant("UPDATE claims_claim SET generation = 1000000")
    assert told("I4") == [("sequence generation", "is at 1, the highest in use is 1000000")]
    mend("I4")


def test_i6_disabled_or_missing_rule_is_found() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE slots_slot DISABLE TRIGGER slot_agrees")
    assert told("I6") == [("trigger slot_agrees on slots_slot", "is switched off")]
    mend("I6")
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER claim_kept ON claims_claim")
    [found] = find("I6")
    assert (found.subject, found.detail, found.fix) == (
        "trigger claim_kept on claims_claim",
        "is missing",
        None,
    )


def test_i6_weakened_or_missing_check_constraint_is_found() -> None:
    with connection.cursor() as cursor:
        cursor.execute(SLOT_CONSTRAINT.function("slot_drain"))
    assert told("I6") == [
        ("constraint slot_sound on slots_slot", "has another condition than Berth declares")
    ]
    mend("I6")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE claims_claim DROP CONSTRAINT claim_sound")
    [found] = find("I6")
    assert (found.subject, found.detail, found.fix) == (
        "constraint claim_sound on claims_claim",
        "is missing",
        None,
    )


def test_i20_log_that_names_another_holder_is_found(pool: Pool) -> None:
    first, second = ask(), ask()
    slot, other = first.slots[0].id, second.slots[0].id
    plant("UPDATE kernel_event SET claim_id = 77 WHERE slot_id = %s", slot)
    plant("DELETE FROM kernel_event WHERE slot_id = %s", other)
    plant("UPDATE slots_slot SET changed_at = clock_timestamp() WHERE id = %s", other)
    assert told("I20") == [
        (f"slot {slot}", f"is held by claim {first.id}; the log says claim 77, bound"),
        (f"slot {other}", f"is held by claim {second.id}; the log names no claim"),
    ]
    mend("I20")


def test_i20_slot_freed_without_an_event_is_found(pool: Pool) -> None:
    claim = ask()
    slot = claim.slots[0].id
    release_claim(claim_id=claim.id, generation=claim.generation)
    plant("DELETE FROM kernel_event WHERE slot_id = %s AND verb = 'release'", slot)
    assert told("I20") == [(f"slot {slot}", f"is idle; the log says claim {claim.id}, bound")]
    mend("I20")


def test_i20_holder_older_than_the_oldest_event_is_accepted(pool: Pool) -> None:
    claim = ask()
    plant("DELETE FROM kernel_event WHERE slot_id = %s", claim.slots[0].id)
    age("slots_slot", claim.slots[0].id, seconds=86400)
    assert find("I20") == []


# -- tasks and sets --------------------------------------------------------------------------------
def test_i43_workspace_with_no_or_several_pools_is_found(pool: Pool) -> None:
    ask(workspace="prod", task="plan")
    assert told("I43") == []
    plant(
        "INSERT INTO pools_pool (name, state, lanes, spec) VALUES ('dns', 'active', '{any}', '{}')"
    )
    both = "SELECT w.id, p.id FROM claims_workspace w, pools_pool p WHERE p.name = 'dns'"
    plant(f"INSERT INTO claims_workspaceshare (workspace_id, pool_id) {both}")
    plant("INSERT INTO claims_workspace (name, locked_at) VALUES ('left', now())")
    assert told("I43") == [
        (
            "workspace left",
            "belongs to no pool, because none of its 0 claims names one; it is locked",
        ),
        (
            f"workspace {pool.name}/prod",
            f"belongs to pool {pool.name}, the pool of its last apply; claims of pool dns "
            "have used it, too",
        ),
    ]


def test_i12_claim_waiting_in_a_locked_workspace_is_found(pool: Pool) -> None:
    fill()
    claim = ask(workspace="prod", task="plan")
    plant(
        "UPDATE claims_workspace SET locked_at = now(), locked_by = 'ann', lock_reason = 'looking'"
    )
    assert told("I12") == [
        ("workspace prod", f"is locked by ann (looking); still queued: claim {claim.id}")
    ]
    mend("I12")
    assert Claim.objects.get(pk=claim.id).state == "blocked"


def test_i12_two_running_serial_claims_of_a_workspace_are_found(pool: Pool) -> None:
    claims = [ask(workspace=name, task="plan_and_apply").id for name in ("prod", "test")]
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX claim_serial")
    plant("UPDATE claims_claim SET workspace_id = (SELECT min(id) FROM claims_workspace)")
    assert told("I12") == [
        ("workspace prod", f"serial claims {claims[0]}, {claims[1]} are under way together")
    ]


PLAN = (
    "INSERT INTO claims_plan (id, claim_id, generation, digest, is_stale) "
    "VALUES (1, %s, 1, 'x', %s)"
)
APPLY = "UPDATE claims_claim SET step = 'apply', approved_plan_id = 1 WHERE id = %s"
SAY = "INSERT INTO claims_approval (plan_id, by_user, is_yes) VALUES (1, %s, %s)"


@pytest.mark.parametrize(
    ("of_another", "is_stale", "votes", "words"),
    [
        (False, False, {"ann": True}, None),
        (False, False, {}, "its plan has no approval"),
        (False, True, {"ann": True}, "its plan is out of date"),
        (True, False, {"ann": True}, "its plan is of another claim"),
        (False, False, {"ann": True, "bob": False}, "its plan is rejected"),
    ],
)
def test_i13_apply_without_an_approval_is_found(
    pool: Pool, of_another: bool, is_stale: bool, votes: dict[str, bool], words: str | None
) -> None:
    claim = ask(workspace="prod", task="plan_and_apply")
    plant(PLAN, claim.id + of_another, is_stale)
    plant(APPLY, claim.id)
    for who, is_yes in votes.items():
        plant(SAY, who, is_yes)
    assert told("I13") == (
        [] if words is None else [(f"claim {claim.id}", f"applies, bound: {words}")]
    )


def test_i13_apply_without_a_plan_is_found(pool: Pool) -> None:
    claim = ask(workspace="prod", task="plan_and_apply")
    plant(APPLY, claim.id)
    assert told("I13") == [(f"claim {claim.id}", "applies, bound: it names no plan")]


def test_i21_claim_set_with_too_many_claims_is_found(pool: Pool) -> None:
    claims = fill()
    plant(
        "INSERT INTO claims_claimset (id, name, shape_id, replicas, max_surge) SELECT 1, 'web', "
        "id, 2, 1 FROM claims_shape"
    )
    plant("UPDATE claims_claim SET claim_set_id = 1 WHERE id <> %s", claims[0].id)
    assert find("I21") == []
    plant("UPDATE claims_claim SET claim_set_id = 1")
    assert told("I21") == [("claim set web", "4 claims, at most 2, and 1 more during a change")]


# -- members ---------------------------------------------------------------------------------------
def test_i10_leaving_member_with_open_slots_is_found(pool: Pool) -> None:
    plant("UPDATE pools_member SET state = 'deleting' WHERE name = 'a'")
    assert told("I10") == [("member a of pool lab", "deleting, with 2 open and 0 occupied slots")]
    mend("I10")


def test_i10_member_leaving_under_its_claims_is_found(pool: Pool) -> None:
    claim = ask()
    plant("UPDATE pools_member SET state = 'gone' WHERE name = 'a'")
    plant("UPDATE slots_slot SET is_open = false")
    [found] = find("I10")
    assert found.detail == "gone, with 0 open and 1 occupied slots"
    assert str(claim.id) in found.repair
    assert found.fix is None


@pytest.fixture
def shelf(settings: Any, transactional_db: None) -> World:
    """The outside of a pool `shelf` with two members that its provider sees."""
    settings.BERTH_PROVIDERS = ALL
    fresh()
    observe_pool(make_pool("shelf", provider="shelf", members=[{"name": "a"}, {"name": "b"}]))
    assert find("I19") == []
    return ShelfProvider.world


def test_i19_member_missing_at_its_provider_is_found(shelf: World) -> None:
    shelf.vanished.add("a")
    assert told("I19") == [("member a of pool shelf", "missing outside")]
    mend("I19")
    perform_due("shelf")
    a = Member.objects.get(name="a")
    assert (a.state, a.lost_at is not None) == ("gone", True)


def test_i19_member_that_is_not_ready_outside_is_found(shelf: World) -> None:
    shelf.sick.add("b")
    assert told("I19") == [("member b of pool shelf", "not ready outside: door open")]


def test_i19_pool_whose_provider_fails_is_found(shelf: World) -> None:
    shelf.errors.append(Throttled("slow down"))
    assert told("I19") == [("pool shelf", "its provider cannot be read: slow down")]


# -- the command -----------------------------------------------------------------------------------
def test_doctor_command_reports_repairs_and_then_exits_clean(
    pool: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = ask()
    plant("DELETE FROM claims_claim WHERE id = %s", claim.id)
    with pytest.raises(SystemExit) as left:
        call_command("doctor", "I1")
    assert left.value.code == 1
    assert f"held by claim {claim.id}, which does not exist" in capsys.readouterr().out
    call_command("doctor", "--repair", "I1", "--json")
    assert json.loads(capsys.readouterr().out)["ok"] is True
    assert Event.objects.get(verb="repair").actor == "doctor"
