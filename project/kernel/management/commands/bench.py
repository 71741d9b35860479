"""Run a bench in two processes: the outer one prepares a server and a scratch database, the inner
one measures in that environment.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.core.management import call_command
from django.core.management.base import CommandParser
from psycopg.conninfo import make_conninfo

from project.kernel.bench import baseline
from project.kernel.bench.registry import BenchRun, get_bench, list_benches, run_bench
from project.kernel.db.direct_connection import direct_parameters
from project.kernel.discovery import discover
from project.kernel.embedded.postgres import EmbeddedPostgres
from project.kernel.embedded.valkey import EmbeddedValkey
from project.kernel.management.base import BerthCommand

SCRATCH = "BERTH_BENCH_SCRATCH"  # set for the inner process, which may fill its database


class Command(BerthCommand):
    help = (
        "Measures on a scratch database. With --json, prints one object on stdout and all other "
        "output on stderr."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", help="without a name: lists the benches")
        parser.add_argument("--json", action="store_true", help="one object on stdout")
        parser.add_argument(
            "--quick", action="store_true", help="a smoke run: seconds, not minutes"
        )

    def handle(self, *args: object, **options: Any) -> None:
        discover("benches")
        if not options["name"]:
            for each in list_benches():
                goals = ", ".join(f"{g.field} {g.sign} {g.limit:g}" for g in each.goals)
                self.stdout.write(f"{each.name:8} {each.about}. Goal: {goals}")
            return
        chosen = get_bench(options["name"])
        if not os.environ.get(SCRATCH):
            sys.exit(_run_in_scratch(options, chosen.needs_valkey))
        with _only_result_on_stdout() as write:
            call_command("migrate", verbosity=0, interactive=False)
            run = BenchRun(_reference(options["quick"]), is_quick=options["quick"])
            result = run_bench(chosen, run)
            write(json.dumps(result) if options["json"] else _describe(result))


def _run_in_scratch(options: dict[str, Any], needs_valkey: bool) -> int:
    folder = Path(tempfile.mkdtemp(prefix="berth-bench-"))
    folder.chmod(0o755)  # started by root, the server runs as another user
    environment = os.environ | {SCRATCH: "1", "BERTH_HOME": str(folder / "home")}
    postgres: EmbeddedPostgres | None = None
    valkey: EmbeddedValkey | None = None
    given = os.environ.get("DATABASE_URL", "")
    try:
        if not given:
            print("starting a PostgreSQL of our own", file=sys.stderr, flush=True)
            postgres = EmbeddedPostgres(folder / "postgres").start()
        if needs_valkey and not os.environ.get("REDIS_URL"):
            valkey = EmbeddedValkey(folder / "valkey").start()
            environment["REDIS_URL"] = valkey.url
        with _scratch_database(given or postgres.url("postgres")) as url:  # type: ignore[union-attr]
            environment["DATABASE_URL"] = url
            command = [sys.executable, sys.argv[0], "bench", options["name"]]
            command += [f"--{flag}" for flag in ("json", "quick") if options[flag]]
            return subprocess.run(command, env=environment).returncode
    finally:
        for server in (valkey, postgres):
            if server:
                server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _scratch_database(url: str) -> Iterator[str]:
    """A new database on the server, dropped afterwards."""
    name = f"berth_bench_{secrets.token_hex(4)}"
    with _connect_beside(url) as connection:
        connection.execute(
            psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name))
        )
    print(f"measuring in {name}", file=sys.stderr, flush=True)
    head, _, query = url.partition("?")
    try:
        yield head.rsplit("/", 1)[0] + f"/{name}" + (f"?{query}" if query else "")
    finally:
        with _connect_beside(url) as connection:
            connection.execute(
                psycopg.sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(
                    psycopg.sql.Identifier(name)
                )
            )


def _connect_beside(url: str) -> psycopg.Connection[object]:
    """Connects to the database postgres, because the database of the URL may not exist."""
    try:
        return psycopg.connect(url, autocommit=True, dbname="postgres")
    except psycopg.OperationalError:  # missing or forbidden
        return psycopg.connect(url, autocommit=True)


@contextmanager
def _only_result_on_stdout() -> Iterator[Callable[[str], None]]:
    """Redirects all other output, also of child processes, to stderr."""
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(stdout, "w") as file:
            yield lambda text: print(text, file=file, flush=True)
    finally:
        os.dup2(2, 1)


def _reference(is_quick: bool) -> baseline.Reference:
    keys = ("host", "port", "user", "password", "dbname", "sslmode")
    parameters = {k: v for k, v in direct_parameters("bench").items() if k in keys and v}
    return baseline.Reference(
        make_conninfo(**parameters),
        claims=40_000 if is_quick else 400_000,
        pgbench=baseline.find_pgbench(),
    )


def _describe(result: dict[str, Any]) -> str:
    lines = [f"{result['bench']}:"]
    for name, judged in result["goals"].items():
        verdict = "met" if judged["met"] else f"missed by {judged['missed_by']}"
        lines.append(f"  {name} = {judged['value']:g}, goal {judged['goal']}: {verdict}")
    more = {k: v for k, v in result.items() if k not in {"bench", "goals", *result["goals"]}}
    return "\n".join([*lines, *(f"  {k}: {v}" for k, v in more.items())])
