"""R: the rate of one prepared bind on a bare schema with eight clients, on this machine's
PostgreSQL. Benches report ratios to R.

pgbench measures R, from the embedded PostgreSQL's wheel or from the machine. Without pgbench the
same loop runs in psycopg. The processes of that loop import this module, so it does not import
Django.
"""

import multiprocessing
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from project.kernel.embedded.postgres import tool
from project.kernel.embedded.process import StartupError

CLIENTS = 8
AHEAD = 400  # binds that a client may be ahead of the slowest client
SHORT = 100  # binds of a client in a slice below a second, because pgbench counts whole seconds

SCHEMA = """
DROP SCHEMA IF EXISTS r CASCADE;
CREATE SCHEMA r;
SET search_path = r;
CREATE TABLE claim (id bigint PRIMARY KEY, pool_id int NOT NULL,
  priority smallint NOT NULL DEFAULT 0,
  state varchar(16) NOT NULL DEFAULT 'pending', slot_id bigint, fence bigint,
    spec jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE slot (id bigint PRIMARY KEY, pool_id int NOT NULL, member_id int NOT NULL,
  ordinal int NOT NULL,
  state varchar(16) NOT NULL DEFAULT 'idle', claim_id bigint, fence bigint NOT NULL DEFAULT 0,
    lease_until timestamptz,
  labels jsonb NOT NULL DEFAULT '{}', updated_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON slot (pool_id, id) WHERE state = 'idle';
CREATE UNIQUE INDEX ON slot (claim_id) WHERE claim_id IS NOT NULL;
CREATE INDEX ON claim (pool_id, priority DESC, id) WHERE state = 'pending';
"""
FILL = (
    (
        "INSERT INTO r.slot (id, pool_id, member_id, ordinal) SELECT g, g %% 100, g / 64, g %% 64 "
        "FROM generate_series(0, %s) g"
    ),
    "INSERT INTO r.claim (id, pool_id) SELECT g, g %% 100 FROM generate_series(0, %s) g",
)
BIND = """
WITH c AS (SELECT id FROM claim WHERE id = {cid} AND state = 'pending' FOR UPDATE SKIP LOCKED),
pick AS (
  SELECT id FROM slot WHERE pool_id = {p} AND state = 'idle' AND EXISTS (SELECT 1 FROM c)
    ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED),
us AS (UPDATE slot s SET state = 'bound', claim_id = {cid}, fence = s.fence + 1, updated_at = now()
  FROM pick WHERE s.id = pick.id
  RETURNING s.id, s.fence)
UPDATE claim c SET state = 'bound', slot_id = us.id, fence = us.fence, updated_at = now() FROM us
  WHERE c.id = {cid}
RETURNING c.id, us.id, us.fence"""
PGBENCH = (
    f"\\set n :n + 1\n\\set cid :n * {CLIENTS} + :client_id\n\\set p :cid % 100\n"
    + BIND.format(cid=":cid", p=":p").strip()
    + ";\n"
)
PSYCOPG = BIND.format(cid="%(cid)s::bigint", p="%(p)s::int")


@dataclass(frozen=True)
class Pgbench:
    path: str
    where: str


def find_pgbench() -> Pgbench | None:
    try:
        wheel = tool("pgbench")
    except StartupError:
        wheel = ""
    if wheel and Path(wheel).exists():
        return Pgbench(wheel, "pgbench of the embedded PostgreSQL")
    machine = shutil.which("pgbench")
    return Pgbench(machine, "pgbench of this machine") if machine else None


class Reference:
    """Measures R in slices, and fills the tables again when they are used up."""

    def __init__(self, conninfo: str, *, claims: int = 400_000, pgbench: Pgbench | None) -> None:
        self._conninfo, self._claims, self._pgbench = conninfo, claims, pgbench
        self._next = claims  # used up, so that the first slice fills the tables
        self._last = 0  # binds in the last slice

    @property
    def by(self) -> str:
        return self._pgbench.where if self._pgbench else "psycopg, there is no pgbench here"

    def measure(self, seconds: float = 1.0) -> float:
        """Binds per second."""
        # There are half as many slots as claims, and each bind uses a slot.
        if self._next * CLIENTS + max(self._last * 2, self._claims // 10) > self._claims // 2:
            self._fill()
        count, elapsed = self._by_pgbench(seconds) if self._pgbench else self._by_psycopg(seconds)
        self._last = count
        self._next += count // CLIENTS + AHEAD
        return count / elapsed

    def _fill(self) -> None:
        with psycopg.connect(
            self._conninfo, autocommit=True, options="-c statement_timeout=0 -c lock_timeout=0"
        ) as connection:
            connection.execute(SCHEMA)
            for statement, rows in zip(FILL, (self._claims // 2, self._claims), strict=True):
                connection.execute(statement, [rows - 1])
            connection.execute("VACUUM ANALYZE r.slot, r.claim")
            connection.execute("CHECKPOINT")
        self._next = 0

    def _by_pgbench(self, seconds: float) -> tuple[int, float]:
        assert self._pgbench is not None
        parameters = {
            k: str(v) for k, v in psycopg.conninfo.conninfo_to_dict(self._conninfo).items()
        }
        names = {
            "host": "PGHOST",
            "port": "PGPORT",
            "user": "PGUSER",
            "password": "PGPASSWORD",
            "dbname": "PGDATABASE",
            "sslmode": "PGSSLMODE",
        }
        environment = (
            os.environ
            | {names[k]: v for k, v in parameters.items() if k in names}
            | {"PGOPTIONS": "-c search_path=r"}
        )
        length = ("-T", str(round(seconds))) if seconds >= 1 else ("-t", str(SHORT))
        command = [
            self._pgbench.path, "-n", "-M", "prepared", "-f", "/dev/stdin", "-c", str(CLIENTS),
            "-j", "2", *length, "-D", f"n={self._next - 1}",
        ]  # fmt: skip
        done = subprocess.run(
            command, input=PGBENCH, capture_output=True, text=True, env=environment
        )
        count = re.search(r"actually processed: (\d+)", done.stdout)
        rate = re.search(r"tps = ([\d.]+) \(without", done.stdout)
        if not (count and rate and float(rate[1])):
            raise RuntimeError(f"pgbench prints no rate: {done.stderr[-1000:]}")
        return int(count[1]), int(count[1]) / float(rate[1])

    def _by_psycopg(self, seconds: float) -> tuple[int, float]:
        context = multiprocessing.get_context("spawn")
        barrier, answers = context.Barrier(CLIENTS), context.Queue()
        conninfo = make_conninfo(self._conninfo, options="-c search_path=r")
        loops = [
            context.Process(target=_loop, args=(k, conninfo, self._next, seconds, barrier, answers))
            for k in range(CLIENTS)
        ]
        for process in loops:
            process.start()
        counts = [answers.get(timeout=seconds + 60) for _ in loops]
        for process in loops:
            process.join()
        return sum(c for c, _ in counts), max(t for _, t in counts)


def _loop(
    k: int,
    conninfo: str,
    first: int,
    seconds: float,
    barrier: Barrier,
    answers: "Queue[tuple[int, float]]",
) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("SELECT 1")
        barrier.wait(60)
        start, n = time.perf_counter(), first
        while time.perf_counter() - start < seconds:
            claim = n * CLIENTS + k
            connection.execute(PSYCOPG, {"cid": claim, "p": claim % 100}, prepare=True)
            n += 1
        answers.put((n - first, time.perf_counter() - start))
