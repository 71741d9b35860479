"""The `provider:` options of a Kubernetes pool: all faults at once by field, and one normal
form.
"""

import json
from typing import Any

import pytest

from pools.config.parsing import Faults
from pools.config.spec import parse_pool, read_pool
from pools.lifecycle.selectors import read_stored
from pools.providers.base import option_readers
from pools.providers.kubernetes.options import amount_of, read_options
from project.kernel.errors import Invalid

TEMPLATE: dict[str, Any] = {"image": "registry.example:5000/team/agent:1.4"}


def read(**options: Any) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    faults = Faults()
    found = read_options(
        {"kind": "kubernetes", "template": TEMPLATE, **options}, "provider", faults
    )
    return dict(found), [(f.field.removeprefix("provider."), f.message) for f in faults.found]


def fields(**template: Any) -> list[str]:
    return [
        field.removeprefix("template.") for field, _ in read(template={**TEMPLATE, **template})[1]
    ]


def test_short_options_are_completed_and_round_trip() -> None:
    once, faults = read()
    assert (once, faults) == ({"template": {**TEMPLATE, "grace": 3600}}, [])
    assert read(**once) == (once, [])


def test_full_options_round_trip() -> None:
    template = {
        **TEMPLATE,
        "command": ["python3"],
        "args": ["/agent.pyz"],
        "env": {"TF_LOG": "INFO"},
        "resources": {
            "requests": {"cpu": "500m", "memory": "1Gi"},
            "limits": {"cpu": "2", "nvidia.com/gpu": "1"},
        },
        "node_selector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "dedicated", "value": "ci", "effect": "NoSchedule"}],
        "service_account": "agent",
        "image_pull_secrets": ["registry"],
        "labels": {"team": "infra"},
        "annotations": {"example.com/owner": "a person, with words"},
        "grace": 60,
        "user": 1000,
        "writable_root": True,
    }
    once, faults = read(
        context="prod", namespace="agents", url="https://berth.example.com/", template=template
    )
    assert faults == []
    assert once["template"] == template
    assert read(**once) == (once, [])


def test_numbers_and_durations_are_normalised() -> None:
    once, faults = read(
        template={
            **TEMPLATE,
            "grace": "30m",
            "resources": {"requests": {"cpu": 2}, "limits": {"memory": "4Gi"}},
        }
    )
    assert faults == []
    assert once["template"]["grace"] == 1800
    assert once["template"]["resources"] == {"requests": {"cpu": "2"}, "limits": {"memory": "4Gi"}}


def test_all_faults_are_reported_at_once_by_field() -> None:
    bad = {
        "image": "Agent:1", "env": {"BERTH_URL": "x", "A": 1},
        "resources": {"requests": {"cpu": "two"}, "limits": {"cores": "1"}},
        "labels": {"berth.dev/pool": "1"}, "tolerations": [{"operator": "Equal"}], "imge": "x",
    }  # fmt: skip
    _, faults = read(namespace="Agents", url="berth.example.com", colour="red", template=bad)
    assert [field for field, _ in faults] == [
        "colour", "namespace", "url", "template.imge", "template.image", "template.env.BERTH_URL",
        "template.env.A", "template.resources.requests.cpu", "template.resources.limits.cores",
        "template.tolerations[0]", "template.labels.berth.dev/pool",
    ]  # fmt: skip


def test_missing_template_or_image_is_refused() -> None:
    faults = Faults()
    read_options({"kind": "kubernetes"}, "provider", faults)
    assert [f.field for f in faults.found] == ["provider.template"]
    assert [field for field, _ in read(template={})[1]] == ["template.image"]


@pytest.mark.parametrize(
    "image",
    [
        "a",
        "a:1",
        "a/b",
        "reg.example/a/b:v1",
        "localhost:5000/a@sha256:" + "0" * 64,
        "a_b/c-d.e:TAG",
        "reg.example:443/x/y:1@sha256:" + "f" * 64,
    ],
)
def test_valid_image_names_are_accepted(image: str) -> None:
    assert fields(image=image) == []


