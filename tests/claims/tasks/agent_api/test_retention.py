"""Rows of a task are deleted with its claim, unused files are swept, and reseal changes the key
of everything that is sealed.
"""

import contextlib
import io
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.files.storage import InMemoryStorage
from django.core.management import call_command
from django.db import connection

from claims.lifecycle.cancel import force_release
from claims.lifecycle.chores import _CleanupCursor, delete_ended_claims
from claims.models import Approval, Claim, LogChunk, Plan, Run, Source, Task, Workspace
from claims.tasks.files import retention
from claims.tasks.files.retention import delete_unused_sources, sweep_files
from claims.tasks.files.sealed_files import read_file, save_file, storage
from claims.tasks.files.sources import store_files
from claims.tasks.logs.logs import Piece, add_log, read_text
from pools.models import Pool
from project.kernel.doctor.restore_detection import was_restored_within
from project.kernel.embedded import backup
from project.kernel.security import encryption, sealing_keys
from tests.claims.tasks.agent_api.conftest import make_claim

pytestmark = pytest.mark.django_db
OLD = (
    "UPDATE claims_claim SET created_at = now() - interval '91 d', changed_at = now() - "
    "interval '91 d'"
)


@pytest.fixture(autouse=True)
def from_the_start() -> None:
    _CleanupCursor.after = 0
    retention._SweepCursor.shelves, retention._SweepCursor.began_at = [], 0.0


@pytest.fixture(autouse=True)
def settled(db: None) -> None:
    """This database was restored long ago, if ever."""
    was_restored_within(0)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_database_place SET since = now() - interval '2 d'")


def age(files: Path, hours: float) -> None:
    then = time.time() - hours * 3600
    for path in files.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def full_claim(pool: Pool) -> Any:
    """A claim with every kind of row and file that a task may leave."""
    source = store_files([("a", "text")], made_by="ana")
    claim = make_claim(pool, "plan_and_apply", source_id=source.id)
    name = save_file("plan", f"{claim.id}-{claim.generation}", b"a plan")
    json_name = save_file("json", f"{claim.id}-{claim.generation}", b"{}")
    plan = Plan.objects.create(
        claim_id=claim.id, generation=claim.generation, digest=b"d", file=name, json_file=json_name
    )
    Approval.objects.create(plan=plan, by_user="ben", is_yes=True)
    add_log(
        claim_id=claim.id, generation=claim.generation, member_id=claim.slots[0].member_id,
        pieces=[Piece(n, f"line {n}\n") for n in range(5)], most=10**6,
    )  # fmt: skip
    return claim


def sweep() -> None:
    retention._SweepCursor.began_at = 0.0
    while sweep_files():
        pass


def test_rows_and_files_of_an_old_claim_are_deleted_in_steps(pool: Pool, files: Path) -> None:
    claim, young = full_claim(pool), make_claim(pool)
    force_release(claim_id=claim.id, reason="a test")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE claims_claim SET created_at = now() - interval '91 d', changed_at = now() - "
            "interval '91 d' WHERE id = %s",
            [claim.id],
        )
    assert delete_ended_claims(90, 3) == 3, "its log first, some at a time"
    assert LogChunk.objects.count() == 2 and Claim.objects.count() == 2
    assert delete_ended_claims(90, 3) == 1
    assert list(Claim.objects.values_list("id", flat=True)) == [young.id]
    assert not any(
        model.objects.filter(claim_id=claim.id).exists() for model in (Task, Run, Plan, LogChunk)
    )
    assert not Approval.objects.exists() and Source.objects.exists()
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    age(files, 2)
    sweep()
    assert [path.parent.parent.name for path in files.rglob("*") if path.is_file()] == ["source"]


def test_an_unsettled_lost_apply_is_not_deleted(pool: Pool) -> None:
    claim = full_claim(pool)
    force_release(claim_id=claim.id, reason="a test")
    Workspace.objects.filter(claim__pk=claim.id).update(lost_claim_id=claim.id)
    with connection.cursor() as cursor:
        cursor.execute(OLD)
    assert delete_ended_claims(90, 100) == 0


def test_only_orphan_files_older_than_an_hour_are_swept(pool: Pool, files: Path) -> None:
    claim = full_claim(pool)
    half_done = save_file("plan", f"{claim.id}-{claim.generation}", b"sent, and not told of yet")
    Run.objects.filter(claim_id=claim.id).update(facts={"files": {"plan": half_done}})
    orphans = [
        save_file("plan", "99999-1", b"x"),
        save_file("json", f"{claim.id}-7", b"x"),
        save_file("source", "ab" * 32, b"x"),
    ]
    known = {path for path in files.rglob("*") if path.is_file()}
    sweep()
    assert {path for path in files.rglob("*") if path.is_file()} == known, "they are young"
    age(files, 1.1)
    sweep()
    assert not any(storage().exists(name) for name in orphans)
    assert len([path for path in files.rglob("*") if path.is_file()]) == len(known) - len(orphans)
    assert read_file(half_done) and read_file(Plan.objects.get().file)


@pytest.mark.parametrize(
    "moved", ["server = server + 1", "database = database + 1", "timeline = '000000FF'"]
)
def test_no_file_is_swept_for_a_day_after_a_restore(files: Path, moved: str) -> None:
    orphan = save_file("plan", "99999-1", b"x")
    age(files, 2)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE kernel_database_place SET {moved}")
        sweep()
        assert storage().exists(orphan)
        cursor.execute("UPDATE kernel_database_place SET since = now() - interval '25 h'")
    sweep()
    assert not storage().exists(orphan)


