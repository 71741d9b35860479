"""The outline of a plan is made in a child process when the plan arrives, or later for a plan of
an earlier release; it checks the counts of the plan.
"""

import dataclasses
import hashlib
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from claims.models import Claim, Plan, Run
from claims.tasks.approvals.services import approve_plan
from claims.tasks.files import sealed_files as kept_files
from claims.tasks.files.retention import sweep_shelf
from claims.tasks.plans import outlines
from claims.tasks.plans.outlines import make_outline_of, outline_plan, read_outline_of
from claims.tasks.plans.plan_changes import read_outline
from claims.tasks.plans.plan_outline import NotAPlan
from pools.models import Pool
from project.kernel.errors import Conflict
from tests.claims.tasks.agent_api.conftest import Agent, make_claim
from tests.claims.tasks.agent_api.test_retention import age
from tests.claims.tasks.agent_api.test_tasks import decider, put, task_of

pytestmark = pytest.mark.django_db
SAVED = b"a saved plan"
DIGEST = hashlib.sha256(SAVED).hexdigest()
DESTROYS = {
    "resource_changes": [
        {"address": f"a.b{n}", "change": {"actions": ["delete"]}} for n in range(3)
    ]
}


def send(agent: Agent, claim: Any, plan: Any) -> tuple[int, Any]:
    return put(agent, f"{task_of(claim)}plan-json/", json.dumps(plan).encode(), "application/json")


def planned(agent: Agent, pool: Pool, plan: Any = DESTROYS, **summary: int) -> Plan:
    claim = make_claim(pool, "plan_and_apply")
    assert send(agent, claim, plan)[0] == 200
    agent.post(
        f"{task_of(claim)}result/",
        {"outcome": "planned", "digest": DIGEST, "summary": summary or {"destroy": 3}},
    )
    return Plan.objects.get(claim_id=claim.id)


def as_of_an_earlier_release(plan: Plan, **changes: Any) -> Plan:
    kept_files.delete_file(plan.outline_file)
    Plan.objects.filter(pk=plan.pk).update(outline_file="", mismatch="", **changes)
    return Plan.objects.get(pk=plan.pk)


def approve(plan: Plan) -> Any:
    return approve_plan(claim_id=plan.claim_id, digest=DIGEST, by=decider("ben"))


def test_the_outline_is_stored_sealed_beside_the_plan(
    agent: Agent, pool: Pool, files: Path
) -> None:
    plan = planned(agent, pool)
    tree = read_outline(read_outline_of(plan))
    assert [change.address for change in tree.changes] == ["a.b0", "a.b1", "a.b2"]
    assert (plan.mismatch, approve(plan).state) == ("", "bound")
    stored = [path for path in files.rglob("*") if path.is_file()]
    assert stored
    assert [path for path in stored if b"a.b0" in path.read_bytes()] == []


def test_a_plan_sent_again_replaces_both_files(agent: Agent, pool: Pool, files: Path) -> None:
    claim = make_claim(pool, "plan_and_apply")
    send(agent, claim, {"resource_changes": []})
    before = Run.objects.get(claim_id=claim.id).facts["files"]
    send(agent, claim, DESTROYS)
    after = Run.objects.get(claim_id=claim.id).facts["files"]
    for kind in ("json", "outline"):
        assert before[kind] != after[kind]
        assert not (files / before[kind]).exists() and (files / after[kind]).exists()


