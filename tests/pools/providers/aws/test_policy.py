"""The policy in docs/aws.md allows the calls that Berth makes, and no more."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pools.providers.aws
from pools.providers.aws.account import CALLS
from pools.providers.aws.names import INSTALLATION_TAG
from pools.providers.aws.provider import AwsProvider
from pools.providers.base import PortUse
from project.kernel.outbox.operations import QuotaExceeded
from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.harness import make_options
from tests.pools.providers.aws.scene import (
    CERTIFICATE,
    OTHER_CERTIFICATE,
    AwsScene,
    make_port,
    target_of,
)

ROOT = Path(__file__).resolve().parents[4]
PACKAGE = Path(pools.providers.aws.__file__).parent
# AWS demands this right for tags in a create call; no code calls it.
TAGGING = "elasticloadbalancing:AddTags"
# Every identity may make this call.
FREE = "sts:GetCallerIdentity"
SERVICES = {"DescribeSubnets": "ec2", "GetCallerIdentity": "sts"}


def read_statements() -> list[dict[str, Any]]:
    (text,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "aws.md").read_text(), re.DOTALL)
    statements: list[dict[str, Any]] = json.loads(text)["Statement"]
    return statements


def read_actions() -> list[str]:
    return [action for each in read_statements() for action in each["Action"]]


def name_action(call: str) -> str:
    return f"{SERVICES.get(call, 'elasticloadbalancing')}:{call}"


def calls_in_code() -> set[str]:
    """The operations that the package's code names in calls."""
    found = set[str]()
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            position = {"call": 0, "pages": 0, "_send": 1}.get(node.func.attr)
            if position is not None and len(node.args) > position:
                argument = node.args[position]
                if isinstance(argument, ast.Constant):
                    found.add(argument.value)
    return found


def test_policy_allows_the_calls_of_the_code_and_no_more() -> None:
    actions = read_actions()
    assert len(actions) == len(set(actions))
    called = {name_action(call) for call in calls_in_code()}
    assert set(actions) == (called - {FREE}) | {TAGGING}
    assert {name_action(call) for call in CALLS} <= called


def test_policy_limits_writes_to_objects_with_berths_tag() -> None:
    for statement in read_statements():
        writes = [each for each in statement["Action"] if ":Describe" not in each]
        text = json.dumps(statement.get("Condition", {}))
        if any("Create" in each for each in writes):
            assert f"aws:RequestTag/{INSTALLATION_TAG}" in text
        elif writes == [TAGGING]:
            assert "elasticloadbalancing:CreateAction" in text
        elif writes:
            assert f"aws:ResourceTag/{INSTALLATION_TAG}" in text


def test_every_call_of_the_policy_is_made(scene: AwsScene, cloud: Cloud) -> None:
    scene.options = make_options(scene.address, cross_zone=True, deregistration_delay="10s")
    AwsProvider().check(scene.pool())
    tls = make_port(30000, protocol="tcp_ssl", certificate=CERTIFICATE)
    member = scene.make(tls, make_port(30001))
    scene.sync(member)
    AwsProvider().look(scene.pool(member))
    scene.options = make_options(scene.address, health_check={"interval": "10s"})
    other = PortUse("tcp_ssl", target_of("10.0.0.99:1"), OTHER_CERTIFICATE)
    scene.sync(replace(member, slots=(replace(tls, use=other),)))
    cloud.quotas.balancers = 0
    with pytest.raises(QuotaExceeded):
        scene.sync(scene.member(number=2, state="creating"))
    scene.sync(replace(member, state="deleting", slots=()))
    made = {name_action(call.action) for call in cloud.log}
    assert made - {FREE} == set(read_actions()) - {TAGGING}


def test_every_write_names_an_object_with_berths_tag(scene: AwsScene, cloud: Cloud) -> None:
    """The conditions of the policy hold for the calls that Berth makes."""
    member = scene.declare(make_port(30000), make_port(30001, protocol="udp"))
    tagged = set[str]()
    scene.sync(member)
    for kind in (cloud.listeners, cloud.groups, cloud.balancers):
        tagged |= {arn for arn, each in kind.items() if INSTALLATION_TAG in each.tags}
    scene.sync(replace(member, slots=(make_port(30000, target="10.0.0.9:1"),)))
    scene.sync(replace(member, state="deleting", slots=()))
    for call in cloud.writes():
        if call.action.startswith("Create"):
            assert INSTALLATION_TAG in {tag["Key"] for tag in call.params["Tags"]}
        else:
            named = {value for name, value in call.params.items() if name.endswith("Arn")}
            assert named <= tagged, call
