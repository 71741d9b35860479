"""A full disk leads to plain refusals without a traceback and no partial file; Berth recovers
once there is room.
"""

import errno
import hashlib
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from project.kernel.http.problems import describe
from tests.api.conftest import Callers, caller
from tests.claims.tasks.agent_api.conftest import agent_of, fresh_ears, make_agents, make_claim
from tests.claims.tasks.agent_api.test_sources import tar_of

__all__ = ["caller", "fresh_ears"]

pytestmark = pytest.mark.django_db
MB = 1_000_000


@pytest.fixture
def small_disk(tmp_path: Path, settings: Any) -> Iterator[Path]:
    """Where sealed files are kept: a real filesystem of 4 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() or mount is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small filesystem needs root")
    settings.STORAGES = settings.STORAGES | {
        "sealed": {
            "BACKEND": "claims.tasks.files.sealed_files.DurableStorage",
            "OPTIONS": {"location": folder / "files"},
        }
    }
    settings.BERTH_DISK_RESERVE = None
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> Path:
    """To the last byte."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 100_000)
    return filler


def list_files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "files").rglob("*") if path.is_file())


def refuses_plainly(caplog: pytest.LogCaptureFixture) -> None:
    assert not [record for record in caplog.records if record.exc_info], (
        "no traceback for what is known"
    )
    assert [
        record
        for record in caplog.records
        if record.levelno == logging.WARNING and "full" in record.getMessage()
    ]


def test_plan_is_refused_with_507_and_accepted_once_there_is_room(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pool = make_agents()
    agent, claim = agent_of(pool.members.get()), make_claim(pool)
    plan = os.urandom(MB)
    sent = {
        "Berth-Digest": hashlib.sha256(plan).hexdigest(),
        "Authorization": f"Bearer {agent.secret}",
    }
    where = f"/api/v1/agent/tasks/{claim.id}/{claim.generation}/plan/"

    def put() -> Any:
        return Client().put(where, plan, content_type="application/octet-stream", headers=sent)

    filler = fill(small_disk)
    refused = put()
    assert (refused.status_code, refused.json()["code"]) == (507, "disk_full")
    assert int(refused["Retry-After"]) > 1
    assert list_files(small_disk) == [], "nothing half kept"
    refuses_plainly(caplog)
    filler.unlink()
    assert put().status_code == 200
    assert len(list_files(small_disk)) == 1


def test_disk_filling_during_a_write_keeps_no_partial_file(
    small_disk: Path, caller: Callers
) -> None:
    pool = make_agents()
    token = caller("claimant", pool).secret
    (small_disk / "other").write_bytes(b"x" * 2 * MB)

    def upload(size: int) -> Any:
        archive = tar_of(("a", os.urandom(size)))
        return Client().post(
            "/api/v1/sources/",
            archive,
            content_type="application/gzip",
            headers={"Authorization": f"Bearer {token}"},
        )

    assert upload(3 * MB).status_code == 507
    assert list_files(small_disk) == []
    assert upload(MB).status_code == 201


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_error_is_507(number: int) -> None:
    body, headers = describe(OSError(number, os.strerror(number)))
    assert (body["status"], body["code"], headers) == (507, "disk_full", {"Retry-After": "30"})


def test_other_disk_error_is_unexpected() -> None:
    assert describe(OSError(errno.EIO, "broken"))[0]["status"] == 500


@pytest.fixture
def full_database(transactional_db: None) -> Iterator[Callable[[], None]]:
    """PostgreSQL's own error of a full disk (53100), from the first thing that a sign-in and a
    pool write. Call it to fill the disk.
    """
    tables = ("kernel_sign_in_attempt", "kernel_event")

    def begin() -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "CREATE OR REPLACE FUNCTION pg_temp.full_disk() RETURNS trigger LANGUAGE plpgsql "
                "AS $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' "
                "USING ERRCODE = '53100'; END $$"
            )
            for table in tables:
                cursor.execute(
                    f"CREATE TRIGGER full_disk BEFORE INSERT ON {table} FOR EACH ROW EXECUTE "
                    "FUNCTION pg_temp.full_disk()"
                )

    yield begin
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"DROP TRIGGER IF EXISTS full_disk ON {table}")


def test_sign_in_on_a_full_database_says_so(
    caplog: pytest.LogCaptureFixture, full_database: Callable[[], None]
) -> None:
    User.objects.create_user("ana", password="correct horse")
    full_database()
    client = Client(raise_request_exception=False)
    answer = client.post("/login/", {"username": "ana", "password": "correct horse"})
    assert answer.status_code == 507
    assert b"The disk of the database is full." in answer.content
    refuses_plainly(caplog)


def test_call_on_a_full_database_says_so_and_changes_nothing(
    caller: Callers,
    caplog: pytest.LogCaptureFixture,
    full_database: Callable[[], None],
) -> None:
    root = caller("superuser")
    full_database()
    answer = root.post("pools/", {"name": "p", "slots": 1})
    assert (answer.status, answer.body["code"]) == (507, "disk_full"), answer.body
    assert answer.headers["Retry-After"] == "30"
    assert root.get("pools/").body["results"] == []
    refuses_plainly(caplog)
