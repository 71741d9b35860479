"""Pools whose members are agents: defaults, the limits of a task, and all faults at once."""

from typing import Any

import pytest

from pools.config.layout import as_config
from pools.config.parsing import Faults
from pools.config.sizes import format_size, parse_size
from pools.config.spec import Liveness, parse_pool, read_pool
from pools.config.task_spec import DEFAULT, TASK, TaskSpec
from pools.pages import forms
from pools.providers.base import option_readers


def parse(**more: Any) -> Any:
    return parse_pool({"name": "lab", "provider": "local", **more}, option_readers())


def faults_of(**more: Any) -> dict[str, str]:
    _, found = read_pool({"name": "lab", "provider": "local", **more}, option_readers())
    return {fault.field: fault.message for fault in found}


@pytest.mark.parametrize("provider", ["local", "agents"])
def test_pool_with_agents_gets_default_layout_and_liveness(provider: str) -> None:
    spec = parse(provider=provider)
    assert as_config(spec.layout) == ["any", "plan", "plan"]
    assert spec.liveness == Liveness(120.0, 600.0)
    assert spec.task == DEFAULT
    assert "task" not in spec.as_stored()


def test_pool_without_agents_gets_neither_layout_nor_liveness() -> None:
    spec = parse(provider="static", slots=2)
    assert spec.liveness is None
    assert faults_of(provider="static") == {"slots": "The layout is missing."}


def test_given_liveness_replaces_the_default() -> None:
    spec = parse(slots=["any"], liveness={"heartbeat": "30s", "lost": "never"})
    assert spec.liveness == Liveness(30.0, None)
    assert parse_pool(spec.as_config(), option_readers()) == spec


@pytest.mark.parametrize(
    "slots",
    [
        3,
        "node",
        {"ports": "1-5", "shared": True},
        [{"class": "gpu", "count": 1, "accepts": ["train"]}],
    ],
)
def test_agents_without_a_task_slot_are_refused(slots: Any) -> None:
    assert faults_of(slots=slots) == {"slots": "Agents do tasks, and no slot here takes one."}


def test_every_fault_is_named_at_once() -> None:
    found = faults_of(
        task={
            "timeout": 5,
            "stop_timeout": "2d",
            "log": "8",
            "plan": "1GB",
            "cpu": "0s",
            "memory": "lots",
            "binary": "-chdir=/",
            "env": {"1X": "a", "BERTH_X": "b", "OK": 1},
            "git": {"hosts": ["ok.example.com", "ext::sh"]},
            "colour": "red",
        }
    )
    assert set(found) == {
        *(
            "task.timeout",
            "task.stop_timeout",
            "task.log",
            "task.plan",
            "task.cpu",
            "task.memory",
            "task.binary",
            "task.colour",
        ),
        *("task.env.1X", "task.env.BERTH_X", "task.env.OK", "task.git.hosts[1]"),
    }


def test_task_spec_round_trips_through_its_configuration() -> None:
    faults = Faults()
    given = {
        "timeout": "30m", "stop_timeout": "5m", "log": "1MB", "plan": "64kB", "cpu": "10m",
        "memory": "2GB", "binary": "/opt/tofu/bin/tofu", "env": {"TF_LOG": "INFO"},
        "git": {"hosts": ["Git.Example.com", "*.example.org:8443"]},
    }  # fmt: skip
    spec = TASK.read(given, "task", faults)
    assert faults.found == []
    assert spec == TaskSpec(
        timeout=1800.0, stop_timeout=300.0, log=10**6, plan=64_000, env={"TF_LOG": "INFO"},
        git_hosts=("git.example.com", "*.example.org:8443"),
        cpu=600.0, memory=2 * 10**9, binary="/opt/tofu/bin/tofu",
    )  # fmt: skip
    assert TASK.read(TASK.write(spec), "task", faults) == spec


@pytest.mark.parametrize(
    "binary",
    ["tofu", "terraform", "terraform-1.9", "/usr/bin/tofu", "/root/.cache/berth/tofu/1.12.6/tofu"],
)
def test_binary_may_be_a_name_or_a_path(binary: str) -> None:
    assert parse(task={"binary": binary}).task.binary == binary


NO_PROGRAMS = [
    "",
    "-v",
    "tofu plan",
    "../tofu",
    "a/../b",
    "bin/tofu",
    "/a/../b",
    "/./a",
    "/a/",
    "//a",
    "$(id)",
    "to;fu",
    "/",
]


@pytest.mark.parametrize("binary", NO_PROGRAMS)
def test_binary_that_is_neither_name_nor_path_is_refused(binary: str) -> None:
    assert list(faults_of(task={"binary": binary})) == ["task.binary"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64kB", 64_000),
        ("8MB", 8_000_000),
        ("2gb", 2 * 10**9),
        ("1.5 GB", 1_500_000_000),
        ("100B", 100),
    ],
)
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("text", ["", "8", "MB", "-1MB", "8 megs", "1e9B", "9999999999MB"])
def test_invalid_size_is_refused(text: str) -> None:
    assert parse_size(text) is None


def test_form_keeps_task_fields_that_it_does_not_show() -> None:
    before = parse(task={"env": {"A": "b"}, "timeout": "5m"}).as_config()
    shown = forms.values_of(before, parse().layout)
    assert shown["task.timeout"] == "5m"
    after = forms.preserve_unshown(
        forms.read_form({**shown, "task.timeout": "7m"}, with_members=False), before
    )
    assert after["task"]["env"] == {"A": "b"}
    assert after["task"]["timeout"] == "7m"


@pytest.mark.parametrize("text", ["--5", "-", "5-", "1" * 30, "\u0663", "0x5"])
def test_a_number_field_with_other_text_is_a_fault(text: str) -> None:
    config = forms.read_form({"name": "lab", "count": text}, with_members=False)
    assert [fault.field for fault in read_pool(config, option_readers())[1]] == ["slots"]


def test_each_fault_of_the_environment_of_local_agents_is_reported() -> None:
    found = faults_of(provider={"kind": "local", "env": {"TZ": 1, "PATH": "/x", "1A": "b"}})
    assert set(found) == {"provider.env.TZ", "provider.env.PATH", "provider.env.1A"}
