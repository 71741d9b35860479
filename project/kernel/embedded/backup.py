"""Dumps and restores the embedded database with its sealed files.

python -m project.kernel.embedded.backup dump [FILE]     while Berth runs
python -m project.kernel.embedded.backup restore FILE    while Berth is stopped; present data
                                                         moves aside
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from project.kernel.embedded import backup_file
from project.kernel.embedded.backup_file import BackupContents
from project.kernel.embedded.home import Home
from project.kernel.embedded.postgres import EmbeddedPostgres, tool
from project.kernel.embedded.process import StartupError
from project.kernel.security import sealing_keys
from project.settings import environment as env

KEPT = 10
BEFORE_MIGRATION = "before-migration"
# While this advisory lock is held, no file is deleted (project.kernel.doctor.restore_detection).
DUMP_LOCK = (7320, 0)
HEADROOM = 100_000_000  # bytes that stay free beyond what a restore unpacks


def dump(url: str, folder: Path, label: str = "") -> Path:
    """Dumps the database without files, for pg_restore. The dump appears under its name only when
    it is complete.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}{'-' if label else ''}{label}.dump"
    run_tool("pg_dump", url, ["--format=custom", "--no-owner", f"--file={file}.part"])
    file.with_name(f"{file.name}.part").rename(file)
    return file


def delete_older_dumps(folder: Path) -> None:
    """Deletes automatic dumps but the newest. Dumps made by people stay."""
    for old in sorted(folder.glob(f"*-{BEFORE_MIGRATION}.dump"))[:-KEPT]:
        old.unlink()


def restore(url: str, file: Path) -> None:
    """Restores a dump into an empty database, in one transaction. The dump contains no statistics,
    so they are gathered before the first request.
    """
    run_tool(
        "pg_restore", url, ["--no-owner", "--single-transaction", "--exit-on-error", str(file)]
    )
    run_tool("psql", url, ["--quiet", "--command=ANALYZE"])


def run_tool(name: str, url: str, arguments: list[str]) -> None:
    """Passes the URL by the environment, because it contains a password."""
    environment = {"PATH": "/usr/bin:/bin", **env.libpq(url)}
    options = [] if name == "pg_dump" else ["--dbname", environment["PGDATABASE"]]
    done = subprocess.run(
        [tool(name), *options, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        umask=0o077,
    )
    if done.returncode:
        raise StartupError(f"{name} did not succeed: {done.stderr.strip()[-1500:]}")


def keys_beside(file: Path) -> Path:
    return file.with_name(f"{file.name}.keys")


def dump_all(url: str, file: Path, home: Path) -> BackupContents:
    """Dumps the database with its sealed files. Keys of the state folder go to a separate file."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    given = env.list_words("BERTH_SEALING_KEYS")
    keys = given or sealing_keys.read_keys(home / sealing_keys.FILE)
    database = file.with_name(f"{file.name}.database.part")
    try:
        with pause_file_sweep(url):
            run_tool("pg_dump", url, ["--format=custom", "--no-owner", f"--file={database}"])
            contents = backup_file.pack(
                file, database, env.files(), [sealing_keys.name_key(key) for key in keys]
            )
    finally:
        database.unlink(missing_ok=True)
    if keys and not given:
        sealing_keys.write_keys(keys_beside(file), keys)
    return contents


@contextmanager
def pause_file_sweep(url: str) -> Iterator[None]:
    """Prevents the deletion of files whose rows are in the dump but that are not copied yet."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock_shared(%s, %s)", DUMP_LOCK)
        yield
        # Released explicitly: PostgreSQL notices a closed connection a moment later.
        connection.execute("SELECT pg_advisory_unlock_shared(%s, %s)", DUMP_LOCK)


@dataclass(frozen=True)
class RestoreResult:
    aside: Path | None = None  # the previous data
    has_files: bool = False
    added: int = 0  # sealed files
    present: int = 0
    added_keys: int = 0
    missing_keys: tuple[str, ...] = ()  # ids of keys that the dump needs and that are not found


def restore_all(home: Home, file: Path) -> RestoreResult:
    """Replaces the database by a backup; the previous data moves aside. Files and keys are added,
    none is removed.
    """
    if not file.is_file():
        raise StartupError(f"There is no file {file}.")
    if backup_file.is_plain(file):
        home.open()
        aside = _swap_database(home, file)
        added_keys, missing = _restore_keys(home, file, None)
        return RestoreResult(aside, added_keys=added_keys, missing_keys=missing)
    contents = backup_file.read_contents(file)
    home.open()
    needed = file.stat().st_size + HEADROOM
    if home.count_free() < needed:
        raise StartupError(
            f"The disk of {home.path} has {home.count_free() // 10**6} MB free; this restore needs "
            f"{needed // 10**6} MB. Make room. Nothing was changed."
        )
    database = home.path / "restore.part"
    try:
        added, present = backup_file.add_files(file, env.files())
        backup_file.unpack_database(file, database)
        aside = _swap_database(home, database)
    finally:
        database.unlink(missing_ok=True)
    added_keys, missing = _restore_keys(home, file, contents.keys)
    return RestoreResult(aside, True, added, present, added_keys, missing)


