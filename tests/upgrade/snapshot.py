"""Snapshots of released versions, schema and data: what an upgrade starts from.

`make snapshot NAME=0.1.0` writes tests/upgrade/snapshots/0.1.0.dump with the code at hand; it
belongs to every release, before its tag.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import django
import psycopg
from django.core.management import call_command

from project.kernel.embedded.backup import restore, run_tool
from tests import boot
from tests.upgrade.scratch_database import url_of

FOLDER = Path(__file__).parent / "snapshots"


def restore_snapshot(file: Path, url: str) -> None:
    restore(url, file)


def make_snapshot(name: str) -> Path:
    """In a process of its own: it turns Django's settings to a database that it makes."""
    boot.boot()
    with psycopg.connect(url_of("postgres"), autocommit=True) as server:
        server.execute("CREATE DATABASE snapshot")
    os.environ["DATABASE_URL"] = url_of("snapshot")
    django.setup()
    call_command("migrate", verbosity=0)
    # Models need Django, and Django the address of the database.
    from tests.upgrade.rows import fill  # noqa: PLC0415

    Path(os.environ["BERTH_HOME"]).mkdir(exist_ok=True)
    fill()
    file = FOLDER / f"{name}.dump"
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made"
        run_tool(
            "pg_dump",
            url_of("snapshot"),
            ["--format=custom", "--compress=9", "--no-owner", "--no-privileges", f"--file={made}"],
        )
        shutil.copyfile(made, file)
    return file


if __name__ == "__main__":
    print(make_snapshot(sys.argv[1]))
