"""A machine that is short of everything, and lists that come late: the agent goes on."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slots.agent import loop as loop_module
from slots.agent import state as state_module
from slots.agent.client import Client
from slots.agent.journal import Journal
from slots.agent.loop import Agent as Loop
from slots.agent.reporting import Reporter
from slots.agent.runner import Context, Run
from slots.agent.state import FINISHED, LOST, REPORTED, RUNNING, Record, State
from slots.agent.users import TaskUsers
from slots.agent.wire import Order, Orders

from .server import TOKEN, Server


@pytest.fixture
def context(server: Server, tmp_path: Path) -> Iterator[Context]:
    base = tmp_path / "work"
    base.mkdir()
    client = Client(server.url, lambda: TOKEN, None)
    yield Context(client, State(tmp_path / "state"), base, TaskUsers("same"), "b", "i", Journal(), lambda: None)
    client.close()


def write_record(context: Context, generation: int, **more: Any) -> Record:
    record = Record(1, generation, more.pop("step", "plan"), 1, **more)
    context.state.save(record)
    (context.base / record.name / "src").mkdir(parents=True)
    return record


def test_an_old_generation_leaves_the_folder_of_a_newer_one(context: Context) -> None:
    lost = write_record(context, 9, phase=REPORTED)
    write_record(context, 10, phase=REPORTED, keep=True)
    Reporter(context, lost).report_lost()
    assert not (context.base / "1-9").exists() and (context.base / "1-10").exists()
    Reporter(context, write_record(context, 12, step="apply", phase=REPORTED)).report_lost()
    assert not list(context.base.iterdir())


@pytest.fixture
def loop(context: Context) -> Loop:
    loop = Loop(context)
    context.wake = lambda: loop.inbox.put(("wake", None))
    return loop


def turn(loop: Loop, condition: Callable[[], Any]) -> None:
    """The loop's turns, until it has come to it."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it did not come to it"
        with contextlib.suppress(queue.Empty):
            loop._try(loop._hear, loop.inbox.get(timeout=0.05))
        for step in (loop._reap, loop._report_again, loop._reconcile, loop._let_go):
            loop._try(step)


def finish(context: Context, result: dict[str, Any], **more: Any) -> Record:
    record = Record(1, 10, "plan", 1, phase=FINISHED, has_plan=True, **more)
    record.result = {"outcome": "planned", "code": "", "reason": "", "log": {"next": 0}, **result}
    context.state.save(record)
    return record


def test_a_machine_without_threads_or_disk_begins_later(
    server: Server, context: Context, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "BEGIN_AGAIN", 0.1)
    server.order(1, 10)
    loop.orders = Orders("v", (Order(1, 10, "plan", 1),), ())
    begin = threading.Thread.start
    troubles: list[Exception] = [RuntimeError("can't start new thread"), OSError(28, "No space left on device")]

    def start(thread: threading.Thread) -> None:
        if isinstance(thread, Run) and troubles:
            raise troubles.pop()
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    loop._try(loop._reconcile)
    assert (loop.runs, context.state.list_records(), list(context.state.runs.iterdir())) == ({}, [], [])
    turn(loop, lambda: (1, 10) in server.results)
    assert server.results[1, 10]["outcome"] == "planned" and not troubles


def test_a_full_disk_ends_no_agent(server: Server, context: Context, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    write_record(context, 10, phase=REPORTED, keep=True)
    lost = write_record(context, 12, phase=RUNNING, status=LOST)
    loop.lost = [lost]

    def refuse(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_module, "write_whole", refuse)
    monkeypatch.setattr(state_module, "MOST_KEPT", 0)
    loop._try(loop._sweep)
    loop.orders, loop.heard = Orders("v", (), (), keep=frozenset()), 5
    loop._settle_lost([lost])
    turn(loop, lambda: not loop.runs)
    assert loop.lost == [] and lost.phase == REPORTED
    lost.keep, loop.unwanted_since = True, {(1, 12): 0}
    (context.base / "1-12").mkdir()
    loop._let_go()
    assert not (context.base / "1-12").exists()


def test_a_result_whose_report_fails_here_is_no_loss(server: Server, context: Context, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "REPORT_AGAIN", 0.1)
    record = finish(context, {})
    (context.base / "1-10").mkdir()
    (context.base / "1-10" / "saved-plan").write_bytes(b"saved")
    send, troubles = Reporter._send, [OSError(24, "Too many open files"), OSError(24, "Too many open files")]

    def fail(reporter: Reporter) -> None:
        if troubles:
            raise troubles.pop()
        send(reporter)

    monkeypatch.setattr(Reporter, "_send", fail)
    loop._report(record)
    turn(loop, lambda: loop.unreported)
    assert loop.lost == []
    turn(loop, lambda: record.phase == REPORTED and not loop.runs)
    assert server.plans[1, 10] == b"saved" and loop.lost == [] and not loop.unreported


def test_a_plan_that_is_gone_from_the_disk_fails_with_a_reason(server: Server, context: Context) -> None:
    Reporter(context, finish(context, {})).report()
    assert (server.results[1, 10]["outcome"], server.results[1, 10]["code"]) == ("failed", "disk_full")
    assert "no longer on the agent's disk" in server.results[1, 10]["reason"]
