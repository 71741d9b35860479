"""Faults of the state folder are reported before anything starts, with the way out."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from project.kernel.embedded import backup, home, process
from project.kernel.embedded.home import Home
from project.kernel.embedded.postgres import EmbeddedPostgres
from project.kernel.embedded.process import StartupError
from project.kernel.embedded.up import Up
from project.kernel.embedded.valkey import EmbeddedValkey
from tests.database_copy import FAST


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Home]:
    state = Home(tmp_path / "state")
    yield state
    if state.lock is not None:
        state.lock.close()


def test_file_in_place_of_the_state_folder_is_reported(state: Home) -> None:
    state.path.write_text("")
    with pytest.raises(
        StartupError,
        match="is a file, not a folder. Move it away, or name another folder in BERTH_HOME",
    ):
        state.open()


def test_full_disk_is_reported(state: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(state.path.parent)
    monkeypatch.setattr(home.shutil, "disk_usage", lambda path: usage._replace(free=12_000_000))
    with pytest.raises(
        StartupError, match=r"is full: 12 MB are free, Berth needs 300 MB. Make room"
    ):
        state.open()


def test_state_folder_is_closed_to_other_users(state: Home) -> None:
    state.path.mkdir(mode=0o755)
    state.open()
    assert state.path.stat().st_mode & 0o777 == 0o700


def test_data_that_is_no_database_is_reported(state: Home) -> None:
    data = state.path / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "something").touch()
    with pytest.raises(
        StartupError,
        match="is not empty, but holds no database. Move it away, or restore it from a backup",
    ):
        EmbeddedPostgres(state.path / "postgres").start()


def test_data_of_another_postgresql_version_is_reported(state: Home) -> None:
    postgres = EmbeddedPostgres(state.path / "postgres")
    postgres.data.mkdir()
    (postgres.data / "PG_VERSION").write_text("17\n")
    with pytest.raises(
        StartupError,
        match=(
            r"is of PostgreSQL 17; this Berth brings PostgreSQL 18. Nothing was "
            r"touched.(?s:.*)make restore FILE="
        ),
    ):
        Up.check_major(Up(), postgres)


@pytest.mark.parametrize(
    ("address", "port", "words"),
    [
        ("127.0.0.1", "eighty", "BERTH_PORT is 'eighty', not a port number."),
        ("127.0.0.1", "70000", "BERTH_PORT is '70000', not a port number."),
        ("192.0.2.7", "8000", "BERTH_BIND=192.0.2.7 is no address of this machine"),
        ("nowhere.invalid", "8000", "BERTH_BIND=nowhere.invalid is no address of this machine"),
    ],
)
def test_unusable_address_or_port_is_reported(address: str, port: str, words: str) -> None:
    with pytest.raises(StartupError) as said:
        home.bind(address, port)
    assert words in str(said.value)


@pytest.fixture
def postgres(state: Home) -> Iterator[EmbeddedPostgres]:
    state.open()
    postgres = EmbeddedPostgres(state.path / "postgres", settings=FAST).start()
    postgres.create_database()
    yield postgres
    postgres.stop()


def query(postgres: EmbeddedPostgres, statement: str) -> str:
    with psycopg.connect(postgres.url()) as connection:
        found = connection.execute(statement)
        return str(found.fetchone()[0]) if found.description else ""


def test_damaged_database_is_reported_with_the_end_of_its_log(postgres: EmbeddedPostgres) -> None:
    postgres.stop()
    (postgres.data / "global" / "pg_control").write_bytes(b"\0" * 100)
    with pytest.raises(
        StartupError,
        match=r"PostgreSQL does not start. The end of .*postgres.log:\n(?s:.*)pg_control",
    ):
        postgres.start()
    shutil.rmtree(postgres.data)


def test_restored_dump_moves_the_previous_data_aside(
    state: Home, postgres: EmbeddedPostgres
) -> None:
    query(postgres, "create table kept as select 42 as answer")
    made = backup.dump(postgres.url(), state.path / "backups")
    query(postgres, "update kept set answer = 0")
    postgres.stop()
    state.lock.close()  # type: ignore[union-attr]
    aside = backup.restore_all(state, made).aside
    assert aside is not None and aside.exists()
    postgres.start()
    assert query(postgres, "select answer from kept") == "42"


def test_invalid_dump_changes_nothing(
    state: Home, postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    query(postgres, "create table kept as select 42 as answer")
    postgres.stop()
    state.lock.close()  # type: ignore[union-attr]
    (tmp_path / "bad.dump").write_bytes(b"PGDMP, but no dump")
    with pytest.raises(StartupError, match="pg_restore did not succeed"):
        backup.restore_all(state, tmp_path / "bad.dump")
    postgres.start()
    assert query(postgres, "select answer from kept") == "42"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_private_binaries_are_copied_to_a_cache_and_run_from_there(
    state: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.open()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as cache:
        Path(cache).chmod(0o755)
        monkeypatch.setattr(process, "CACHE", Path(cache))
        monkeypatch.setattr(process, "is_reachable", lambda path: False)
        postgres = EmbeddedPostgres(state.path / "postgres", settings=FAST)
        valkey = EmbeddedValkey(state.path / "valkey")
        assert postgres.root.is_relative_to(cache) and valkey.binary.is_relative_to(cache)
        again = EmbeddedPostgres(state.path / "postgres", settings=FAST)
        assert again.root == postgres.root
        try:
            assert postgres.start().create_database()
            assert query(postgres, "select 1") == "1"
            assert valkey.start().answers()
        finally:
            postgres.stop()
            valkey.stop()


@pytest.fixture
def private_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Programs as an install with umask 077 leaves them, and a cache that is not there yet."""
    with tempfile.TemporaryDirectory() as cache:
        Path(cache).chmod(0o755)
        monkeypatch.setattr(process, "CACHE", Path(cache) / "var" / "berth")
        (Path(cache) / "var").mkdir(mode=0o755)
        before = os.umask(0o077)
        try:
            (tmp_path / "bin").mkdir()
            for name in ("server", "tool"):
                (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
                (tmp_path / "bin" / name).chmod(0o700)
            yield tmp_path
        finally:
            os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_copied_programs_are_reachable_whatever_the_umask(
    private_programs: Path,
) -> None:
    made = process.reachable_copy(private_programs, ["bin/server", "bin/tool"])
    assert process.is_reachable(made / "bin" / "server") and process.is_reachable(
        made / "bin" / "tool"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_unreachable_copy_of_an_earlier_version_is_opened(private_programs: Path) -> None:
    made = process.reachable_copy(private_programs, ["bin/server"])
    for path in (made / "bin" / "server", made / "bin", made, process.CACHE):
        path.chmod(0o700)
    assert process.reachable_copy(private_programs, ["bin/server"]) == made
    assert process.is_reachable(made / "bin" / "server")


def test_valkey_requires_its_password(tmp_path: Path) -> None:
    valkey = EmbeddedValkey(tmp_path / "valkey").start()
    try:
        assert valkey.answers()
        valkey.password = "wrong"
        assert not valkey.answers()
    finally:
        valkey.stop()


def test_reused_process_id_is_not_killed(tmp_path: Path) -> None:
    assert not process.runs_in(1, tmp_path)
