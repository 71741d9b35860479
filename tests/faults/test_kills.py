"""kill -9 of any process at any moment, under load: nothing acknowledged is lost, nothing is held twice, the line is served on.

BERTH_FAULT_ROUNDS=200 for a longer run, BERTH_FAULT_SEED to repeat one.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from project.kernel.embedded.process import free_port
from tests.faults.load import Caller, Ledger
from tests.ground.stack import Stack

ROUNDS = int(os.environ.get("BERTH_FAULT_ROUNDS", "20"))
SEED = int(os.environ.get("BERTH_FAULT_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
WITHIN = 10.0  # seconds from a kill until somebody who asked after it is served
CALLERS = 6
VICTIMS = {
    "web": "embedded.web",
    "allocate": "manage.py allocate",
    "finalize": "manage.py finalize",
    "relay": "manage.py relay",
    "worker": "celery",
    "postgres": "bin/postgres",
    "valkey": "valkey-server",
}
POOL = """
kind: Pool
name: busy
provider: static
slots: 2
members:
  list: [{name: a}, {name: b}, {name: c}]
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path / "state", free_port(), BERTH_APART="1").start()
    yield stack
    stack.stop()


@pytest.fixture
def token(stack: Stack, tmp_path: Path) -> str:
    (tmp_path / "busy.yaml").write_text(POOL)
    done = stack.manage("apply", "-f", str(tmp_path / "busy.yaml"))
    assert done.returncode == 0, done.stderr + done.stdout
    made = stack.manage("token", "create", "admin", "load")
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def test_any_process_may_die_at_any_moment(stack: Stack, token: str) -> None:
    chance, ledger = random.Random(SEED), Ledger()
    victims = chance.sample(sorted(VICTIMS), len(VICTIMS)) + chance.choices(sorted(VICTIMS), k=max(0, ROUNDS - len(VICTIMS)))
    callers = [Caller(f"caller{n}", stack.port, token, "busy", ledger) for n in range(CALLERS)]
    for caller in callers:
        caller.start()
    try:
        assert ledger.wait_served(0, WITHIN), "nobody is served at all"
        for number, victim in enumerate(victims[:ROUNDS]):
            where = f"round {number} of seed {SEED}: kill -9 of {victim}"
            ledger.wait_served(time.monotonic() + chance.uniform(0, 0.5), WITHIN)  # at some moment of the load
            os.kill(stack.wait_for_process(VICTIMS[victim]), signal.SIGKILL)
            assert ledger.wait_served(time.monotonic(), WITHIN), f"{where}: nobody was served within {WITHIN:g} s\n{stack.heard[-5000:]}"
            assert not ledger.broken, f"{where}: {ledger.broken}"
    finally:
        for caller in callers:
            caller.stopped.set()
        for caller in callers:
            caller.join(60)
    assert [caller.error for caller in callers if caller.error] == []
    assert len(ledger.promises) > ROUNDS
    check_promises(stack, ledger)
    report = stack.manage("doctor", "--json")
    assert report.returncode == 0, report.stdout + report.stderr


def check_promises(stack: Stack, ledger: Ledger) -> None:
    """Against the rows: every claim that was acknowledged is there, under its key; what was released is, and so on."""
    rows = {row[0]: row for row in stack.execute("select id, key, state, outcome from claims_claim")}
    lost = [promise for key, promise in ledger.promises.items() if promise.claim not in rows or rows[promise.claim][1] != key]
    assert lost == []
    undone = [promise for promise in ledger.promises.values() if promise.is_released and rows[promise.claim][2:] != ("ended", "released")]
    assert undone == []
    twice = "select claim_id, ordinal from slots_slot where state in ('held', 'reserved') group by 1, 2 having count(*) > 1"
    assert stack.execute(twice) == []
