"""A backup restores the database, the sealed files and their keys; the sweep of files waits for
it.
"""

import io
import os
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from cryptography.fernet import Fernet

from project.kernel.embedded import backup, backup_file
from project.kernel.embedded.home import Home
from project.kernel.embedded.postgres import EmbeddedPostgres
from project.kernel.embedded.process import StartupError
from tests.database_copy import FAST, copy_for_stack
from tests.end_to_end.stack import OURS, ROOT

KEEP = """
from claims.tasks.files.sources import store_files
kept = store_files([("main.tf", "{text}")], made_by="ana")
from claims.models import Source
print(Source.objects.get(pk=kept.id).file)
"""
READ = """
import io, tarfile
from claims.tasks.files.sealed_files import read_file
print(tarfile.open(fileobj=io.BytesIO(read_file("{name}"))).extractfile("main.tf").read().decode())
"""
FORGET = """
from claims.models import Source
Source.objects.filter(file="{name}").delete()
"""
SWEEP = """
import os, time
from pathlib import Path
from django.conf import settings
from claims.tasks.files.retention import sweep_files
for path in Path(settings.BERTH_HOME).joinpath("files").rglob("*"):
    if path.is_file():
        os.utime(path, (time.time() - 7200,) * 2)
while sweep_files():
    pass
"""
ANALYZED = (
    "SELECT relname FROM pg_stat_user_tables"
    " WHERE relname = 'claims_claim' AND last_analyze IS NOT NULL"
)
A_DAY_LATER = "UPDATE kernel_database_place SET since = since - interval '25 h'"


