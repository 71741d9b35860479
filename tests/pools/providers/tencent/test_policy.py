"""The CAM policy in docs/tencent.md allows the calls that the code makes, and no others."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pools.providers.tencent as package
from pools.providers.base import PortTarget, PortUse
from pools.providers.tencent.client import ACTIONS
from pools.providers.tencent.provider import TencentProvider
from tests.pools.providers.tencent.clb_parameters import REQUIRED
from tests.pools.providers.tencent.scene import Scene, slot, tcp, udp

ROOT = Path(__file__).resolve().parents[4]
ACTION = re.compile(r"(Create|Delete|Describe|Batch|Modify|Register|Deregister|Set)[A-Z]\w+")


def read_policy() -> set[str]:
    text = (ROOT / "docs" / "tencent.md").read_text()
    (block,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    (statement,) = json.loads(block)["statement"]
    assert statement["effect"] == "allow"
    assert all(action.startswith("clb:") for action in statement["action"])
    assert len(statement["action"]) == len(set(statement["action"]))
    return {action.removeprefix("clb:") for action in statement["action"]}


def list_named_actions() -> set[str]:
    """Actions that the first argument of a call in the package names."""
    found = set()
    for path in Path(next(iter(package.__path__))).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and ACTION.fullmatch(str(first.value)):
                    found.add(str(first.value))
    return found


def test_policy_names_the_calls_of_the_code() -> None:
    assert read_policy() == set(ACTIONS) == list_named_actions() == set(REQUIRED)


def test_whole_life_of_a_pool_needs_each_action_of_the_policy_and_no_other(scene: Scene) -> None:
    policy = read_policy()
    scene.world.allowed = policy
    scene.options = {"health_check": True}
    certificate = PortUse("tcp_ssl", PortTarget("10.0.0.1", 443), "cert-1")
    assert TencentProvider().check(scene.pool()) == []
    member = scene.add_member()
    scene.sync(
        member,
        [slot("tcp", 30000, use=tcp("10.0.0.1")), slot("tcp", 30001, use=certificate),
         slot("udp", 30000, use=udp("10.0.0.1"))],
    )  # fmt: skip
    scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.2")), slot("tcp", 30001, "draining")])
    assert len(scene.look(member).seen) == 1
    assert scene.sync(replace(member, state="deleting")).is_gone
    stray = scene.add_member(2)
    scene.remove_strays([stray.id])
    assert scene.world.balancers == {}
    assert [call for call in scene.world.log if call.code] == []
    assert {call.action for call in scene.world.log} == policy
