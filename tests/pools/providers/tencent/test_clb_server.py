"""The fake of the API is as strict as the cloud: signatures, versions, parameters, limits."""

import http.client
import json
from typing import Any

import pytest

from tests.pools.providers.tencent.clb_world import ClbWorld
from tests.pools.providers.tencent.scene import Scene, slot, tcp


@pytest.fixture
def world() -> ClbWorld:
    return ClbWorld(calls_per_second=20.0)


def post(scene: Scene, headers: dict[str, str], body: str = "{}") -> str:
    """The code of the error."""
    headers = {name: headers[name] for name in headers if name.lower() != "content-length"}
    host = scene.server.endpoint.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=10)
    try:
        connection.request("POST", "/", body, headers)
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return str(answer["Response"]["Error"]["Code"])


def test_call_without_a_signature_a_version_or_a_region_is_refused(scene: Scene) -> None:
    headers = {"X-TC-Action": "DescribeQuota", "Content-Type": "application/json"}
    assert post(scene, headers) == "NoSuchVersion"
    headers["X-TC-Version"] = "2018-03-17"
    assert post(scene, headers) == "UnsupportedRegion"
    headers["X-TC-Region"] = scene.world.region
    assert post(scene, headers) == "AuthFailure.SignatureFailure"


def test_signature_of_another_body_is_refused(scene: Scene) -> None:
    """A body that was changed on its way."""
    seen: list[dict[str, str]] = []
    scene.server.spy = lambda headers, body: seen.append(dict(headers))
    scene.look()
    assert post(scene, seen[0], '{"Limit": 99}') == "AuthFailure.SignatureFailure"


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"LoadBalancerId": 1}, "InvalidParameter"),
        ({"LoadBalancerId": "lb-1", "Colour": "red"}, "UnknownParameter"),
        ({}, "MissingParameter"),
        ({"LoadBalancerId": "lb-1"}, "InvalidParameter.LBIdNotFound"),
    ],
)
def test_parameters_have_the_names_and_types_of_the_sdk(
    scene: Scene, parameters: dict[str, Any], code: str
) -> None:
    with pytest.raises(Exception, match=rf"\({code}\)"):
        scene.client().call("DescribeListeners", parameters)


def test_calls_beyond_the_limit_of_an_action_are_refused(scene: Scene) -> None:
    client = scene.client()
    for _ in range(19):
        client.describe_quota()
    with pytest.raises(Exception, match="RequestLimitExceeded"):
        for _ in range(19):
            client.describe_quota()
    client.list_tagged({})  # another action has a limit of its own


def test_second_write_on_a_load_balancer_is_refused_while_the_first_runs(scene: Scene) -> None:
    member = scene.add_member()
    scene.sync(member, [slot("tcp", 30000, use=tcp())])
    scene.world.is_holding = True
    client = scene.client()
    ids = [each.id for each in client.describe_listeners(member.external_id)]
    client.delete_listeners(member.external_id, ids)
    with pytest.raises(Exception, match="ResourceInOperating"):
        client.delete_listeners(member.external_id, ids)
    scene.world.release_tasks()
    assert client.describe_listeners(member.external_id) == []
