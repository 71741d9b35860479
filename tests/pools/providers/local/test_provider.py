"""Local agents as processes: started once, found again, observed, and ended with all their
processes.
"""

import json
import os
import shutil
import signal
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pools.providers import member_folders
from pools.providers.base import Seen, SlotSnapshot
from pools.providers.local import agent_folder
from pools.providers.local.provider import LocalProvider
from project.kernel.embedded import detached
from project.kernel.outbox.operations import ConflictError, NotFoundOutside, ProviderError
from tests.pools.providers.local.helpers import (
    POOL,
    folder,
    is_up,
    member,
    own_home,
    processes_of,
)
from tests.waiting import wait_until

DRAINS = SlotSnapshot(11, "plan", 1, "draining", last_claim_id=3, generation=5)


@pytest.fixture(autouse=True)
def home(settings: Any, tmp_path: Path) -> Iterator[Path]:
    with own_home(settings, tmp_path) as home:
        yield home


@pytest.fixture
def provider() -> LocalProvider:
    return LocalProvider()


def start(provider: LocalProvider, **more: Any) -> int:
    """Starts an agent and waits until it is up; its process id."""
    provider.sync(POOL, member(**more))
    return int(wait_until(is_up, "it does not come up"))


def see(provider: LocalProvider, state: str = "ready", **more: Any) -> Seen:
    (seen,) = provider.look(replace(POOL, members=(member(state, **more),))).seen
    return seen


