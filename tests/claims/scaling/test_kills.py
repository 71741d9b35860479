"""kill -9 of a scaler at its worst moments, over real processes of this machine: between its
decision and the rows, between rows and operations, before its commit, and after the operation.
No member is doubled or left over, and no busy member is removed.

The moments are exact: a trigger stops the scaler on a lock that the test holds, and the scaler
that waits for it is killed.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from claims.allocation.claim_view import ClaimView
from claims.scaling.scaler import scale_pools
from pools.lifecycle.services import create_pool
from pools.models import Decision, Member, Pool
from pools.providers.local import agent_folder
from project.kernel.embedded import detached
from project.kernel.models import Operation
from project.kernel.outbox.operations import perform_due
from slots.members.liveness import mark_ready
from slots.members.services import clean_slot
from slots.models import Slot
from slots.sync.watcher import observe_pool
from tests.claims.helpers import again, ask, let_go, serve
from tests.claims.scaling.test_scaler import old
from tests.faults.traps import Trap, close_trap, install, list_trapped, open_trap, remove
from tests.slots.helpers import is_consistent
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
# Six rounds combine each moment, each number of claims and both ways down.
ROUNDS = int(os.environ.get("BERTH_TEST_ROUNDS", "6"))
# Where a trigger stops it: after the rows of members, before those of operations; before its
# commit, up and down.
MOMENTS = (
    Trap("decided", "pools_member", "AFTER INSERT"),
    Trap("written", "pools_decision", "BEFORE INSERT", "NEW.delta > 0"),
    Trap("removing", "pools_decision", "BEFORE INSERT", "NEW.delta < 0"),
)

# One process that has loaded everything and makes a new scaler for each line: a start costs no
# second then.
NURSERY = """
import os, signal, sys
import django
django.setup()
from django.db import connection
connection.settings_dict["NAME"] = sys.argv[1]
from claims.scaling.scaler import scale_pools
from project.kernel.actor import acting_as
for line in sys.stdin:
    child = os.fork()
    if not child:
        with connection.cursor() as cursor:  # however busy the machine is: it waits for the test, and for nothing else
            cursor.execute("SET lock_timeout = '60s'; SET statement_timeout = '60s'; SET idle_in_transaction_session_timeout = '60s'")
        with acting_as("scale"):
            scale_pools([int(line)])
        print("done", flush=True)
        signal.pause()
    print(child, flush=True)
    os.waitpid(child, 0)
    print("ended", flush=True)
