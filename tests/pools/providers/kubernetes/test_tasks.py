"""The whole path over an API server: a plan creates a pod, which plans, is approved, applies,
and is removed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes_cluster.clusters import KubeWorld
from tests.kubernetes_cluster.plugin import WORLDS
from tests.pools.providers.kubernetes.stack_with_pods import Standing

FAKE, REAL = (
    pytest.mark.parametrize("kube_world", [name], indirect=True, scope="session") for name in WORLDS
)
EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "hello"


@pytest.fixture(scope="module")
def standing(
    kube_world: KubeWorld, target: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    folder = tmp_path_factory.mktemp("standing")
    folder.chmod(0o700)
    standing = Standing(kube_world, folder, target)
    yield standing
    standing.close()


def hello(standing: Standing, workspace: str, **ships: Any) -> int:
    wanted = {**json.loads((EXAMPLE / "harbour.json").read_text()), "ships": ships}
    files = {"hello.py": (EXAMPLE / "hello.py").read_text(), "harbour.json": json.dumps(wanted)}
    commands = {"plan": "python3 hello.py plan", "apply": "python3 hello.py apply"}
    run = {"executor": "command", "commands": commands, "source": {"files": files}}
    body = {"pool": "lab", "task": "plan_and_apply", "workspace": workspace, "run": run}
    return int(standing.call("POST", "claims/", body)["id"])


def test_pod_is_created_for_a_plan_applies_it_and_is_removed(standing: Standing) -> None:
    assert standing.space.names() == []
    claim = hello(standing, "north", aurora={"berth": 1, "cargo": "coffee"})
    standing.wait_rows(f"select state from claims_claim where id = {claim}", [("reserved",)])
    (pod,) = standing.space.pods()
    assert pod["status"]["phase"] == "Running"
    plan = standing.call("GET", f"claims/{claim}/plan/")
    standing.call("POST", f"claims/{claim}/approve/", {"digest": plan["digest"], "comment": "fine"})
    standing.wait_rows(
        f"select state, outcome from claims_claim where id = {claim}", [("ended", "applied")]
    )
    assert "aurora" in (standing.target / "north" / "index.html").read_text()
    standing.wait_empty()
    assert standing.kubelet.started == [pod["metadata"]["name"]]
    assert standing.kubelet.killed == [], "it went when it was asked"
    standing.check()


@FAKE
def test_plans_beyond_one_pod_create_exactly_one_more_pod(
    standing: Standing,
) -> None:
    before = len(standing.kubelet.started)
    claims = [standing.plan("lab", f"many-{n}", "sleep 3") for n in range(5)]
    standing.wait_ended(claims)
    assert len(standing.kubelet.started) == before + 2
    assert standing.rows(
        f"select distinct outcome from claims_claim where id = any(array{claims})"
    ) == [("planned",)]
    standing.wait_empty()


@REAL
def test_evicted_pod_finishes_its_task_and_another_does_the_next(
    standing: Standing,
) -> None:
    first = standing.plan("lab", "evicted-1", "sleep 4")
    standing.wait_rows("select count(*) from claims_run where outcome = ''", [(1,)])
    (name,) = standing.space.names()
    assert standing.space.evict(name) == 201
    standing.wait_ended([first])
    assert standing.rows(f"select outcome from claims_claim where id = {first}") == [("planned",)]
    second = standing.plan("lab", "evicted-2", "true")
    standing.wait_ended([second])
    assert standing.kubelet.started.count(name) == 1
    assert standing.kubelet.killed == []
    standing.wait_empty()


# A plan whose pod died runs a second time, and then it is short.
ONCE = 'if mkdir "$HELLO_TARGET/{name}"; then sleep 600; fi'


@pytest.mark.parametrize(
    ("kube_world", "how"),
    [("fake", "killed"), ("real_kube", "forced")],
    indirect=["kube_world"],
    scope="session",
)
def test_pod_dying_during_a_plan_is_replaced_and_the_plan_repeated(
    standing: Standing, how: str
) -> None:
    claim = standing.plan("lab", f"dies-{how}", ONCE.format(name=how))
    standing.space.until((standing.target / how).exists)
    (name,) = standing.space.names()
    if how == "killed":
        standing.kubelet.kill(name)
    else:
        assert standing.space.delete(name, grace=0) == 200
    standing.wait_ended([claim])
    assert standing.rows(f"select outcome from claims_claim where id = {claim}") == [("planned",)]
    assert standing.rows(f"select count(*) from claims_run where claim_id = {claim}") == [(2,)]
    standing.wait_empty()
    assert standing.kubelet.started.count(name) == 1
    standing.check()