def test_processing_a_large_plan_takes_less_memory_than_its_size(files: Path) -> None:
    """The JSON is built in the child, and sealed piece by piece."""
    body = {f"attribute_{n}": "value" for n in range(40)}
    changes = [
        {"address": f"a.b{n}", "change": {"actions": ["create"], "after": body}}
        for n in range(10_000)
    ]
    data = json.dumps({"resource_changes": changes}).encode()
    tracemalloc.start()
    try:
        made = outline_plan(data)
        name = kept_files.save_file("json", "1-1", data)
        kept_files.save_file("outline", "1-1", made.data)
        sent = sum(map(len, kept_files.iterate_file(name)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.counts["add"] == 10_000 and sent == len(data) > 9_000_000
    assert peak < len(data), peak


def test_a_plan_over_the_memory_limit_is_refused_and_not_stored(
    agent: Agent, pool: Pool, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlines, "LIMITS", dataclasses.replace(outlines.LIMITS, memory=60_000_000))
    claim = make_claim(pool, "plan_and_apply")
    status, body = send(
        agent,
        claim,
        {"resource_changes": [{"address": "a.b", "change": {"actions": ["x" * 20_000_000]}}]},
    )
    assert (status, body["code"]) == (413, "plan_too_large") and "MB of memory" in body["detail"]
    assert not files.exists() and "files" not in Run.objects.get(claim_id=claim.id).facts


def test_a_plan_that_waits_too_long_for_the_outliner_gets_503(
    agent: Agent, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlines, "PATIENCE", 0.01)
    claim = make_claim(pool, "plan_and_apply")
    with outlines._turn:
        status, body = send(agent, claim, DESTROYS)
    assert (status, body["code"]) == (503, "unavailable")
    assert send(agent, claim, DESTROYS)[0] == 200


def test_a_plan_of_an_earlier_release_is_outlined_when_it_is_read(
    agent: Agent, pool: Pool, files: Path
) -> None:
    plan = as_of_an_earlier_release(planned(agent, pool))
    assert len(read_outline(read_outline_of(plan)).changes) == 3
    plan.refresh_from_db()
    assert plan.outline_file and (files / str(plan.outline_file)).exists()


def test_a_plan_of_an_earlier_release_is_approved_when_its_counts_agree(
    agent: Agent, pool: Pool
) -> None:
    good = as_of_an_earlier_release(planned(agent, pool))
    assert approve(good).state == "bound"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"summary": {"add": 1}},
            "The agent counts 1 to add, but the plan that it sent lists 3 to destroy.",
        ),
        ({"json_file": "broken"}, "The list of changes cannot be read: "),
    ],
)
def test_a_plan_of_an_earlier_release_with_wrong_counts_is_not_approved(
    agent: Agent, pool: Pool, change: Any, why: str
) -> None:
    plan = planned(agent, pool)
    if "json_file" in change:
        change = {"json_file": kept_files.save_file("json", f"{plan.claim_id}-1", b"{broken")}
    plan = as_of_an_earlier_release(plan, **change)
    for _ in range(2):
        with pytest.raises(Conflict) as caught:
            approve(plan)
        assert caught.value.code == "counts_differ" and why in caught.value.detail
    assert Claim.objects.get(pk=plan.claim_id).state == "reserved"


def test_a_lost_outline_is_made_again(agent: Agent, pool: Pool) -> None:
    plan = planned(agent, pool)
    kept_files.delete_file(plan.outline_file)
    assert len(read_outline(read_outline_of(plan)).changes) == 3
    assert Plan.objects.get(pk=plan.pk).outline_file != plan.outline_file


def test_a_second_outline_of_the_same_plan_leaves_no_file(
    agent: Agent, pool: Pool, files: Path
) -> None:
    plan = as_of_an_earlier_release(planned(agent, pool))
    make_outline_of(plan)
    before = sorted(files.rglob("*"))
    make_outline_of(plan)  # as it was before the first
    assert sorted(files.rglob("*")) == before


def test_outlines_named_by_plans_and_runs_are_not_swept(
    agent: Agent, pool: Pool, files: Path
) -> None:
    plan, claim = planned(agent, pool), make_claim(pool)
    send(agent, claim, DESTROYS)
    orphan = kept_files.save_file("outline", "999-1", b"x")
    age(files, 2)
    swept = sum(sweep_shelf(shelf) for shelf in kept_files.list_shelves())
    assert swept == 1 and not (files / orphan).exists()
    assert (files / str(plan.outline_file)).exists() and (
        files / Run.objects.get(claim_id=claim.id).facts["files"]["outline"]
    ).exists()


def test_data_that_is_no_plan_is_refused_with_the_fault() -> None:
    for data, what in (
        (b"{broken", "JSON"),
        (b"[]", "not of a plan"),
        (b'{"resource_changes": 5}', "not of a plan"),
        (b"[" * 100_000, "JSON"),
    ):
        with pytest.raises(NotAPlan, match=what) as caught:
            outline_plan(data)
        assert caught.value.code == "not_json"
