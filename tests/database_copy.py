"""A PostgreSQL data folder with every migration applied, made once and copied by each test run.

The copy saves initdb and the migrations, which take longer than the tests of one folder. A change
of a migration, of the settings or of a package makes a new one.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from project.kernel.embedded.postgres import EmbeddedPostgres

ROOT = Path(__file__).resolve().parents[1]
DATABASE = "test_berth"
OF_STACKS = "postgres-of-stacks"  # its database has the name that `up` gives
PREPARED = "BERTH_TEST_PREPARED"
SOURCES = (
    "*/migrations/*.py",
    "*/*/migrations/*.py",
    "project/settings/*.py",
    "project/kernel/db/fields.py",
    "project/kernel/embedded/postgres.py",
    "project/kernel/embedded/service.py",
    "project/kernel/management/commands/migrate.py",
    "requirements.txt",
    "tests/database_copy.py",
)
UNUSED_DAYS = 3
# Settings of a server whose data may be lost.
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_wal_size": "2GB",
}


def find_prepared() -> Path:
    """The folder with the migrated data folder; it is made where it is missing. A worker gets the
    folder of its run.
    """
    if PREPARED in os.environ:
        return Path(os.environ[PREPARED])
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = home / "berth" / "test-databases"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = cache / digest()
    if not found.exists():
        remove_unused(cache)
        prepare(found)
    os.utime(found)
    return found


def digest() -> str:
    text = hashlib.sha256(f"{os.getuid()} {sys.version}".encode())
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            text.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return text.hexdigest()[:16]


def remove_unused(cache: Path) -> None:
    for folder in cache.iterdir():
        if folder.stat().st_mtime < time.time() - UNUSED_DAYS * 86400:
            shutil.rmtree(folder, ignore_errors=True)


def prepare(found: Path) -> None:
    """Another run may prepare the same at the same time: the first to rename wins."""
    folder = Path(tempfile.mkdtemp(prefix="new-", dir=found.parent))
    try:
        postgres = EmbeddedPostgres(folder / "postgres", settings=FAST).start()
        try:
            postgres.create_database(DATABASE)
            subprocess.run(
                [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
                cwd=ROOT,
                env={**os.environ, "DATABASE_URL": postgres.url(DATABASE)},
                check=True,
            )
        finally:
            postgres.stop()
        copy(folder, folder / OF_STACKS)
        postgres = EmbeddedPostgres(folder / OF_STACKS, settings=FAST).start()
        try:
            with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
                connection.execute(f"ALTER DATABASE {DATABASE} RENAME TO berth")
        finally:
            postgres.stop()
        if not found.exists():
            folder.rename(found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copy(prepared: Path, target: Path, name: str = "postgres") -> None:
    """The server's user owns the files, so the copy keeps their owner."""
    subprocess.run(["cp", "-a", str(prepared / name), str(target)], check=True)


def copy_for_stack(home: Path) -> None:
    """The database of an `up` that was never started: migrated and without a user."""
    home.mkdir(mode=0o700)
    copy(find_prepared(), home / "postgres", OF_STACKS)