class Installation:
    """A state folder with its own PostgreSQL, and commands beside it."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.environment = {
            name: value for name, value in os.environ.items() if name not in OURS
        } | {
            "BERTH_HOME": str(path),
            "DJANGO_SETTINGS_MODULE": "project.settings.local",
            "BERTH_SAMPLE": "0",
        }

    def start(self) -> None:
        self.home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.postgres = EmbeddedPostgres(self.home.path / "postgres", settings=FAST).start()
        self.postgres.create_database()
        self.home.write_services({"DATABASE_URL": self.postgres.url()})

    def stop(self) -> None:
        self.postgres.stop()
        self.home.forget_services()

    def run(self, *arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-W", "ignore", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == code, done.stdout + done.stderr
        return (done.stdout + done.stderr).strip()

    def shell(self, code: str) -> str:
        return self.run("manage.py", "shell", "--no-imports", "-c", code)

    def backup(self, *arguments: str, code: int = 0) -> str:
        return self.run("-m", "project.kernel.embedded.backup", *arguments, code=code)

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.postgres.url(), autocommit=True) as connection:
            done = connection.execute(statement)
            return done.fetchall() if done.description else []

    def files(self) -> set[str]:
        return {
            str(path.relative_to(self.home.path / "files"))
            for path in (self.home.path / "files").rglob("*")
            if path.is_file()
        }


@pytest.fixture
def berth(tmp_path: Path) -> Iterator[Installation]:
    made = Installation(tmp_path / "state")
    copy_for_stack(made.home.path)
    made.start()
    yield made
    made.stop()


@pytest.mark.slow
def test_dump_is_restored_with_files_and_keys_and_the_sweep_waits(
    berth: Installation, tmp_path: Path
) -> None:
    old = berth.shell(KEEP.format(text="in the dump") + SWEEP)
    berth.execute(A_DAY_LATER)
    dump = tmp_path / "berth.dump"
    said = berth.backup("dump", str(dump))
    assert "1 sealed file" in said and f"{dump}.keys" in said and "secret-key" in said
    assert {stat.S_IMODE(path.stat().st_mode) for path in (dump, Path(f"{dump}.keys"))} == {0o600}

    new = berth.shell(FORGET.format(name=old) + KEEP.format(text="newer than the dump"))
    berth.run("manage.py", "reseal", "--new-key")
    key = berth.home.path / "sealing-key"
    os.utime(key, (key.stat().st_mtime - 120,) * 2)
    said = berth.run("manage.py", "reseal", "--drop-old")
    assert "sealing-key.dropped" in said
    berth.shell(SWEEP)
    assert berth.files() == {new}, "the sweep deletes what no row names"

    Path(f"{dump}.keys").unlink()  # the dropped key is kept here, too
    berth.stop()
    said = berth.backup("restore", str(dump))
    assert "Added 1 sealed file to" in said and "For a day" in said, said
    berth.start()
    assert berth.shell(READ.format(name=old) + SWEEP) == "in the dump"
    assert berth.files() == {old, new}, "the newer data, which lies aside, needs its files"
    assert berth.shell(READ.format(name=new)) == "newer than the dump"
    berth.execute(A_DAY_LATER)
    berth.shell(SWEEP)
    assert berth.files() == {old}


@pytest.mark.slow
def test_dump_is_restored_on_another_machine(berth: Installation, tmp_path: Path) -> None:
    name = berth.shell(KEEP.format(text="moved"))
    dump = tmp_path / "berth.dump"
    berth.backup("dump", str(dump))
    there = Installation(tmp_path / "elsewhere")
    there.backup("restore", str(dump))
    there.start()
    try:
        assert there.shell(READ.format(name=name)) == "moved"
        assert there.execute(ANALYZED) == [("claims_claim",)], "the planner has no statistics"
        assert stat.S_IMODE((there.home.path / "sealing-key").stat().st_mode) == 0o600
    finally:
        there.stop()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home(tmp_path / "state")
    found.path.mkdir(mode=0o700)
    yield found
    if found.lock is not None:
        found.lock.close()


def pack(tmp_path: Path, **files: str) -> Path:
    """A backup whose database is no database."""
    (tmp_path / "packed" / "plan").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "packed" / "plan" / name).write_text(text)
    (tmp_path / "database").write_text("no database")
    backup_file.pack(tmp_path / "berth.dump", tmp_path / "database", tmp_path / "packed", [])
    return tmp_path / "berth.dump"


def test_truncated_dump_is_refused_before_anything_changes(home: Home, tmp_path: Path) -> None:
    dump = pack(tmp_path, a="x" * 5000)
    whole = dump.read_bytes()
    for size in (100, 2000, 6000, whole.index(b'"files"') - 1):
        dump.write_bytes(whole[:size])
        with pytest.raises(StartupError, match="no dump of Berth, or it"):
            backup.restore_all(home, dump)
    assert list(home.path.iterdir()) == []


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    dump = pack(tmp_path, a="from the dump", b="from the dump")
    (tmp_path / "files" / "plan").mkdir(parents=True)
    (tmp_path / "files" / "plan" / "a").write_text("sealed anew")
    assert backup_file.add_files(dump, tmp_path / "files") == (1, 1)
    assert (tmp_path / "files" / "plan" / "a").read_text() == "sealed anew"
    assert (tmp_path / "files" / "plan" / "b").read_text() == "from the dump"


def test_dump_with_paths_outside_the_files_folder_writes_none_of_them(tmp_path: Path) -> None:
    dump = tmp_path / "berth.dump"
    with tarfile.open(dump, "w") as tar:
        for name in ("files/../../outside", "/files/outside", "files/plan/inside"):
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))
    assert backup_file.add_files(dump, tmp_path / "files") == (1, 0)
    assert not list(tmp_path.glob("**/outside"))


def test_missing_keys_named_by_the_dump_are_reported(home: Home, tmp_path: Path) -> None:
    (home.path / "sealing-key").write_text(f"{Fernet.generate_key().decode()}\n")
    assert backup._restore_keys(home, tmp_path / "berth.dump", ["0badc0de"]) == (0, ("0badc0de",))


def test_dumps_made_by_people_are_kept(tmp_path: Path) -> None:
    made = [tmp_path / f"2026010{n}T000000Z.dump" for n in range(3)]
    ours = [tmp_path / f"2027{n:04}T000000Z-before-migration.dump" for n in range(12)]
    for path in made + ours:
        path.touch()
    backup.delete_older_dumps(tmp_path)
    assert sorted(tmp_path.iterdir()) == [*made, *ours[2:]]
