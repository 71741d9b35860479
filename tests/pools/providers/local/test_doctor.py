"""The doctor's checks of agents on this machine and of files beside the database."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from claims.checks.files import find_missing_files
from claims.models import Claim, Plan, Shape, Source, Task
from claims.tasks.files.sealed_files import delete_file, save_file
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from pools.providers.base import MemberSnapshot
from pools.providers.local.agent_folder import folder_of, remove
from pools.providers.local.provider import LocalProvider
from project.kernel.embedded import detached
from slots.doctor.checks import find_agents_without_members, find_differences_outside
from slots.members.selectors import snapshot_of
from slots.sync.strays import read_strays
from slots.sync.watcher import observe_pool
from tests.pools.providers.local.helpers import own_home, processes_of
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def home(settings: Any, tmp_path: Path) -> Iterator[Path]:
    with own_home(settings, tmp_path) as home:
        yield home


def test_agent_without_a_member_is_ended_with_its_folder(home: Path) -> None:
    create_pool({"name": "lab", "provider": "local", "members": {"list": ["a"]}})
    found = snapshot_of(Member.objects.get().pk)
    assert found is not None
    pool, member = found
    LocalProvider().sync(pool, replace(member, token="berthm_1_x"))
    assert list(find_agents_without_members()) == []
    wait_until(lambda: len(processes_of(home)) == 3)
    Member.objects.update(state="deleting")
    Member.objects.update(state="gone")
    (finding,) = find_agents_without_members()
    assert finding.fix is not None
    finding.fix()
    assert processes_of(home) == []
    assert list(find_agents_without_members()) == []


def agent_of_a_gone_member(home: Path) -> tuple[Pool, MemberSnapshot, Path]:
    """A call of `sync` that came late has started it."""
    pool = create_pool({"name": "lab", "provider": "local", "members": {"list": ["a-b"]}})
    create_pool({"name": "lab-a", "provider": "local", "members": {"max": 1}})
    Pool.objects.update(state="active")
    found = snapshot_of(Member.objects.get().pk)
    assert found is not None
    snapshot, member = found
    LocalProvider().sync(snapshot, replace(member, token="berthm_1_x"))
    wait_until(lambda: len(processes_of(home)) == 3)
    assert list(find_differences_outside()) == []
    Member.objects.update(state="deleting")
    Member.objects.update(state="gone")
    return pool, member, folder_of(snapshot, member)


def strays_of(pool: Pool) -> list[str]:
    pool.refresh_from_db()
    return [stray.name for stray in read_strays(pool)]


@pytest.mark.django_db(transaction=True)
def test_running_agent_of_a_gone_member_is_found_and_left_running(home: Path) -> None:
    pool, _, folder = agent_of_a_gone_member(home)
    assert [each.subject for each in find_differences_outside()] == [
        f"agent {folder.name} of pool lab"
    ], "and not of the pool lab-a, with which its name begins"
    observe_pool(pool)
    assert strays_of(pool) == [f"agent {folder.name}"]
    assert len(processes_of(home)) == 3
    remove(folder)
    observe_pool(pool)
    assert strays_of(pool) == [] == list(find_differences_outside())


@pytest.mark.django_db(transaction=True)
def test_folder_of_an_ended_agent_of_a_gone_member_is_removed(home: Path) -> None:
    pool, _, folder = agent_of_a_gone_member(home)
    process = detached.read(folder)
    assert process is not None
    assert detached.end(process, 5.0)
    observe_pool(pool)
    assert not folder.exists()
    observe_pool(pool)
    assert strays_of(pool) == []


@pytest.mark.django_db(transaction=True)
def test_agent_of_an_unknown_member_is_found_and_never_removed(home: Path) -> None:
    """The database is an older copy."""
    pool, member, folder = agent_of_a_gone_member(home)
    process = detached.read(folder)
    assert process is not None
    assert detached.end(process, 5.0)
    later = folder.rename(folder.with_name(f"lab-a-b.{member.id + 5000}"))
    (found,) = find_differences_outside()
    assert (found.subject, found.fix) == (f"agent {later.name} of pool lab", None)
    observe_pool(pool)
    assert later.exists()
    assert strays_of(pool) == [f"agent {later.name}"]


def a_claim(file: str) -> Claim:
    shape = Shape.objects.create(digest=file.encode(), pools=["lab"], kind="plan")
    return Claim.objects.create(shape=shape)


def test_missing_files_of_a_claim_are_found() -> None:
    source = save_file("source", "ab" * 32, b"files")
    plan = save_file("plan", "1-2", b"saved")
    claim = a_claim(plan)
    Task.objects.create(
        claim=claim,
        executor="command",
        source=Source.objects.create(digest=b"x", file=source, size=5, files=1, made_by="ana"),
    )
    Plan.objects.create(claim=claim, generation=2, digest=b"d", file=plan)
    assert list(find_missing_files()) == []
    delete_file(plan)
    (finding,) = find_missing_files()
    assert f"the saved plan of claim {claim.pk}" in finding.detail
    delete_file(source)
    assert len(list(find_missing_files())) == 2


def test_files_sealed_with_another_key_are_named(settings: Any) -> None:
    claim = a_claim("k")
    settings.BERTH_SEALING_KEYS = [Fernet.generate_key().decode()]
    Plan.objects.create(
        claim=claim, generation=2, digest=b"d", file=save_file("plan", "3-4", b"saved")
    )
    assert list(find_missing_files()) == []
    settings.BERTH_SEALING_KEYS = [Fernet.generate_key().decode()]
    (finding,) = find_missing_files()
    assert "can't be opened here" in finding.detail
