"""A pool's configuration is checked against its cluster before it is accepted; an unreachable
cluster is no fault.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from project.kernel.errors import FieldError
from project.kernel.kubernetes import client
from tests.kubernetes_cluster.plugin import WORLDS
from tests.pools.providers.kubernetes.test_provider import Bench

ROLE = Path(__file__).resolve().parents[4] / "deploy/kubernetes/role.yaml"


@pytest.fixture(params=list(WORLDS))
def bench(request: pytest.FixtureRequest, settings: Any) -> Iterator[Bench]:
    bench = Bench(WORLDS[request.param])
    with bench.world_of_its_own(request, settings):
        yield bench


def check(bench: Bench, template: dict[str, Any] | None = None, **options: Any) -> list[FieldError]:
    good = bench.good_options
    bench.good_options = {**good, **options, "template": {**good["template"], **(template or {})}}
    try:
        return bench.provider().check(bench.pool())
    finally:
        bench.good_options = good
        assert bench.ours() == bench.ours("secrets") == []


def shipped_rules() -> list[Any]:
    (role,) = [each for each in yaml.safe_load_all(ROLE.read_text()) if each["kind"] == "Role"]
    return list(role["rules"])


def test_valid_configuration_has_no_fault_and_creates_nothing(bench: Bench) -> None:
    assert check(bench) == []


@pytest.mark.parametrize(
    ("template", "field"),
    [
        (
            {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            "provider.template.resources.requests",
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Sometimes"}]},
            "provider.template.tolerations[0].operator",
        ),
    ],
    ids=["resources", "tolerations"],
)
def test_refusal_of_the_server_is_reported_at_its_field(
    bench: Bench, template: dict[str, Any], field: str
) -> None:
    """Where our own reader is passed by: it would have said so before."""
    (fault,) = check(bench, template)
    assert fault.field.startswith(field)
    assert "The cluster refuses the value" in fault.message
    assert "spec." in fault.way_out


def test_missing_namespace_is_reported_at_its_field(bench: Bench) -> None:
    (fault,) = check(bench, namespace="t-nobody-made-it")
    assert fault.field == "provider.namespace"
    assert "Create the namespace" in fault.message


def test_unknown_context_is_reported_at_its_field(bench: Bench) -> None:
    (fault,) = check(bench, context="prod")
    assert (fault.field, "no context prod" in fault.message) == ("provider.context", True)


def test_rejected_credentials_are_reported_at_the_context(bench: Bench) -> None:
    (fault,) = check(bench, context="stranger")
    assert (fault.field, "credentials" in fault.message) == ("provider.context", True)


def test_all_missing_rights_are_named_at_once(bench: Bench) -> None:
    bench.space.grant(
        "limited",
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create"]},
    )
    (fault,) = check(bench, context="limited")
    assert fault.field == "provider.context"
    assert "deploy/kubernetes/role.yaml" in fault.message + fault.way_out
    if bench.fixture == "real_kube":
        assert (
            "delete pods, get secrets, create secrets, patch secrets, delete secrets"
            in fault.message
        )


def test_shipped_role_has_all_needed_rights(bench: Bench) -> None:
    bench.space.grant("limited", *shipped_rules())
    bench.space.until(
        lambda: bench.space.world.ask("GET", f"{bench.space.path}/pods", user="limited")[0] == 200
    )
    assert check(bench, context="limited") == []


def test_unreachable_cluster_is_no_fault_of_the_configuration(bench: Bench) -> None:
    assert check(bench, context="nowhere") == []
    bench.space.world.refuse("*", 503, times=10)
    assert check(bench) == []
    client.forget()
