"""`make statements`: writes the typed modules of all SQL files, described by a fresh database."""

import os

import django
import psycopg
from django.core.management import call_command

from tests import boot
from tests.database.codegen.generate import ROOT, find_files, generate
from tests.database_copy import find_prepared
from tests.upgrade.scratch_database import url_of


def write_modules() -> None:
    """In a process of its own: it turns Django's settings to a database that it makes."""
    if not os.environ.get("DATABASE_URL"):
        os.environ[boot.PREPARED] = str(find_prepared())
    boot.boot()
    with psycopg.connect(url_of("postgres"), autocommit=True) as server:
        server.execute("CREATE DATABASE statements")
    os.environ["DATABASE_URL"] = url_of("statements")
    django.setup()
    call_command("migrate", verbosity=0)
    with psycopg.connect(url_of("statements")) as connection:
        for path, text in generate(connection, find_files()).items():
            if not path.exists() or path.read_text() != text:
                path.write_text(text)
                print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    write_modules()
