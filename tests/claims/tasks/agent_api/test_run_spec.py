"""The `run` of a claim is read as a whole; bad git URLs and paths are refused."""

import re
from typing import Any

import pytest

from claims.tasks.git_urls import host_of, is_git_url, is_host_allowed
from claims.tasks.run_spec import RUN_SCHEMA, RunRequest, read_run
from claims.tasks.source_paths import why_not_path
from pools.config.parsing import Faults

COMMANDS = {"plan": "./plan.sh", "apply": "./apply.sh"}
GOOD = {
    "executor": "command", "commands": COMMANDS,
    "source": {"files": {"plan.sh": "#!/bin/sh\n", "lib/a.txt": "a"}},
    "variables": {"region": "eu-1", "count": 3}, "env": {"TF_LOG": "INFO"},
    "secrets": ["DB_PASSWORD"], "timeout": "30m",
}  # fmt: skip


def read(value: Any, task: str = "plan_and_apply") -> tuple[RunRequest | None, list[str]]:
    faults = Faults()
    run = read_run(value, "run", task, faults)
    return run, [fault.field for fault in faults.found]


def test_a_complete_run_spec_is_read() -> None:
    run, faults = read(GOOD)
    assert run is not None and not faults
    assert run.as_body() == {
        "commands": COMMANDS, "source": {"kind": "archive"},
        "variables": {"region": "eu-1", "count": 3}, "env": {"TF_LOG": "INFO"},
        "secrets": ["DB_PASSWORD"], "timeout": 1800.0,
    }  # fmt: skip
    assert run.source.files == (("lib/a.txt", "a"), ("plan.sh", "#!/bin/sh\n"))


def test_the_digest_covers_every_field_of_the_run() -> None:
    first = read(GOOD)[0]
    again = read({**GOOD, "variables": {"count": 3, "region": "eu-1"}})[0]
    assert first and again and first.digest() == again.digest()
    changed = [
        {"commands": {**COMMANDS, "plan": "./other.sh"}},
        {"source": {"files": {"plan.sh": "other", "lib/a.txt": "a"}}}, {"env": {}}, {"secrets": []},
        {"timeout": "31m"}, {"variables": {"count": 4}},
    ]  # fmt: skip
    found = {run.digest() for change in changed if (run := read({**GOOD, **change})[0])}
    assert len(found | {first.digest()}) == len(changed) + 1


def test_terraform_requires_files_and_refuses_commands() -> None:
    run, faults = read(
        {"executor": "terraform", "source": {"files": {"main.tf": ""}}, "binary": "terraform"}
    )
    assert run and not faults and run.binary == "terraform"
    assert read({"executor": "terraform"})[1] == ["run.source"]
    assert read(
        {"executor": "terraform", "commands": COMMANDS, "source": {"files": {"main.tf": ""}}}
    )[1] == ["run.commands"]


def test_only_a_terraform_apply_may_discard_its_state() -> None:
    module = {"executor": "terraform", "source": {"files": {"main.tf": ""}}}
    run, faults = read({**module, "state": "discard"})
    assert run is not None and not faults and run.as_body()["state"] == "discard"
    plain = read(module)[0]
    assert plain is not None and "state" not in plain.as_body() and plain.digest() != run.digest()
    assert read({**module, "state": "keep"})[1] == ["run.state"]
    assert read({**module, "state": True})[1] == ["run.state"]
    assert read({**module, "state": "discard"}, "plan")[1] == ["run.state"]
    assert read({**GOOD, "state": "discard"})[1] == ["run.state"]


def test_a_plan_only_run_refuses_an_apply_command() -> None:
    assert read({"executor": "command", "commands": {"plan": "x"}}, "plan")[1] == []
    assert read({"executor": "command", "commands": COMMANDS}, "drift_check")[1] == [
        "run.commands.apply"
    ]
    assert read({"executor": "command", "commands": {"plan": "x"}})[1] == ["run.commands.apply"]


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"executor": None}, ["executor"]),
        ({"executor": "bash"}, ["executor"]),
        ({"odd": 1}, ["odd"]),
        ({"commands": {"plan": "", "apply": 5}}, ["commands.plan", "commands.apply"]),
        ({"commands": {"plan": "x\x00", "apply": "y"}}, ["commands.plan"]),
        ({"commands": {**COMMANDS, "destroy": "z"}}, ["commands.destroy"]),
        ({"commands": "make"}, ["commands", "commands.plan", "commands.apply"]),
        ({"source": {"files": {"a": "1"}, "archive": "ab" * 32}}, ["source"]),
        ({"source": {"archive": "AB" * 32}}, ["source.archive"]),
        ({"source": {"files": {}}}, ["source.files"]),
        (
            {"source": {"files": {"../a": "1", "/b": "1", "c": 5}}},
            ["source.files.../a", "source.files./b", "source.files.c"],
        ),
        ({"source": {"files": {"a": "1", "a/b": "1"}}}, ["source.files.a"]),
        ({"source": {"files": {"a": "x" * 1_000_001}}}, ["source.files"]),
        ({"source": {"path": "x"}}, ["source.path"]),
        ({"source": {"archive": "ab" * 32, "path": "../x"}}, ["source.path"]),
        ({"source": {"git": {"url": "ext::sh -c x"}}}, ["source.git.url"]),
        ({"source": {"git": {}}}, ["source.git.url"]),
        ({"source": {"git": {"url": "https://h/x", "ref": "--upload-pack=x"}}}, ["source.git.ref"]),
        ({"source": {"git": {"url": "https://h/x", "ref": "a..b"}}}, ["source.git.ref"]),
        ({"source": {"git": {"url": "https://h/x", "path": "/etc"}}}, ["source.git.path"]),
        ({"binary": "tofu"}, ["binary"]),
        ({"variables": []}, ["variables"]),
        ({"variables": {"a b": 1}}, ["variables.a b"]),
        ({"variables": {"a": "x" * 70_000}}, ["variables"]),
        ({"env": {"BERTH_X": "1", "1A": "2"}}, ["env.BERTH_X", "env.1A"]),
        ({"secrets": "DB"}, ["secrets"]),
        ({"secrets": ["hunter 2", "BERTH_X", 5]}, ["secrets[0]", "secrets[1]", "secrets[2]"]),
        ({"timeout": "25h"}, ["timeout"]),
        ({"timeout": 60}, ["timeout"]),
    ],
)
def test_every_fault_of_a_run_is_named(change: dict[str, Any], fields: list[str]) -> None:
    assert read({**GOOD, **change})[1] == [f"run.{field}" for field in fields]


