"""The form of a Kubernetes pool reads and shows its fields and keeps the ones that it does not
show.
"""

from typing import Any

import pytest

from pools.config.spec import parse_pool
from pools.pages import forms
from pools.pages.provider_form import list_fields, read_provider
from pools.providers.base import option_readers
from project.kernel.errors import FieldError

FILLED = {
    "name": "infra", "provider": "kubernetes", "form": "tasks", "tasks": "any, plan",
    "provider.kubernetes.context": "prod", "provider.kubernetes.namespace": "agents",
    "provider.kubernetes.url": "",
    "provider.kubernetes.template.image": "registry.example/agent:1",
    "provider.kubernetes.template.service_account": "",
}  # fmt: skip


def test_filled_form_is_read_as_a_pool() -> None:
    spec = parse_pool(forms.read_form(FILLED, with_members=True), option_readers())
    assert spec.provider == "kubernetes"
    assert (spec.options["context"], spec.options["namespace"]) == ("prod", "agents")
    assert spec.options["template"]["image"] == "registry.example/agent:1"


def test_form_shows_the_configuration_and_returns_it() -> None:
    spec = parse_pool(forms.read_form(FILLED, with_members=True), option_readers())
    shown = forms.values_of(spec.as_config(), spec.layout)
    names = [field.name for field in list_fields("kubernetes")]
    assert len(names) == 5
    assert {name: shown[name] for name in names} == {name: FILLED[name] for name in names}
    before = spec.as_config()["provider"]
    assert read_provider("kubernetes", shown, before) == before


def test_form_keeps_hidden_fields_and_removes_emptied_ones() -> None:
    before: dict[str, Any] = {
        "kind": "kubernetes",
        "namespace": "agents",
        "template": {"image": "a:1", "grace": 60, "env": {"A": "b"}},
    }
    filled = {"provider.kubernetes.namespace": "", "provider.kubernetes.template.image": "a:2"}
    after = read_provider("kubernetes", filled, before)
    assert after == {
        "kind": "kubernetes",
        "template": {"image": "a:2", "grace": 60, "env": {"A": "b"}},
    }
    assert (before["namespace"], before["template"]["image"]) == ("agents", "a:1")


@pytest.mark.parametrize(
    ("field", "shown_at"),
    [
        ("provider.template.image", "provider.kubernetes.template.image"),
        ("provider.template.resources.limits", ""),
        ("provider.kind", ""),
    ],
    ids=["asked for", "not required", "kind"],
)
def test_fault_is_shown_at_its_field_or_above_the_form(field: str, shown_at: str) -> None:
    assert forms.field_for(FieldError(field, "wrong"), "tasks", "kubernetes") == shown_at


def test_pod_fields_are_shown_for_kubernetes_pools() -> None:
    asked = {section.title: section.provider for section in forms.sections({}, [])}
    assert asked["Pods"] == "kubernetes", "shown where that provider is chosen"
    assert "Pods" not in [section.title for section in forms.sections({}, [], provider="local")]
    asked = {
        section.title: section.provider for section in forms.sections({}, [], provider="kubernetes")
    }
    assert asked["Pods"] == "", "nothing on the page chooses the provider: always shown"
    allowed = forms.sections({}, [], allowed=["static", "local"])
    assert "Pods" not in [section.title for section in allowed]
