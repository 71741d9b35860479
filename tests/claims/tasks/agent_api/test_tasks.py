"""A task from start to result by the agent API, including false, late and foreign reports."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from jsonschema import Draft202012Validator

from claims.lifecycle.cancel import force_release
from claims.models import Claim, LogChunk, Plan, Run
from claims.tasks.agent_api.schemas import INTERRUPTED
from claims.tasks.approvals.services import approve_plan
from claims.tasks.files.sealed_files import read_file
from claims.tasks.logs.logs import list_runs
from claims.tasks.runs import agents_sql
from pools.models import Pool
from pools.secrets.services import set_secret
from project.kernel.errors import Conflict
from project.kernel.models import Event
from slots.members.tokens import _recorded
from slots.models import Slot
from tests.claims.tasks.agent_api.conftest import Agent, agent_of, make_agents, make_claim
from tests.claims.tasks.approvals.helpers import decider

pytestmark = pytest.mark.django_db
SAVED = b"a saved plan with a password in it " * 100
SHOWN = {
    "format_version": "1.2",
    "resource_changes": [{"address": "a.b", "change": {"actions": ["create"]}}] * 3,
}


@pytest.fixture(autouse=True)
def untold() -> None:
    _recorded.clear()


def task_of(claim: Any) -> str:
    return f"tasks/{claim.id}/{claim.generation}/"


def put(
    agent: Agent,
    path: str,
    data: bytes,
    kind: str = "application/octet-stream",
    digest: str | None = None,
) -> Any:
    sent = {
        "Authorization": f"Bearer {agent.secret}",
        "Berth-Digest": hashlib.sha256(data).hexdigest() if digest is None else digest,
    }
    response = agent.call.client.generic(
        "PUT", f"/api/v1/agent/{path}", data, content_type=kind, headers=sent
    )
    return response.status_code, response.json()


def raw_get(agent: Agent, path: str) -> Any:
    return agent.call.client.get(
        f"/api/v1/agent/{path}", headers={"Authorization": f"Bearer {agent.secret}"}
    )


def dump() -> str:
    """All that the database would tell of it."""
    found = ""
    with connection.cursor() as cursor:
        for table in ("kernel_event", "claims_run", "claims_plan", "claims_task", "claims_claim"):
            cursor.execute(f"SELECT coalesce(string_agg(t::text, ''), '') FROM {table} t")
            found += cursor.fetchone()[0]
        cursor.execute(
            "SELECT coalesce(string_agg(encode(data, 'escape'), ''), '') FROM claims_logchunk"
        )
        return found + str(cursor.fetchone()[0])


def test_a_task_goes_from_start_through_approval_to_apply(
    agent: Agent, pool: Pool, files: Path
) -> None:
    set_secret(pool_id=pool.pk, name="PASSWORD", value="hunter2")
    claim = make_claim(
        pool,
        "plan_and_apply",
        is_started=False,
        body={"commands": {"plan": "x", "apply": "y"}, "secrets": ["PASSWORD"]},
    )
    task = task_of(claim)
    work = agent.get(task)
    assert (
        work.body["secrets"] == {"PASSWORD": "hunter2"}
        and work.headers["Cache-Control"] == "no-store"
    )
    assert agent.post(f"{task}log/", {"seq": 0, "text": "early\n"}).body["code"] == "not_started"
    assert agent.post(f"{task}started/", {"boot": "b1"}).body == {}
    assert agent.post(f"{task}started/", {"boot": "b1"}).body == {}, "again: the same"
    assert agent.post(f"{task}started/", {"boot": "b2"}).body["code"] == "already_started"
    assert agent.post(
        f"{task}log/",
        {"chunks": [{"seq": 0, "text": "a\n"}, {"seq": 1, "text": "hunter3 \u0000\n"}]},
    ).body == {"next": 2}
    assert put(agent, f"{task}plan/", SAVED) == (200, {"size": len(SAVED)})
    first = Run.objects.get(claim_id=claim.id).facts["files"]["plan"]
    assert put(agent, f"{task}plan/", SAVED)[0] == 200, "again: in the place of the one before"
    assert put(agent, f"{task}plan-json/", json.dumps(SHOWN).encode(), "application/json") == (
        200,
        {"resources": 3},
    )
    result = {
        "outcome": "planned",
        "digest": hashlib.sha256(SAVED).hexdigest(),
        "exit_code": 2,
        "summary": {"add": 3},
        "facts": {"binary": "tofu"},
    }
    settled = agent.post(f"{task}result/", result)
    assert settled.body == {"state": "reserved", "outcome": "", "keep": True}
    assert agent.post(f"{task}result/", result).body == settled.body, "again: the same"
    plan = Plan.objects.get(claim_id=claim.id)
    assert (
        read_file(plan.file) == SAVED
        and json.loads(read_file(plan.json_file)) == SHOWN
        and plan.size == len(SAVED)
    )
    assert not (files / first).exists(), "what was replaced is gone"
    for told in (
        dump(),
        *(path.read_bytes().decode("latin-1") for path in files.rglob("*") if path.is_file()),
    ):
        assert not any(
            word in told for word in ("hunter2", "hunter3", "password in it", "resource_changes")
        )

    approve_plan(claim_id=claim.id, digest=result["digest"], by=decider("ben"))
    (order,) = agent.get("orders/").body["orders"]
    assert (order["claim"], order["step"]) == (claim.id, "apply") and order[
        "generation"
    ] > claim.generation
    task = f"tasks/{claim.id}/{order['generation']}/"
    told = agent.get(task).body["plan"]
    assert (told["digest"], told["has_file"], told["facts"]["binary"]) == (
        result["digest"],
        True,
        "tofu",
    )
    assert raw_get(agent, f"{task}plan/").content == SAVED
    assert agent.post(f"{task}started/", {"boot": "b1"}).status == 200
    assert put(agent, f"{task}plan/", b"another")[1]["code"] == "not_planning"
    assert agent.post(f"{task}result/", {"outcome": "applied", "exit_code": 0}).body == {
        "state": "ended",
        "outcome": "applied",
        "keep": False,
    }
    assert set(Slot.objects.values_list("state", flat=True)) == {"idle"}


def test_a_plan_whose_list_contradicts_its_counts_cannot_be_approved(
    agent: Agent, pool: Pool, files: Path
) -> None:
    claim = make_claim(pool, "plan_and_apply")
    task = task_of(claim)
    blanked = {"resource_changes": [{"address": "a.b", "change": {"***": ["delete"]}}] * 3}
    assert put(agent, f"{task}plan-json/", json.dumps(blanked).encode(), "application/json") == (
        200,
        {"resources": 3},
    )
    digest = hashlib.sha256(SAVED).hexdigest()
    agent.post(
        f"{task}result/", {"outcome": "planned", "digest": digest, "summary": {"destroy": 3}}
    )
    plan = Plan.objects.get(claim_id=claim.id)
    assert (
        plan.mismatch
        == "The agent counts 3 to destroy, but the plan that it sent lists no changes."
    )
    assert plan.summary["destroy"] == 3
    with pytest.raises(Conflict) as caught:
        approve_plan(claim_id=claim.id, digest=digest, by=decider("ben"))
    assert (
        caught.value.code == "counts_differ"
        and plan.mismatch in caught.value.detail
        and caught.value.way_out
    )
    assert Claim.objects.get(pk=claim.id).state == "reserved"


def test_a_result_without_counts_takes_the_counts_of_the_plan(
    agent: Agent, pool: Pool, files: Path
) -> None:
    claim = make_claim(pool, "plan_and_apply")
    task = task_of(claim)
    assert put(agent, f"{task}plan-json/", json.dumps(SHOWN).encode(), "application/json")[0] == 200
    agent.post(
        f"{task}result/", {"outcome": "planned", "digest": hashlib.sha256(SAVED).hexdigest()}
    )
    plan = Plan.objects.get(claim_id=claim.id)
    assert (plan.summary["add"], plan.mismatch) == (3, "")


def test_plan_files_with_a_wrong_digest_or_format_are_not_stored(
    agent: Agent, pool: Pool, claim: Any, files: Path
) -> None:
    task = task_of(claim)
    assert put(agent, f"{task}plan/", SAVED, digest="ab" * 32)[1]["code"] == "digest_differs"
    assert put(agent, f"{task}plan/", SAVED, digest="no digest")[0] == 400
    assert put(agent, f"{task}plan/", SAVED, "text/html")[0] == 415
    assert put(agent, f"{task}plan-json/", b"{broken", "application/json")[1]["code"] == "not_json"
    assert (
        put(agent, f"{task}plan-json/", b"[" * 100_000, "application/json")[1]["code"] == "not_json"
    )
    assert (
        put(agent, f"{task}plan-json/", b'{"resource_changes": 5}', "application/json")[1]["code"]
        == "not_json"
    )
    assert not files.exists() and "files" not in Run.objects.get(claim_id=claim.id).facts
    assert put(agent, f"{task}plan/", SAVED)[0] == 200
    answer = agent.post(f"{task}result/", {"outcome": "planned", "digest": "cd" * 32})
    assert (answer.status, answer.body["state"], answer.body["outcome"]) == (200, "ended", "failed")
    assert Run.objects.get().code == "plan_differs" and not Plan.objects.exists()


def test_bodies_over_the_limits_of_the_pool_are_refused(db: None, files: Path) -> None:
    pool = make_agents("small", task={"plan": "64kB", "log": "64kB"})
    agent, claim = agent_of(pool.members.get()), make_claim(pool)
    task = task_of(claim)
    for path, kind, size in (
        ("plan/", "application/octet-stream", 64_001),
        ("plan-json/", "application/json", 64_001),
    ):
        status, body = put(agent, task + path, b"x" * size, kind)
        assert (status, body["code"]) == (413, "too_large")
    assert not files.exists()
    for seq in range(4):
        answer = agent.post(f"{task}log/", {"seq": seq, "text": "x" * 60_000})
    assert (answer.status, answer.body["code"]) == (409, "log_full")
    assert LogChunk.objects.count() == 3
    assert agent.post(f"{task}log/", {"seq": 0, "text": "x" * 5_000_000}).status == 413


def test_an_agent_cannot_read_or_change_the_task_of_another_member(
    agent: Agent, claim: Any, files: Path
) -> None:
    other = agent_of(make_agents("other").members.get())
    before = (Run.objects.values().get(), Claim.objects.values().get())
    task = task_of(claim)
    answers = [
        other.get(task),
        other.post(f"{task}started/", {"boot": "b"}),
        other.post(f"{task}log/", {"seq": 0, "text": "lies\n"}),
        other.get(f"{task}plan/"),
        other.get(f"{task}source/"),
        other.post(f"{task}result/", {"outcome": "failed", "reason": "lies"}),
    ]
    assert [(a.status, a.body["code"]) for a in answers] == [(409, "not_yours")] * 6
    for path, kind in (("plan/", "application/octet-stream"), ("plan-json/", "application/json")):
        assert put(other, task + path, b"{}", kind)[1]["code"] == "not_yours"
    assert (Run.objects.values().get(), Claim.objects.values().get()) == before
    assert not LogChunk.objects.exists() and not files.exists()
    events = Event.objects.filter(
        verb="refused_agent", member_id=other.member.pk, claim_id=claim.id
    )
    assert events.count() == 1, "recorded, once for all of these"
    assert other.get("tasks/999999/1/").status == 404


def test_reports_after_a_forced_release_change_nothing_and_are_recorded(
    agent: Agent, claim: Any
) -> None:
    task = task_of(claim)
    force_release(claim_id=claim.id, reason="stuck")
    before = Claim.objects.values().get()
    for answer in (
        agent.get(task),
        agent.post(f"{task}started/", {"boot": "b0"}),
        agent.post(
            f"{task}result/", {"outcome": "planned", "digest": "ab" * 32, "summary": {"destroy": 7}}
        ),
    ):
        assert (answer.status, answer.body["code"]) == (409, "stale_generation"), answer.body
    assert put(agent, f"{task}plan/", SAVED)[1]["code"] == "stale_generation"
    assert Claim.objects.values().get() == before and not Plan.objects.exists()
    assert Event.objects.filter(verb="stale_report", claim_id=claim.id).count() == 1
    assert agent.post(f"{task}log/", {"seq": 0, "text": "what was printed was printed\n"}).body == {
        "next": 1
    }


def test_a_failed_result_ends_the_claim_and_frees_its_slot(
    agent: Agent, pool: Pool, claim: Any
) -> None:
    result = {
        "outcome": "failed",
        "exit_code": 127,
        "code": "command_not_found",
        "reason": "./plan.sh: not found",
    }
    assert agent.post(f"{task_of(claim)}result/", result).body == {
        "state": "ended",
        "outcome": "failed",
        "keep": False,
    }
    run = Run.objects.get(claim_id=claim.id)
    assert (run.outcome, run.code, run.exit_code) == ("failed", "command_not_found", 127)
    assert [told["way_out"].split(",")[0] for told in list_runs(claim.id)] == [
        "Use a program that the agents have"
    ]
    assert set(Slot.objects.values_list("state", flat=True)) == {"idle"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("started/", {}),
        ("started/", {"boot": 5}),
        ("started/", []),
        ("log/", []),
        ("log/", {"seq": "0", "text": "x"}),
        ("log/", "not json"),
        ("result/", {}),
        ("result/", {"outcome": "perhaps"}),
        ("result/", {"outcome": "planned"}),
        ("result/", []),
    ],
)
def test_malformed_task_calls_are_refused(agent: Agent, claim: Any, path: str, body: Any) -> None:
    answer = agent.post(task_of(claim) + path, body)
    assert answer.status == 400 and answer.body["way_out"], answer.body
    assert Claim.objects.get().state == "bound"


def test_agent_statements_use_indexes_on_an_empty_database(db: None) -> None:
    values = {
        "member": 1,
        "claim": 1,
        "generation": 1,
        "plan": 1,
        "members": [1],
        "marks": [1],
        "incarnations": [1],
        "slots": [1],
        "incarnation": 1,
        "kind": "plan",
        "files": "{}",
        "interrupt": "{}",
    }
    with connection.cursor() as cursor:
        for name, text in agents_sql.statements.texts.items():
            used = {key: value for key, value in values.items() if f"%({key})s" in text}
            cursor.execute(f"EXPLAIN {text}", used)
            plan = "\n".join(row[0] for row in cursor.fetchall())
            assert "Seq Scan on slots_slot" not in plan and "Seq Scan on claims_" not in plan, (
                f"{name}:\n{plan}"
            )


def test_an_interrupt_is_stored_with_its_run_and_recorded_once(agent: Agent, claim: Any) -> None:
    task = task_of(claim)
    told = {"why": "it is too late", "wait_s": 600, "waits_for": ["a.b (create)"], "more": 0}
    assert agent.post(f"tasks/{claim.id}/99/interrupted/", told).status == 409, (
        "it was never begun here"
    )
    assert agent.post(f"{task}interrupted/", told).status == 200
    force_release(claim_id=claim.id, reason="stuck")
    assert agent.post(f"{task}interrupted/", {**told, "waits_for": []}).status == 200, (
        "also of a claim that has ended"
    )
    kept = Run.objects.get(claim_id=claim.id).facts["interrupt"]
    assert (kept["why"], kept["waits_for"]) == ("it is too late", [])
    assert [
        event.reason for event in Event.objects.filter(verb="interrupt", claim_id=claim.id)
    ] == ["it is too late"]


def test_a_long_operation_fits_the_schema_and_is_cut(agent: Agent, claim: Any) -> None:
    told = {"why": "a test", "wait_s": 60, "waits_for": ["long" * 100]}
    Draft202012Validator(INTERRUPTED.schema()).validate(told)
    agent.post(f"{task_of(claim)}started/", {})
    assert agent.post(f"{task_of(claim)}interrupted/", told).status == 200
    kept = Run.objects.get(claim_id=claim.id).facts["interrupt"]
    assert kept["waits_for"] == ["long" * 75]


@pytest.mark.parametrize(
    "wrong",
    [
        {"wait_s": -1},
        {"wait_s": None},
        {"waits_for": ["a"] * 21},
        {"waits_for": [1]},
        {"colour": "red"},
    ],
)
def test_a_malformed_interrupt_is_refused(agent: Agent, claim: Any, wrong: dict[str, Any]) -> None:
    body = {"why": "", "wait_s": 1, **wrong}
    answer = agent.post(
        f"{task_of(claim)}interrupted/",
        {name: value for name, value in body.items() if value is not None},
    )
    assert answer.status == 400, answer.body