def test_no_file_is_swept_while_a_dump_is_made(files: Path) -> None:
    orphan = save_file("plan", "99999-1", b"x")
    age(files, 2)
    at = urlsplit(os.environ["DATABASE_URL"])
    with backup.pause_file_sweep(at._replace(path=f"/{connection.settings_dict['NAME']}").geturl()):
        sweep()
        assert storage().exists(orphan)
    sweep()
    assert not storage().exists(orphan)


def test_unused_archives_are_deleted_after_a_day(pool: Pool, files: Path) -> None:
    full_claim(pool)
    unused = store_files([("b", "other")], made_by="ana")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE claims_source SET used_at = now() - interval '25 h'")
    store_files([("b", "other")], made_by="ben")
    delete_unused_sources()
    assert Source.objects.count() == 2, "wanted again just now"
    with connection.cursor() as cursor:
        cursor.execute("UPDATE claims_source SET used_at = now() - interval '25 h'")
    delete_unused_sources()
    assert not Source.objects.filter(pk=unused.id).exists() and Source.objects.count() == 1
    age(files, 2)
    sweep()
    assert len(list(files.rglob("source/*/*"))) == 1


def test_reseal_changes_the_key_of_files_and_logs(pool: Pool, settings: Any) -> None:
    old, new = encryption.make_key(), encryption.make_key()
    settings.BERTH_SEALING_KEYS = [old]
    claim = full_claim(pool)
    settings.BERTH_SEALING_KEYS = [new, old]
    said = io.StringIO()
    call_command("reseal", stdout=said)
    assert "files: 3 resealed" in said.getvalue() and "logs: 5 resealed" in said.getvalue()
    settings.BERTH_SEALING_KEYS = [new]
    assert (
        b"".join(read_text(claim.id, claim.generation))
        == b"line 0\nline 1\nline 2\nline 3\nline 4\n"
    )
    plan = Plan.objects.get()
    assert (read_file(plan.file), read_file(plan.json_file)) == (b"a plan", b"{}")
    again = io.StringIO()
    call_command("reseal", stdout=again)
    assert "files: 0 resealed" in again.getvalue()


def test_reseal_adds_a_key_to_the_state_folder_and_drops_old_keys(settings: Any) -> None:
    settings.BERTH_SEALING_KEYS = []
    sealed = encryption.seal(b"x")
    said = io.StringIO()
    call_command("reseal", "--new-key", stdout=said)
    assert encryption.unseal(sealed) == b"x" and not encryption.is_current(sealed)
    with pytest.raises(Exception, match="too new"):
        call_command("reseal", "--drop-old", stdout=said)
    os.utime(encryption.key_file(), (time.time() - 120,) * 2)
    call_command("reseal", "--drop-old", stdout=said)
    encryption.forget()
    assert len(encryption.read_file()) == 1
    with pytest.raises(encryption.SealError):
        encryption.unseal(sealed)
    (dropped,) = sealing_keys.read_keys(encryption.key_file().with_name("sealing-key.dropped"))
    assert f"{dropped}" not in said.getvalue() and "sealing-key.dropped" in said.getvalue()
    sealing_keys.merge_keys(encryption.key_file(), [dropped])
    encryption.forget()
    assert encryption.unseal(sealed) == b"x", "older dumps can be read with the dropped key"


class Bucket(InMemoryStorage):
    """A storage that cannot replace a file. `dies_at`: the call at which this process does."""

    calls, dies_at = 0, 0

    def _step(self) -> None:
        Bucket.calls += 1
        if Bucket.calls == Bucket.dies_at:
            raise KeyboardInterrupt

    def _save(self, name: str, content: Any) -> str:
        self._step()
        saved: str = super()._save(name, content)  # type: ignore[misc]  # not in the stubs
        self._step()
        return saved

    def delete(self, name: str) -> None:
        self._step()
        super().delete(name)
        self._step()


@pytest.mark.parametrize("dies_at", range(1, 10))
def test_an_interrupted_reseal_loses_no_file_of_a_flat_storage(
    pool: Pool, settings: Any, dies_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red where a file is deleted before its new version is written."""
    settings.STORAGES = settings.STORAGES | {
        "sealed": {"BACKEND": "tests.claims.tasks.agent_api.test_retention.Bucket"}
    }
    old, new = encryption.make_key(), encryption.make_key()
    settings.BERTH_SEALING_KEYS = [old]
    full_claim(pool)
    settings.BERTH_SEALING_KEYS = [new, old]
    monkeypatch.setattr(Bucket, "calls", 0)
    monkeypatch.setattr(Bucket, "dies_at", dies_at)

    def read_all() -> list[bytes]:
        plan, source = Plan.objects.get(), Source.objects.get()
        return [read_file(plan.file), read_file(plan.json_file), read_file(source.file)]

    before = read_all()
    with contextlib.suppress(KeyboardInterrupt):
        call_command("reseal")
    assert read_all() == before
    Bucket.dies_at = 0
    call_command("reseal")
    assert read_all() == before
    settings.BERTH_SEALING_KEYS = [new]
    assert read_all() == before, "nothing that is needed is under the old key"
