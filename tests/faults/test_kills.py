"""kill -9 of any process at any moment, under load: no acknowledged claim is lost, no slot is held
twice, and both pools are served again.

pytest tests/faults --fault-rounds 200      a longer run
pytest tests/faults --fault-seed 4711       the same victims once more
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from project.kernel.embedded.process import free_port
from tests.end_to_end.stack import Stack
from tests.faults.checks import audit, check_doctor, check_promises, check_world
from tests.faults.load import Caller, Keeper, Ledger
from tests.faults.victims import ALL, Draw, kill
from tests.waiting import slack

# Seconds from a kill until a claim made after it is served, in each pool; twice as many on a busy
# machine, where a new process shares the processors.
WITHIN = 10.0
CALLERS = 2  # for each pool
ROUNDS = len(ALL)  # each process dies once
# Slots of the second pool drain, and workers clean them outside.
POOLS = ("busy", "outside")
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


def within() -> float:
    return WITHIN * slack()


def test_claims_survive_a_kill_of_any_process_under_load(
    stack: Stack, token: str, request: pytest.FixtureRequest
) -> None:
    rounds = request.config.getoption("--fault-rounds") or ROUNDS
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
            kill(stack, victim, draw.chance)
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
    assert set(slowest) == set(ALL) or rounds < ROUNDS
    print(
        "served again after at most",
        {victim: f"{seconds:.1f} s" for victim, seconds in sorted(slowest.items())},
    )
    assert [caller.error for caller in callers if caller.error] == []
    assert ledger.broken == []
    assert len(ledger.promises) > rounds
    check_promises(stack, ledger)
    assert sum(promise.is_kept for promise in ledger.promises.values()) == len(POOLS)
    check_world(stack)
    check_doctor(stack)