def _restore_keys(home: Home, file: Path, needed: list[str] | None) -> tuple[int, tuple[str, ...]]:
    """Reads keys from the file beside the dump and from the dropped keys, and keeps those that the
    dump needs (None: unknown). Returns the number of added keys and the ids of missing ones.
    """
    path = home.path / sealing_keys.FILE
    given = env.list_words("BERTH_SEALING_KEYS")
    found = [
        *sealing_keys.read_keys(keys_beside(file)),
        *sealing_keys.read_keys(home.path / sealing_keys.DROPPED),
    ]
    wanted = [key for key in found if needed is None or sealing_keys.name_key(key) in needed]
    added = 0 if given else sealing_keys.merge_keys(path, wanted)
    known = {sealing_keys.name_key(key) for key in given or sealing_keys.read_keys(path)}
    return added, tuple(name for name in needed or () if name not in known)


def _swap_database(home: Home, file: Path) -> Path | None:
    """Replaces the database by a dump without files; the previous data moves aside."""
    before = home.path / "postgres" / "data"
    aside = before.with_name(f"data-{time.strftime('%Y%m%dT%H%M%S')}") if before.exists() else None
    if aside:
        before.rename(aside)
    postgres = EmbeddedPostgres(home.path / "postgres").start()
    try:
        postgres.create_database()
        restore(postgres.url(), file)
    except BaseException:  # restores the previous data, also after Ctrl-C
        postgres.stop()
        if aside:
            shutil.rmtree(before)
            aside.rename(before)
        raise
    postgres.stop()
    return aside


def describe_dump(file: Path, contents: BackupContents) -> str:
    keys = keys_beside(file)
    lines = [
        f"{file}: the database and {count_files(contents.files)} of {env.files()} "
        f"({contents.size / 1e6:.1f} MB)."
    ]
    if env.list_words("BERTH_SEALING_KEYS"):
        lines.append(
            "Not in the dump: BERTH_SEALING_KEYS. Without these keys its plans, sources, logs and "
            "secrets cannot be read."
        )
    elif contents.keys:
        lines.append(
            f"{keys}: the sealing keys. Both files together reveal all secrets: store this file "
            "safely, and not beside the dump."
        )
    lines.append(
        f"Not in the backup: {env.home() / 'secret-key'} (sessions; without it users sign in "
        "again), agents and their logs."
    )
    return "\n".join(lines)


def describe_restore(done: RestoreResult) -> str:
    lines = ["Restored the database."]
    if done.aside:
        lines.append(
            f"The previous data is in {done.aside}. For a day no sealed file is deleted, so that "
            "you can return to that data."
        )
    if done.has_files:
        lines.append(
            f"Added {count_files(done.added)} to {env.files()}; {done.present} were present."
        )
    else:
        lines.append(
            f"The dump contains no sealed files: plans and sources stay those of {env.files()}."
        )
    if done.added_keys:
        path = env.home() / sealing_keys.FILE
        lines.append(
            f"Added {done.added_keys} sealing key{'s' * (done.added_keys > 1)} of the dump to "
            f"{path}."
        )
    if done.missing_keys:
        lines.append(
            f"Missing sealing keys: {', '.join(done.missing_keys)}. Data that was sealed with them "
            f"cannot be read. Add them, one per line, to {env.home() / sealing_keys.FILE} (or to "
            "BERTH_SEALING_KEYS, if that is set)."
        )
    return "\n".join([*lines, "Start Berth with `make up`, then check it with `make doctor`."])


def count_files(count: int) -> str:
    return f"{count} sealed file{'' if count == 1 else 's'}"


def main() -> None:
    try:
        match sys.argv[1:]:
            case ["dump", *more]:
                url = env.database_url()
                if not url:
                    raise StartupError(
                        "Berth does not run here. Start it with `make up`, then dump."
                    )
                made = (
                    Path(more[0]).absolute()
                    if more
                    else env.home() / "backups" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.dump"
                )
                print(describe_dump(made, dump_all(url, made, env.home())))
            case ["restore", file]:
                if os.environ.get("DATABASE_URL"):
                    raise StartupError(
                        "DATABASE_URL names a server of your own; restore replaces the embedded "
                        "one. Unset it, or take the dump apart: tar -xf FILE gives database.dump "
                        "for pg_restore, and files/ for BERTH_FILES."
                    )
                print(describe_restore(restore_all(Home(env.home()), Path(file).absolute())))
            case _:
                raise StartupError(str(__doc__).strip())
    except StartupError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
