"""The copied commands that start an agent or send a heartbeat need only python3."""

import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pools.lifecycle.services import create_pool
from pools.models import Heartbeat, Member
from slots.api.agents import build_start_commands
from slots.members.tokens import issue_token


@pytest.fixture
def only_python(tmp_path: Path) -> dict[str, str]:
    """An environment in which a shell finds python3 and no other program."""
    program = tmp_path / "bin" / "python3"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return {"PATH": str(program.parent)}


def make_member(**config: Any) -> Member:
    create_pool({"name": "far", "members": {"list": [{"name": "a"}]}, **config})
    return Member.objects.select_related("pool").get(name="a")


def run(line: str, folder: Path, environment: dict[str, str]) -> None:
    subprocess.run(["/bin/sh", "-euc", line], cwd=folder, env=environment, check=True, timeout=60)


def test_copied_command_fetches_the_agent_with_python3_alone(
    site: str, tmp_path: Path, only_python: dict[str, str]
) -> None:
    member = make_member(provider="agents")
    fetch, keep, start = build_start_commands(f"{site}/", member, issue_token(member_id=member.pk))
    run(fetch, tmp_path, only_python)
    run(keep, tmp_path, only_python)
    assert "__main__.py" in zipfile.ZipFile(tmp_path / "berth-agent.pyz").namelist()
    assert stat.S_IMODE((tmp_path / "berth-far-a.token").stat().st_mode) == 0o600
    assert start.startswith("python3 berth-agent.pyz ")


def test_copied_command_sends_a_heartbeat_with_python3_alone(
    site: str, tmp_path: Path, only_python: dict[str, str]
) -> None:
    member = make_member(slots=1, liveness={"heartbeat": "1m"})
    assert not Heartbeat.objects.filter(member=member).exists()
    for line in build_start_commands(f"{site}/", member, issue_token(member_id=member.pk)):
        run(line, tmp_path, only_python)
    assert Heartbeat.objects.filter(member=member).exists()
