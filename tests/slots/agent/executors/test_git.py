"""Git sources: refused addresses and refs, and a real fetch over an `ssh` that ends on this
machine.
"""

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from slots.agent.common.errors import TaskFailed
from slots.agent.executors.git import ENVIRONMENT, HELPER, check_path, check_ref, check_url, failure
from slots.agent.executors.job import Job
from slots.agent.logs.masking import mask_text
from tests.slots.agent.conftest import Agent
from tests.slots.agent.fake_berth import Server

from .git_history import make_history

pytestmark = pytest.mark.oldest_python

HOSTS = ("git.example", "*.corp.example")


@pytest.mark.parametrize(
    "url",
    [
        "https://git.example/a/b.git",
        "https://git.example:443/a",
        "ssh://git@git.example/a",
        "git@git.example:a/b.git",
        "https://x.corp.example/a",
        "https://GIT.example/a",
    ],
)
def test_valid_git_address_is_accepted(url: str) -> None:
    check_url(url, HOSTS)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "ext::sh -c id",
            "ext::git.example:x",
            "file:///etc",
            "/etc",
            "../x",
            "http://git.example/a",
            "git://git.example/a",
            "ftp://git.example/a",
        ),
        *(
            "https://other.example/a",
            "https://corp.example/a",
            "https://git.example.evil/a",
            "https://evil/git.example",
            "https://git.example@evil/a",
        ),
        *(
            "https://u:p@git.example/a",
            "https://token@git.example/a",
            "ssh://-oProxyCommand=id@git.example/a",
            "-oProxyCommand=id",
            "ssh://-x/a",
        ),
        *(
            "https://git.example/a b",
            "https://git.example/\na",
            "https:///a",
            "",
            "-u:x",
            "evil:a/b",
            "git.example",
            "ssh://git.example.evil/x",
        ),
    ],
)
def test_invalid_git_address_is_refused(url: str) -> None:
    with pytest.raises(TaskFailed) as caught:
        check_url(url, HOSTS)
    assert caught.value.code == "source_refused"


def test_git_host_is_allowed_only_if_named() -> None:
    with pytest.raises(TaskFailed, match="none"):
        check_url("https://git.example/a", ())
    with pytest.raises(TaskFailed) as caught:
        check_url("https://git.example/a", ("git.other",))
    assert caught.value.code == "source_refused"
    check_url("https://git.example/a", ("git.other", "git.example"))


@pytest.mark.parametrize("ref", ["main", "v1.2.3", "feature/x-1", "a" * 40, "refs/heads/main"])
def test_valid_git_ref_is_accepted(ref: str) -> None:
    check_ref(ref)


@pytest.mark.parametrize(
    "ref",
    [
        "--upload-pack=id",
        "-x",
        "a..b",
        "a b",
        "a:b",
        "+a",
        "a\n",
        "refs/*",
        "a.lock",
        "a/",
        "@{1}",
        "a@{1}",
        "",
        "^a",
        "a" * 300,
    ],
)
def test_invalid_git_ref_is_refused(ref: str) -> None:
    with pytest.raises(TaskFailed):
        check_ref(ref)


def test_git_password_comes_from_the_secrets_only() -> None:
    def ask(**secrets: str) -> str:
        env = {**os.environ, **ENVIRONMENT, **secrets}
        command = ["git", "-c", f"credential.helper={HELPER}", "credential", "fill"]
        text = "protocol=https\nhost=git.example\n\n"
        return subprocess.run(
            command, input=text, env=env, capture_output=True, text=True, check=False
        ).stdout

    assert "password=hunter2\n" in ask(GIT_PASSWORD="hunter2") and "username=git\n" in ask(
        GIT_PASSWORD="hunter2"
    )
    assert "username=bot\n" in ask(GIT_PASSWORD="hunter2", GIT_USERNAME="bot")
    assert "password" not in ask()