@pytest.mark.parametrize(
    "image", ["A", "a b", "a:", "a:b:c", "http://a/b", "a/B", "a@sha256:12", "a//b", " "], ids=repr
)
def test_invalid_image_name_is_refused(image: str) -> None:
    assert fields(image=image) == ["image"]


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({"env": {"1A": "x"}}, "env.1A"),
        ({"env": ["A=b"]}, "env"),
        ({"env": {"A": "\x00"}}, "env.A"),
        ({"labels": {"a/b/c": "x"}}, "labels.a/b/c"),
        ({"labels": {"a": "x y"}}, "labels.a"),
        ({"labels": {"a": "x" * 64}}, "labels.a"),
        (
            {"labels": {"app.kubernetes.io/managed-by": "helm"}},
            "labels.app.kubernetes.io/managed-by",
        ),
        ({"labels": {"a": True}}, "labels.a"),
        ({"annotations": {"berth.dev/x": "y"}}, "annotations.berth.dev/x"),
        ({"annotations": {f"a{n}": "x" * 32_000 for n in range(9)}}, "annotations"),
        ({"node_selector": {"zone": "a b"}}, "node_selector.zone"),
        (
            {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}},
            "resources.requests.memory",
        ),
        ({"resources": {"limits": {"memory": "-1"}}}, "resources.limits.memory"),
        ({"resources": {"max": {}}}, "resources.max"),
        ({"resources": {"limits": {"memory": "1e9999999999999999999"}}}, "resources.limits.memory"),
        ({"resources": {"limits": {"memory": 16**5000}}}, "resources.limits.memory"),
        ({"annotations": {"a": "\ud800"}}, "annotations.a"),
        ({"tolerations": {"key": "a"}}, "tolerations"),
        ({"tolerations": [{"key": "a b"}]}, "tolerations[0].key"),
        ({"tolerations": [{"key": "a", "effect": "Never"}]}, "tolerations[0].effect"),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            "tolerations[0].value",
        ),
        (
            {"tolerations": [{"key": "a", "tolerationSeconds": 5}]},
            "tolerations[0].tolerationSeconds",
        ),
        ({"service_account": "A"}, "service_account"),
        ({"image_pull_secrets": ["a", "B"]}, "image_pull_secrets[1]"),
        ({"command": "python3 agent.pyz"}, "command"),
        ({"args": [1]}, "args[0]"),
        ({"grace": -1}, "grace"),
        ({"grace": True}, "grace"),
        ({"user": "root"}, "user"),
        ({"writable_root": "yes"}, "writable_root"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fault_has_its_field(template: dict[str, Any], field: str) -> None:
    assert fields(**template) == [field]


@pytest.mark.parametrize("name", [True, 1, None, 1.5], ids=repr)
def test_names_that_are_no_text_are_refused_without_a_crash(name: Any) -> None:
    assert len(fields(env={name: "x"}, labels={name: "x"}, annotations={name: "x"})) == 3


@pytest.mark.parametrize("url", ["http://[x", "http://[::1", "http://a:port/", "ftp://a"])
def test_malformed_url_is_a_fault(url: str) -> None:
    assert [field for field, _ in read(url=url)[1]] == ["url"]


def test_resource_amounts_are_compared_by_value() -> None:
    assert amount_of("1000m") == amount_of("1")
    assert amount_of("1Gi") > amount_of("1G") == amount_of("1e9")
    assert amount_of(".5") < amount_of("1.")


def test_kubernetes_pool_is_a_pool_with_agents() -> None:
    config = {
        "name": "infra",
        "provider": {"kind": "kubernetes", "template": TEMPLATE},
        "scaling": {"policy": "on_demand"},
    }
    spec = parse_pool(config, option_readers())
    assert spec.liveness is not None
    assert parse_pool(spec.as_config(), option_readers()) == spec
    with pytest.raises(Invalid) as caught:
        parse_pool({"name": "infra", "provider": "kubernetes"}, option_readers())
    assert [e.field for e in caught.value.fields] == ["provider.template"]


@pytest.mark.parametrize(
    ("grace", "stop_timeout", "is_enough"),
    [("11m", "10m", True), ("10m", "10m", False), ("1h", "59m", True), (5, "10m", False)],
)
def test_pod_lives_longer_than_an_apply_that_is_ended_needs(
    grace: Any, stop_timeout: str, is_enough: bool
) -> None:
    options = {"kind": "kubernetes", "template": {**TEMPLATE, "grace": grace}}
    _, found = read_pool(
        {"name": "lab", "provider": options, "task": {"stop_timeout": stop_timeout}},
        option_readers(),
    )
    assert [fault.field for fault in found] == ([] if is_enough else ["provider.template.grace"])


def test_stored_pool_with_a_short_grace_is_still_read() -> None:
    """Earlier versions accepted the configuration without this check."""
    stored = {
        "name": "lab",
        "provider": {"kind": "kubernetes", "template": {**TEMPLATE, "grace": 5}},
        "slots": ["any"],
    }
    assert read_stored("lab", json.dumps(stored)).options["template"]["grace"] == 5


def test_empty_texts_of_a_toleration_count_as_left_out() -> None:
    """Manifests that programs write have them."""
    written = {"key": "dedicated", "operator": "", "value": "ci", "effect": ""}
    once, faults = read(template={**TEMPLATE, "tolerations": [written]})
    assert faults == []
    assert once["template"]["tolerations"] == [{"key": "dedicated", "value": "ci"}]