"""  # noqa: E501


class Nursery:
    def __init__(self) -> None:
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "project.settings.test"}
        command = [sys.executable, "-c", NURSERY, connection.settings_dict["NAME"]]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, pool: Pool) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{pool.pk}\n")
        self.process.stdin.flush()
        return int(self.hear())

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        while self.hear() != "ended":
            pass

    def hear(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the scalers' parent has ended"
        return line.strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=20)


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    yield found
    found.end()


@pytest.fixture
def traps(transactional_db: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        install(cursor, MOMENTS)
    yield
    with connection.cursor() as cursor:
        remove(cursor, MOMENTS)


@pytest.fixture
def pool(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transactional_db: None
) -> Iterator[Pool]:
    settings.BERTH_HOME = tmp_path
    # No agent connects: the test reports the members as ready.
    monkeypatch.setenv("BERTH_AGENT_URL", "http://127.0.0.1:9/")
    scaling = {"policy": "on_demand", "idle_for": "1s", "cooldown": {"up": "0s", "down": "0s"}}
    found = create_pool(
        {
            "name": "lab",
            "provider": "local",
            "slots": ["any", "plan"],
            "members": {"min": 0, "max": 3},
            "scaling": scaling,
        }
    )
    observe_pool(found)
    found.refresh_from_db()
    yield found
    for folder in folders():
        if process := detached.read(folder):
            detached.end(process, 1)


def folders() -> list[Path]:
    return sorted(agent_folder.agents_home().glob("*"))


def running() -> list[str]:
    """Names of members whose agent runs, from the processes themselves."""
    found = [
        folder.name
        for folder in folders()
        if (process := detached.read(folder)) is not None and detached.is_alive(process)
    ]
    return sorted(name.removeprefix("lab-").rpartition(".")[0] for name in found)


def members(pool: Pool) -> list[str]:
    return sorted(
        Member.objects.filter(pool=pool).exclude(state="gone").values_list("name", flat=True)
    )


def open_operations() -> set[int]:
    return set(
        Operation.objects.filter(done_at__isnull=True, kind="sync").values_list("pk", flat=True)
    )


def kill_at(nursery: Nursery, pool: Pool, moment: str) -> None:
    """A scaler that is killed there. What it had not committed is as if it had never been."""
    number = [trap.name for trap in MOMENTS].index(moment)
    with connection.cursor() as cursor:
        close_trap(cursor, number)
        try:
            pid = nursery.start(pool)
            wait_until(lambda: list_trapped(cursor, number), f"no scaler waits at {moment!r}")
            nursery.kill(pid)
        finally:
            open_trap(cursor, number)


def kill_after(nursery: Nursery, pool: Pool) -> None:
    """Kills a scaler after its commit, before it acts outside."""
    pid = nursery.start(pool)
    assert nursery.hear() == "done"
    nursery.kill(pid)


def settle(pool: Pool) -> None:
    """Does the work that the killed scaler left: a scaler, the workers, the agents' first
    heartbeats and the watcher.
    """
    # The server notices the end of the killed scaler's connection a moment later.
    wait_until(lambda: scale_pools([pool.pk]), "a dead scaler keeps its lock")
    work()
    observe_pool(pool)
    for member in Member.objects.filter(pool=pool, state="creating"):
        mark_ready(member_id=member.pk, incarnation=member.incarnation)


def work() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_operation SET due_at = now() WHERE done_at IS NULL")
    perform_due("local")


def end_claims(claims: list[ClaimView]) -> None:
    for claim in claims:
        let_go(again(claim))
    for slot in Slot.objects.filter(state="draining"):
        clean_slot(slot_id=slot.pk, generation=slot.generation)


@pytest.mark.usefixtures("traps")
def test_a_scaler_killed_at_its_worst_moments_doubles_or_loses_no_member(
    nursery: Nursery, pool: Pool
) -> None:
    busy = ask(kind="plan")
    settle(pool)
    serve()
    keeper = Slot.objects.get(claim_id=busy.id).member
    process = detached.read(next(folder for folder in folders() if keeper.name in folder.name))
    assert process is not None
    ups = ("decided", "written", "operated")
    for number in range(ROUNDS):
        # Up: three more are wanted than are free, so one or two members more, of three at most.
        claims = [ask(kind="plan") for _ in range(2 + number % 3)]
        serve()
        before = (members(pool), open_operations(), running())
        if ups[number % 3] == "operated":
            kill_after(nursery, pool)
            assert (open_operations() > before[1], running()) == (True, before[2]), (
                "it is to be done outside, and nobody has done it"
            )
        else:
            kill_at(nursery, pool, ups[number % 3])
            assert (members(pool), open_operations(), running()) == before, (
                "as if it had never been"
            )
        for _ in range(3):
            settle(pool)
            serve()
            assert len(members(pool)) <= 3
            assert running() == members(pool), (
                "each has one process, and no process is without a member"
            )
        assert all(again(claim).state == "bound" for claim in claims)
        # Down: the first claim still runs, all other members are idle.
        end_claims(claims)
        old(pool, 60)
        there = members(pool)
        kill_at(nursery, pool, "removing")
        assert members(pool) == there
        assert not Member.objects.filter(pool=pool, state="deleting").exists()
        if number % 2:
            old(pool, 60)
            kill_after(nursery, pool)
        for _ in range(4):
            old(pool, 60)
            settle(pool)
        assert (members(pool), running()) == ([keeper.name], [keeper.name])
        slot = Slot.objects.get(claim_id=busy.id)
        assert (slot.state, slot.member.incarnation, slot.member.state) == ("held", 1, "ready")
        assert detached.is_alive(process), "its agent is the one that it always was"
    made = Member.objects.filter(pool=pool).count()
    ups_decided = sum(
        Decision.objects.filter(pool=pool, delta__gt=0).values_list("delta", flat=True)
    )
    downs_decided = -sum(
        Decision.objects.filter(pool=pool, delta__lt=0).values_list("delta", flat=True)
    )
    assert (ups_decided, downs_decided) == (made, made - 1), (
        "each was made and removed by one decision"
    )
    assert is_consistent()