def test_source_path_is_normalised_or_refused() -> None:
    assert check_path("./a//b/") == "a/b"
    for path in ("../a", "a/../..", "/a", "a\0b"):
        with pytest.raises(TaskFailed):
            check_path(path)


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository that `ssh git.example` reaches, with a link out of it."""
    work = tmp_path / "origin"
    work.mkdir()
    (work / "out").symlink_to("/etc")
    make_history(work, tmp_path)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    ssh = bin_ / "ssh"
    ssh.write_text('#!/bin/sh\nfor word; do command=$word; done\nexec sh -c "$command"\n')
    ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
    return work


@pytest.fixture
def git_agent(start_agent: Callable[..., Agent], origin: Path, tmp_path: Path) -> Agent:
    return start_agent(env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})


def source(origin: Path, ref: str = "main", path: str = "infra") -> dict[str, str]:
    return {"kind": "git", "url": f"ssh://git@git.example{origin}", "ref": ref, "path": path}


def test_branch_is_fetched_and_an_earlier_commit_too(
    server: Server, git_agent: Agent, origin: Path, tmp_path: Path
) -> None:
    first = (tmp_path / "first").read_text()
    server.order(
        1, 10, commands={"plan": "cat a.txt"}, source=source(origin), git_hosts=["git.example"]
    )
    planned = server.result(1, 10)
    assert planned["outcome"] == "planned", server.log(1, 10)
    assert "second\n" in server.log(1, 10)
    assert planned["facts"]["commit"] != first
    server.order(
        2,
        20,
        commands={"plan": "cat a.txt"},
        source=source(origin, first),
        git_hosts=["git.example"],
    )
    planned = server.result(2, 20)
    assert (planned["outcome"], planned["facts"]["commit"]) == ("planned", first), server.log(2, 20)
    assert "first\n" in server.log(2, 20)


@pytest.mark.parametrize(
    ("ref", "path", "hosts", "code"),
    [
        ("gone", "infra", ["git.example"], "git_ref_gone"),
        ("f" * 40, "infra", ["git.example"], "git_ref_gone"),
        ("--upload-pack=id", "infra", ["git.example"], "source_refused"),
        ("main", "out", ["git.example"], "source_refused"),
        ("main", "nowhere", ["git.example"], "source_failed"),
        ("main", "infra", [], "source_refused"),
    ],
)
def test_unavailable_git_source_fails_the_plan_with_a_code(
    ref: str, path: str, hosts: list[str], code: str, server: Server, git_agent: Agent, origin: Path
) -> None:
    server.order(
        1, 10, commands={"plan": "cat a.txt"}, source=source(origin, ref, path), git_hosts=hosts
    )
    result = server.result(1, 10)
    assert (result["outcome"], result["code"]) == ("failed", code), server.log(1, 10)


def test_apply_on_another_agent_uses_the_planned_commit(
    server: Server, git_agent: Agent, origin: Path, tmp_path: Path
) -> None:
    work = {
        "commands": {"plan": "cat a.txt", "apply": "cat a.txt"},
        "source": source(origin),
        "git_hosts": ["git.example"],
    }
    first = (tmp_path / "first").read_text()
    server.keep = False
    server.order(1, 10, **{**work, "source": source(origin, first)})
    planned = server.result(1, 10)
    plan = {"digest": planned["digest"], "size": 0, "facts": planned["facts"], "has_file": False}
    server.order(1, 11, "apply", plan=plan, **work)  # the branch has moved on by now
    assert server.result(1, 11)["outcome"] == "applied", server.log(1, 11)
    assert "first\n" in server.log(1, 11)


def test_git_output_is_masked_before_it_is_truncated() -> None:
    secrets = [b"hunter2hunter2"]
    job = SimpleNamespace(
        tail=b"fatal: " + b"x" * 350 + b" hunter2hunter2",
        clean=lambda text: mask_text(text, secrets),
    )
    assert "hunt" not in failure(cast("Job", job), "main").reason
