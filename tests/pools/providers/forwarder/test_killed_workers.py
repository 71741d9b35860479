"""A worker may die by SIGKILL at every step: the next call leaves no double and no orphan."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pools.providers.forwarder.control_client import NotAnswering
from pools.providers.forwarder.forwarder_folder import STARTS as START_TIMES
from pools.providers.forwarder.provider import ForwarderProvider
from project.kernel.outbox.operations import ConflictError
from tests.pools.providers.forwarder.helpers import (
    LOCALHOST,
    QUIET,
    TcpTarget,
    ask_tcp,
    call,
    counts_of,
    exchange,
    folder,
    free_ports,
    is_refused,
    member,
    places,
    pool,
    process_id,
    processes_in,
    slot,
    start,
    sync,
)
from tests.pools.providers.forwarder.killed_worker import KilledWorkers
from tests.waiting import wait_until

PROVIDER = "pools.providers.forwarder.provider"
STARTS = [
    (f"{PROVIDER}.make_folder", "after"),
    (f"{PROVIDER}.write_pool", "after"),
    ("pools.providers.forwarder.addresses.assign", "after"),
    ("project.kernel.embedded.detached.adopt", "before"),  # started, and not recorded
    (f"{PROVIDER}.start_process", "after"),
    (f"{PROVIDER}.ask", "before"),
    (f"{PROVIDER}.ask", "after"),
]


@pytest.fixture(scope="module")
def workers() -> Iterator[KilledWorkers]:
    found = KilledWorkers()
    yield found
    found.close()


@pytest.mark.parametrize("step", STARTS, ids="-".join)
def test_start_goes_on_where_a_killed_worker_left_it(
    home: Path, workers: KilledWorkers, step: tuple[str, str]
) -> None:
    port = free_ports()
    with TcpTarget("a") as target:
        workers.run(home, step, "creating", slots=[[port, target.at]])
        left = processes_in(home)
        assert len(left) <= 1
        report = start(slot(port, target.at))
        assert places(report) == [("tcp", port)]
        assert ask_tcp(port) == b"ahello"
        assert processes_in(home) == [process_id()]
        assert left in ([], [process_id()])  # adopted, not replaced


@pytest.mark.parametrize("step", STARTS[3:], ids="-".join)
def test_restart_goes_on_where_a_killed_worker_left_it(
    home: Path, workers: KilledWorkers, step: tuple[str, str]
) -> None:
    port = free_ports()
    with TcpTarget("a") as target:
        start(slot(port, target.at))
        slots = [[port, target.at]]
        workers.run(home, step, "creating", slots=slots, incarnation=2)
        made = member("creating", slot(port, target.at), incarnation=2)
        assert ForwarderProvider().sync(pool(made), made).is_ready
        assert ask_tcp(port) == b"ahello"
        assert processes_in(home) == [process_id()]


def test_port_that_an_unrecorded_restart_serves_is_not_clean(
    home: Path, workers: KilledWorkers
) -> None:
    port, drains = free_ports(), QUIET | {"drain": "1h"}

    def serves() -> bool:
        with suppress(NotAnswering):
            return bool(counts_of(port))
        return False

    with TcpTarget("a") as target:
        start(slot(port, target.at), options=drains)
        os.kill(process_id(), signal.SIGKILL)
        wait_until(lambda: not process_id())
        workers.run(home, STARTS[3], "ready", slots=[[port, target.at]])
        (folder() / START_TIMES).write_text(json.dumps([time.time()] * 5))  # the next start waits
        (left,) = processes_in(home)
        wait_until(serves)
        with call(LOCALHOST, port) as client:
            wait_until(lambda: counts_of(port)["connections"] == 1)
            report = sync(slot(port, state="draining"), options=drains)
            assert (report.clean, report.down) == (frozenset(), "")
            assert exchange(client, b"x") == b"ax"
    assert process_id() == left


@pytest.mark.parametrize("when", ["before", "after"])
def test_change_is_complete_after_a_killed_worker(
    home: Path, workers: KilledWorkers, when: str
) -> None:
    port = free_ports(2)
    with TcpTarget("a") as old, TcpTarget("b") as new:
        start(slot(port, old.at))
        wanted = [[port, new.at], [port + 1, old.at]]
        workers.run(home, (f"{PROVIDER}.ask", when), "ready", slots=wanted)
        report = sync(slot(port, new.at), slot(port + 1, old.at))
        assert places(report) == [("tcp", port), ("tcp", port + 1)]
        assert (ask_tcp(port), ask_tcp(port + 1)) == (b"bhello", b"ahello")
    assert len(processes_in(home)) == 1


@pytest.mark.parametrize(
    "step",
    [
        (f"{PROVIDER}.ask", "before"),
        (f"{PROVIDER}.ask", "after"),
        (f"{PROVIDER}.remove", "before"),
        ("project.kernel.embedded.detached.end", "before"),
        ("project.kernel.embedded.detached.end", "after"),
        ("shutil.rmtree", "before"),
        ("shutil.rmtree", "after"),
    ],
    ids="-".join,
)
def test_deletion_is_complete_after_a_killed_worker(
    home: Path, workers: KilledWorkers, step: tuple[str, str]
) -> None:
    port, gone = free_ports(), member("deleting")
    start(slot(port))
    workers.run(home, step, "deleting")
    assert ForwarderProvider().sync(pool(gone), gone).is_gone
    assert processes_in(home) == []
    assert not folder().exists()
    assert is_refused(port)


def test_two_workers_that_start_a_member_at_once_start_one_process(home: Path) -> None:
    barrier, refused = threading.Barrier(2), []

    def work() -> None:
        barrier.wait()
        try:
            start()
        except ConflictError as error:
            refused.append(error)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert len(refused) <= 1
    assert processes_in(home) == [process_id()]
