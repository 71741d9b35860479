"""The quota of sources for each user, and the disk space that sources leave free."""

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from claims.models import Source
from claims.tasks.files import sources
from claims.tasks.files.sources import SourceQuotaExceeded, count_stored, store_files
from pools.models import Pool
from project.kernel.errors import OutOfSpace
from tests.api.conftest import Callers
from tests.claims.tasks.agent_api.test_sources import tar_of, upload


def noise(number: int) -> bytes:
    """64 kB that no compression makes smaller."""
    return b"".join(hash_of(number, part) for part in range(2048))


def hash_of(*parts: int) -> bytes:
    return sources.hashlib.sha256(repr(parts).encode()).digest()


def kept_files(files: Path) -> list[Path]:
    return [path for path in files.rglob("*") if path.is_file()]


@pytest.mark.django_db
def test_an_upload_over_the_quota_of_its_user_is_refused_with_the_usage(
    pool: Pool, caller: Callers, files: Path, settings: Any
) -> None:
    settings.BERTH_SOURCE_QUOTA = 150_000
    who = caller("claimant", pool)
    first = [upload(who, tar_of(("a", noise(n)))) for n in range(2)]
    assert [status for status, _ in first] == [201, 201]
    status, refused = upload(who, tar_of(("a", noise(2))))
    used = sum(body["size"] for _, body in first)
    assert (status, refused["code"], refused["used"], refused["allowed"]) == (
        413,
        "source_quota",
        used,
        150_000,
    )
    assert "BERTH_SOURCE_QUOTA" in refused["way_out"] and "0.1 MB" in refused["detail"]
    assert len(kept_files(files)) == Source.objects.count() == 2
    assert upload(who, tar_of(("a", noise(1)))) == first[1], (
        "what is kept already takes no more room"
    )
    run = {
        "executor": "command",
        "commands": {"plan": "x"},
        "source": {"files": {"a": noise(3).hex()}},
    }
    body = {"pool": pool.name, "task": "plan", "run": run}
    assert who.post("claims/", body).status == 413
    assert upload(caller("operator", pool), tar_of(("a", noise(2))))[0] == 201, (
        "another user has a quota of their own"
    )


@pytest.mark.django_db
def test_an_upload_that_would_use_the_disk_reserve_is_refused(
    pool: Pool, caller: Callers, files: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BERTH_DISK_RESERVE = 10_000_000
    usage = shutil.disk_usage(files.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10_050_000))
    status, refused = upload(caller("claimant", pool), tar_of(("a", noise(1))))
    assert (status, refused["code"], refused["free"], refused["reserve"]) == (
        507,
        "disk_reserve",
        10_050_000,
        10_000_000,
    )
    assert not kept_files(files) and not Source.objects.exists()


@pytest.mark.django_db
def test_a_source_that_ends_within_the_disk_reserve_is_deleted_again(
    files: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another upload, at the same time, takes the room between the look and the end of
    the write.
    """
    settings.BERTH_DISK_RESERVE = 10_000_000
    usage = shutil.disk_usage(files.parent)
    monkeypatch.setattr(
        shutil,
        "disk_usage",
        lambda path: usage._replace(free=9_990_000 if kept_files(files) else 10_100_000),
    )
    with pytest.raises(OutOfSpace):
        store_files([("a", "text")], made_by="ana")
    assert not kept_files(files) and not Source.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_two_simultaneous_uploads_do_not_exceed_the_quota(
    files: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is held between count and row until the other has counted too, or waits for the lock."""
    settings.BERTH_SOURCE_QUOTA = 100_000  # for one of them
    counted, go = threading.Semaphore(0), threading.Event()
    counts = 0

    def count(made_by: str) -> int:
        nonlocal counts
        found = count_stored(made_by)
        if connection.in_atomic_block:
            counts += 1
            counted.release()
            assert go.wait(30)
        return found

    monkeypatch.setattr(sources, "count_stored", count)
    results: list[str] = []

    def add(number: int) -> None:
        try:
            store_files([("a", noise(number).hex())], made_by="ana")
            results.append("kept")
        except SourceQuotaExceeded:
            results.append("refused")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=add, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    assert counted.acquire(timeout=30)
    end = time.monotonic() + 30
    while counts < 2 and not is_waited_for() and time.monotonic() < end:
        pass
    go.set()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == ["kept", "refused"]
    assert len(kept_files(files)) == Source.objects.count() == 1


def is_waited_for() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
        )
        return bool(cursor.fetchone()[0])