def test_a_value_that_may_be_a_secret_is_not_repeated() -> None:
    faults = Faults()
    read_run({**GOOD, "secrets": ["hunter2 is my password"]}, "run", "plan_and_apply", faults)
    assert "hunter2" not in str(faults.found)


@pytest.mark.parametrize("value", [5, "x", [], True])
def test_a_run_that_is_no_mapping_is_refused(value: Any) -> None:
    assert read(value) == (None, ["run"])


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://git.example.com/team/net.git", "git.example.com"),
        ("ssh://git@git.example.com:2222/team/net.git", "git.example.com:2222"),
        ("git@git.example.com:team/net.git", "git.example.com"),
        ("https://GIT.example.com:8443/x", "git.example.com:8443"),
    ],
)
def test_valid_git_urls_are_accepted_with_their_host(url: str, host: str) -> None:
    assert is_git_url(url) and host_of(url) == host


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "http://h/x",
        "git://h/x",
        "file:///etc/passwd",
        "/etc/passwd",
        "../x",
        "ext::sh -c id",
        "ext::https://h/x",
        "-oProxyCommand=x",
        "--upload-pack=x",
        "https://user:pass@h/x",
        "https://user@h/x",
        "https://h",
        "https://h/",
        "https://h/x?y=1",
        "https://h/x#y",
        "https://-h/x",
        "ssh://-oProxyCommand=x/y",
        "ssh://-x@h/y",
        "git@-h:x",
        "git@h:-x",
        "git@h:../../x",
        "https://h/x y",
        "https://h/\nx",
        "https://ü/x",
        "https://h:0/x",
        "https://h:99999/x",
        "https://h/" + "x" * 600,
        "fd::3/x",
        "https://h\\@evil/x",
        None,
        5,
        ["https://h/x"],
    ],
)
def test_unsafe_git_urls_are_refused(url: Any) -> None:
    assert not is_git_url(url)


def test_git_hosts_are_allowed_by_name_port_and_wildcard() -> None:
    allowed = ("git.example.com", "other.example.com:2222", "*.team.example")
    assert all(
        is_host_allowed(host, allowed)
        for host in (
            "git.example.com",
            "other.example.com:2222",
            "a.team.example",
            "a.b.team.example",
        )
    )
    wrong = (
        "example.com",
        "evilgit.example.com",
        "git.example.com:2222",
        "other.example.com",
        "team.example",
        ".team.example",
        "a.team.example:22",
        "",
    )
    assert not any(is_host_allowed(host, allowed) for host in wrong)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/a",
        "../a",
        "a/../b",
        "a//b",
        "./a",
        "a/.",
        "a\\b",
        "a\nb",
        "a\x00b",
        "x" * 1025,
        "/".join("x" * 65),
    ],
)
def test_unsafe_paths_are_refused(path: str) -> None:
    assert why_not_path(path)


@pytest.mark.parametrize(
    ("ref", "is_valid"),
    [
        ("main", True), ("release/v1.2", True), ("a.locked", True), ("x" * 200, True),
        ("x" * 201, False), ("a..b", False), ("a/", False), ("a.lock", False), ("-x", False),
        ("a\n", False),
    ],
)  # fmt: skip
def test_a_git_ref_is_accepted_in_the_form_that_its_schema_shows(ref: str, is_valid: bool) -> None:
    schema = RUN_SCHEMA["properties"]["source"]["properties"]["git"]["properties"]["ref"]
    is_shown = len(ref) <= schema["maxLength"] and bool(re.search(schema["pattern"], ref))
    _, faults = read({**GOOD, "source": {"git": {"url": "https://h/x", "ref": ref}}})
    assert (not faults) is is_valid
    assert is_shown is is_valid or ref.endswith("\n")  # `$` of Python ends before a line feed
    assert "(?<" not in schema["pattern"], "a lookbehind, which other languages do not know"