def test_agent_runs_in_its_own_session_with_private_files(
    provider: LocalProvider,
) -> None:
    pid = start(provider)
    assert os.getsid(pid) == pid
    assert stat.S_IMODE(folder().stat().st_mode) == 0o700
    assert stat.S_IMODE((folder() / "token-1").stat().st_mode) == 0o600
    assert (folder() / "token").read_text() == "berthm_1_x\n"
    assert b"berthm_1_x" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert b"berthm_1_x" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_agent_environment_contains_no_secrets(
    provider: LocalProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("SECRET_KEY", "secret")
    environment = Path(f"/proc/{start(provider)}/environ").read_bytes()
    assert b"secret" not in environment
    assert b"PATH=" in environment


def test_second_start_of_an_agent_changes_nothing(provider: LocalProvider) -> None:
    pid = start(provider)
    report = provider.sync(POOL, member())
    assert (report.down, report.is_ready, is_up()) == ("", False, pid)
    assert len(processes_of(folder().parent.parent)) == 3


def test_unrecorded_agent_process_is_found_and_adopted(provider: LocalProvider) -> None:
    pid = start(provider)
    (folder() / detached.RECORD).unlink()
    assert see(provider, "creating").why == "its agent has not connected yet"
    provider.sync(POOL, member())
    assert is_up() == pid


def test_token_is_needed_once_per_incarnation(provider: LocalProvider) -> None:
    assert provider.needs_token(POOL, member())
    with pytest.raises(ProviderError, match="no token"):
        provider.sync(POOL, member(token=""))
    start(provider)
    assert not provider.needs_token(POOL, member())
    assert provider.needs_token(POOL, member(incarnation=2))
    assert not provider.needs_token(POOL, member("ready", incarnation=2))


def test_concurrent_starts_run_one_agent(provider: LocalProvider) -> None:
    folder().mkdir(parents=True)
    with member_folders.start_lock(folder()), pytest.raises(ConflictError):
        provider.sync(POOL, member())
    assert processes_of(folder().parent.parent) == []
    start(provider)


def test_look_reports_starting_ready_and_dead_agents(provider: LocalProvider) -> None:
    assert see(provider, "creating") == Seen(
        1, False, folder().name, "its agent has not been started yet"
    )
    pid = start(provider)
    assert (see(provider, "creating").is_ready, see(provider).is_ready) == (False, True)
    os.kill(pid, signal.SIGKILL)
    seen = wait_until(lambda: not (found := see(provider)).is_ready and found)
    assert (seen.is_down, seen.is_planned, seen.why) == (True, False, "its process has ended")


def test_reused_process_id_is_not_taken_for_the_agent(
    provider: LocalProvider,
) -> None:
    start(provider)
    process = detached.read(folder())
    assert process is not None
    detached.adopt(folder(), replace(process, pid=os.getpid(), started="1"))
    os.kill(process.pid, signal.SIGKILL)
    assert wait_until(lambda: see(provider).is_down)
    agent_folder.remove(folder())  # and we live on


def test_agent_ended_by_sigterm_counts_as_planned(provider: LocalProvider) -> None:
    os.kill(start(provider), signal.SIGTERM)
    seen = wait_until(lambda: not (found := see(provider)).is_ready and found)
    assert (seen.is_planned, seen.why) == (True, "it was asked to end")


@pytest.mark.parametrize(("state", "planned"), [("offline", True), ("creating", False)])
def test_agent_that_heard_nothing_is_planned_only_after_it_was_ready(
    provider: LocalProvider, state: str, planned: bool
) -> None:
    pid = start(provider)
    os.kill(pid, signal.SIGKILL)
    (folder() / "ended.json").write_text(json.dumps({"why": "away", "pid": pid}))
    seen = wait_until(lambda: (found := see(provider, state)).is_down and found)
    assert (seen.is_planned, seen.why) == (planned, "it had no contact to Berth for long")


def test_reboot_of_the_machine_counts_as_planned(provider: LocalProvider) -> None:
    start(provider)
    process = detached.read(folder())
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    detached.adopt(folder(), replace(process, boot="another"))
    seen = wait_until(lambda: not (found := see(provider)).is_ready and found)
    assert (seen.is_down, seen.is_planned) == (True, True)


def test_dead_agent_is_not_restarted_in_the_same_incarnation(provider: LocalProvider) -> None:
    os.kill(start(provider), signal.SIGKILL)
    report = wait_until(lambda: (found := provider.sync(POOL, member())).down and found)
    assert (report.down, report.is_planned) == ("its process has ended", False)
    assert not is_up()


def test_next_incarnation_replaces_the_previous_one(provider: LocalProvider) -> None:
    first = start(provider)
    child = int((folder() / "child").read_text())
    second = start(provider, incarnation=2, token="berthm_1_y")
    assert first != second
    assert not detached.start_time(first) and not detached.start_time(child)
    assert [file.name for file in sorted(folder().glob("token-*"))] == ["token-2"]


def test_processes_of_a_dead_agent_end_before_its_slots_are_clean(
    provider: LocalProvider,
) -> None:
    pid = start(provider)
    children = [int((folder() / name).read_text()) for name in ("child", "outsider")]
    ready = member("ready", slots=[DRAINS])
    assert provider.sync(POOL, ready).clean == frozenset()
    os.kill(pid, signal.SIGKILL)
    report = wait_until(lambda: (found := provider.sync(POOL, ready)).down and found)
    assert report.clean == {DRAINS.id}
    assert not any(map(detached.start_time, children))


def test_deleted_agent_is_removed_with_its_folder_and_processes(
    provider: LocalProvider, home: Path
) -> None:
    pid = start(provider)
    child = int((folder() / "child").read_text())
    for _ in range(2):
        assert provider.sync(POOL, member("deleting")).is_gone
    assert not folder().exists()
    assert processes_of(home) == []
    assert not detached.start_time(pid) and not detached.start_time(child)
    assert provider.look(replace(POOL, members=(member("deleting"),))).seen == ()


def test_agent_that_ignores_sigterm_is_killed(
    provider: LocalProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_folder, "PATIENCE", 0.3)
    pid = start(provider)
    (folder() / "stubborn").touch()
    assert provider.sync(POOL, member("deleting")).is_gone
    assert not detached.start_time(pid)


def test_dead_agent_without_its_folder_is_down_and_not_gone(provider: LocalProvider) -> None:
    os.kill(start(provider), signal.SIGKILL)
    shutil.rmtree(folder())
    assert wait_until(lambda: see(provider).is_down)
    with pytest.raises(NotFoundOutside):
        provider.sync(POOL, member("ready"))


def test_agent_log_is_rotated_and_private(
    provider: LocalProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder().mkdir(parents=True)
    monkeypatch.setattr("project.kernel.embedded.process.LONGEST_LOG", 10)
    (folder() / "agent.log").write_text("more than ten bytes\n")
    start(provider)
    assert (folder() / "agent.log.old").read_text() == "more than ten bytes\n"
    assert stat.S_IMODE((folder() / "agent.log").stat().st_mode) == 0o600


def test_similar_names_have_different_folders() -> None:
    one = agent_folder.folder_of(replace(POOL, name="a-b"), replace(member(number=1), name="c"))
    other = agent_folder.folder_of(replace(POOL, name="a"), replace(member(number=2), name="b-c"))
    assert one != other
    assert (member_folders.member_of(one), member_folders.member_of(other)) == (1, 2)
