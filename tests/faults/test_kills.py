"""kill -9 of any process at any moment, under load: no acknowledged claim is lost, no slot is held
twice, and both pools are served again.

pytest tests/faults --fault-rounds 200      a longer run
pytest tests/faults --fault-seed 4711       the same victims once more
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from project.kernel.embedded.process import free_port
from tests.database.helpers import AUDIT
from tests.end_to_end.stack import Stack
from tests.faults.load import Caller, Keeper, Ledger, Promise
from tests.faults.shed import read_world

WITHIN = 10.0  # seconds from a kill until somebody who asked after it is served, in each pool
# The supervisor waits longer and longer with what dies again and again sooner than that.
STEADY = 35.0
IN_A_ROW = 3
CALLERS = 3  # for each pool
# The second has something to do outside: its slots drain, and workers clean them.
POOLS = ("busy", "outside")
VICTIMS = {
    "web": "embedded.web",
    "allocate": "manage.py allocate",
    "finalize": "manage.py finalize",
    "relay": "manage.py relay",
    "worker": "celery",
    "postgres": "bin/postgres",
    "valkey": "valkey-server",
}
FILE = """
kind: Pool
name: busy
provider: static
slots: 2
members: {list: [{name: a}, {name: b}, {name: c}]}
lease: {acknowledge: 10m, heartbeat: 10m}
---
kind: Pool
name: outside
provider: shed
slots: 2
members: {list: [{name: a}, {name: b}, {name: c}]}
lease: {acknowledge: 10m, heartbeat: 10m}
"""


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    monkeypatch.setenv("BERTH_TEST_WORLD", str(tmp_path / "world"))
    home, settings = tmp_path / "state", "tests.faults.settings"
    stack = Stack(
        home, free_port(), BERTH_APART="1", BERTH_QUEUES="shed", DJANGO_SETTINGS_MODULE=settings
    ).start(120)
    yield stack
    stack.stop()


@pytest.fixture
def token(stack: Stack, tmp_path: Path) -> str:
    (tmp_path / "pools.yaml").write_text(FILE)
    done = stack.manage("apply", "-f", str(tmp_path / "pools.yaml"))
    assert done.returncode == 0, done.stderr + done.stdout
    made = stack.manage("token", "create", "admin", "load")
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@dataclass
class Draw:
    """Who dies next. All die once before any dies twice; none dies so often in a row that it is
    rightly held back.
    """

    chance: random.Random
    deaths: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in VICTIMS})

    def next(self) -> str:
        now = time.monotonic()
        alive = [name for name, times in self.deaths.items() if not times]
        fit = [
            name
            for name, times in self.deaths.items()
            if len(times) < IN_A_ROW or times[-1] < now - STEADY
        ]
        victim = self.chance.choice(alive or fit or list(VICTIMS))
        times = self.deaths[victim]
        if times and times[-1] < now - STEADY:
            times.clear()
        times.append(now)
        return victim


def within() -> float:
    """On a machine that has nothing else to do. Elsewhere a process that starts anew gets its
    share of the processors, no more.
    """
    return WITHIN * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def test_claims_survive_a_kill_of_any_process_under_load(
    stack: Stack, token: str, request: pytest.FixtureRequest
) -> None:
    rounds = request.config.getoption("--fault-rounds")
    seed = request.config.getoption("--fault-seed") or random.SystemRandom().randrange(1, 10**6)
    print(f"seed {seed}")
    draw, ledger = Draw(random.Random(seed)), Ledger()
    callers: list[Caller] = [
        Keeper(f"keeper-{pool}", stack.port, token, pool, ledger) for pool in POOLS
    ]
    callers += [
        Caller(f"caller{n}-{pool}", stack.port, token, pool, ledger)
        for pool in POOLS
        for n in range(CALLERS)
    ]
    for caller in callers:
        caller.start()
    slowest: dict[str, float] = {}
    try:
        assert ledger.wait_served(POOLS, 0, within()), "nobody is served at all"
        for number in range(rounds):
            # At some moment of the load.
            ledger.wait_served(POOLS, time.monotonic() + draw.chance.uniform(0, 0.5), within())
            victim = draw.next()
            os.kill(stack.wait_for_process(VICTIMS[victim]), signal.SIGKILL)
            killed_at = time.monotonic()
            where = f"round {number} of seed {seed}, kill -9 of {victim}"
            assert ledger.wait_served(POOLS, killed_at, limit := within()), (
                f"{where}: nobody served in {limit:.0f} s\n{stack.heard[-5000:]}"
            )
            slowest[victim] = max(slowest.get(victim, 0.0), time.monotonic() - killed_at)
            assert not ledger.broken, f"{where}: {ledger.broken}"
            assert audit(stack) == {}, where
    finally:
        for caller in callers:
            caller.stopped.set()
        for caller in callers:
            caller.join(90)
    print(
        "served again after at most",
        {victim: f"{seconds:.1f} s" for victim, seconds in sorted(slowest.items())},
    )
    assert [caller.error for caller in callers if caller.error] == []
    assert ledger.broken == []
    assert len(ledger.promises) > rounds
    check_promises(stack, ledger)
    check_world(stack)
    report = stack.manage("doctor", "--json")
    assert report.returncode == 0, report.stdout + report.stderr


def audit(stack: Stack) -> dict[str, int]:
    """Who holds what, read from the rows alone."""
    return {name: n for name, query in AUDIT.items() if (n := stack.execute(query)[0][0])}


def check_promises(stack: Stack, ledger: Ledger) -> None:
    """Against the rows: every claim that was acknowledged is there, under its key, and as it was
    said to be.
    """
    columns = "id, key, state, outcome, generation, acknowledged_at is not null"
    rows = {row[0]: row[1:] for row in stack.execute(f"select {columns} from claims_claim")}

    def is_true(key: str, promise: Promise) -> bool:
        if promise.claim not in rows:
            return False
        its_key, state, outcome, generation, is_acknowledged = rows[promise.claim]
        return (
            its_key == key
            and (not promise.generation or generation == promise.generation)
            and (not promise.is_acknowledged or is_acknowledged)
            and (not promise.is_released or (state, outcome) == ("ended", "released"))
            and (not promise.is_kept or state == "bound")
        )

    broken = {
        key: (promise, rows.get(promise.claim))
        for key, promise in ledger.promises.items()
        if not is_true(key, promise)
    }
    assert broken == {}
    assert sum(promise.is_kept for promise in ledger.promises.values()) == len(POOLS)


def check_world(stack: Stack) -> None:
    """What is idle is clean outside, and nothing outside is of anybody but its present or its
    last holder.
    """
    query = """select s.id, s.state, coalesce(s.claim_id, s.last_claim_id),
               s.generation from slots_slot s
               join pools_pool p on p.id = s.pool_id where p.queue <> ''"""
    rows = {row[0]: row[1:] for row in stack.execute(query)}
    for slot, content in read_world().items():
        state, claim, generation = rows[slot]
        assert state != "idle", f"slot {slot} is idle, and outside it is in use by {content}"
        assert content == f"{claim} {generation}" or state == "held", (
            f"slot {slot}, {state} for {claim} {generation}, is {content} outside"
        )
