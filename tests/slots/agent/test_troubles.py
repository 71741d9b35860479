"""The agent keeps working on a machine that is short of threads, disk or memory, and with late
order lists.
"""

import contextlib
import hashlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slots.agent import loop as loop_module
from slots.agent.common import state as state_module
from slots.agent.common.log import AgentLog
from slots.agent.common.state import FINISHED, LOST, REPORTED, RUNNING, Record, State
from slots.agent.executors import state_rescue as rescue_module
from slots.agent.loop import Agent as Loop
from slots.agent.poller import Poller
from slots.agent.processes.users import TaskUsers
from slots.agent.reporting import Reporter
from slots.agent.runner import Context, TaskThread
from slots.agent.server.client import BerthClient
from slots.agent.server.protocol import Hello, Order, Orders, StopOrder, UploadLimits

from .conftest import Agent as AgentProcess
from .fake_berth import TOKEN, Server


@pytest.fixture
def context(server: Server, tmp_path: Path) -> Iterator[Context]:
    base = tmp_path / "work"
    base.mkdir()
    client = BerthClient(server.url, lambda: TOKEN, None)
    yield Context(
        client,
        State(tmp_path / "state"),
        base,
        TaskUsers("same"),
        "b",
        "i",
        AgentLog(),
        lambda: None,
    )
    client.close()


def write_record(context: Context, generation: int, **more: Any) -> Record:
    record = Record(1, generation, more.pop("step", "plan"), 1, **more)
    context.state.save(record)
    (context.base / record.name / "src").mkdir(parents=True)
    return record


def test_old_generation_does_not_remove_the_folder_of_a_newer_one(context: Context) -> None:
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
            loop._try(loop._handle_message, loop.inbox.get(timeout=0.05))
        for step in (loop._reap, loop._report_again, loop._reconcile, loop._delete_unused_plans):
            loop._try(step)


def test_hello_names_a_run_whose_state_is_being_rescued(
    context: Context, loop: Loop, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red where the run is neither running nor lost meanwhile: the server frees its slot before
    it knows of the state.
    """
    first, second = (
        write_record(context, number, step="apply", phase=RUNNING, stage="apply")
        for number in (10, 11)
    )
    loop.leftovers.ending = [first, second]
    monkeypatch.setattr(loop_module, "rescue_state", lambda *_: loop.hello() and "")
    loop._collect_ended()
    loop.hello()
    told = [{run["generation"]: run["status"] for run in hello["runs"]} for hello in server.hellos]
    assert told == [
        {10: "running", 11: "running"},
        {10: "lost", 11: "running"},
        {10: "lost", 11: "lost"},
    ]


def finish(context: Context, result: dict[str, Any], **more: Any) -> Record:
    record = Record(1, 10, "plan", 1, phase=FINISHED, has_plan=True, **more)
    record.result = {"outcome": "planned", "code": "", "reason": "", "log": {"next": 0}, **result}
    context.state.save(record)
    return record


def leave_state(
    context: Context, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> tuple[Record, list[int]]:
    """An apply whose state can be neither copied nor moved as often as the list says."""
    source = context.base / "1-11" / "src"
    troubles, copy = [1, 1], rescue_module.copy
    record = write_record(
        context, 11, step="apply", stage="apply", extra={"state": [str(source), ".", ""]}, **more
    )
    (source / "errored.tfstate").write_bytes(b"state")

    def fail(*given: Any) -> None:
        if troubles:
            troubles.pop()
            raise OSError(28, "No space left on device")
        copy(*given)

    def refuse(*_: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(rescue_module, "copy", fail)
    monkeypatch.setattr(rescue_module, "move_plain", refuse)
    return record, troubles


def test_state_is_rescued_before_the_result_is_reported(
    context: Context, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red where the folder goes with the only copy once the result is in."""
    record, troubles = leave_state(context, monkeypatch, phase=FINISHED)
    record.result = {
        "outcome": "failed",
        "code": "state_not_saved",
        "reason": "",
        "log": {"next": 0},
    }
    server.order(1, 11, "apply")
    Reporter(context, record).report()
    assert troubles == [] and server.states == {(1, 11): b"state"}
    assert record.phase == REPORTED and not (context.base / "1-11").exists()


def test_earlier_run_is_reported_lost_only_after_its_state_is_rescued(
    context: Context, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_state(context, monkeypatch, phase=RUNNING)
    loop.recover()
    assert [record.name for record in loop.leftovers.ending] == ["1-11"]
    loop._collect_ended()
    assert loop.lost == []
    loop._collect_ended()
    assert ([record.name for record in loop.lost], loop.leftovers.ending) == (["1-11"], [])
    assert (context.state.folder / "rescued" / "1-11.tfstate").read_bytes() == b"state"


def test_plan_folder_stays_while_a_reaper_ends_its_apply(context: Context, loop: Loop) -> None:
    """Red where only orders and runs of this start count: a cancelled apply would lose the
    folder it still works in.
    """
    write_record(context, 10, phase=REPORTED, keep=True)
    loop.leftovers.ending = [write_record(context, 11, step="apply", phase=RUNNING, stage="apply")]
    orders, folders = Orders("v", (), (), keep=frozenset()), loop.folders
    folders.lists, folders.unwanted_since = 9, {(1, 10): 0}
    folders.delete_unused_plans(orders, set())
    assert (context.base / "1-10").exists()
    loop.leftovers.ending = []
    folders.unwanted_since = {(1, 10): 0}
    folders.delete_unused_plans(orders, set())
    assert not (context.base / "1-10").exists()


def test_run_starts_later_when_threads_or_disk_are_exhausted(
    server: Server, context: Context, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "BEGIN_AGAIN", 0.1)
    server.order(1, 10)
    loop.orders = Orders("v", (Order(1, 10, "plan", 1),), ())
    begin = threading.Thread.start
    troubles: list[Exception] = [
        RuntimeError("can't start new thread"),
        OSError(28, "No space left on device"),
    ]

    def start(thread: threading.Thread) -> None:
        if isinstance(thread, TaskThread) and troubles:
            raise troubles.pop()
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    loop._try(loop._reconcile)
    assert (loop.runs, context.state.list_records(), list(context.state.runs.iterdir())) == (
        {},
        [],
        [],
    )
    turn(loop, lambda: (1, 10) in server.results)
    assert server.results[1, 10]["outcome"] == "planned" and not troubles


def test_full_disk_does_not_end_the_agent(
    server: Server, context: Context, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_record(context, 10, phase=REPORTED, keep=True)
    lost = write_record(context, 12, phase=RUNNING, status=LOST)
    loop.lost = [lost]

    def refuse(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_module, "write_whole", refuse)
    monkeypatch.setattr(state_module, "MOST_KEPT", 0)
    loop._try(loop.folders.sweep)
    loop.orders, loop.folders.lists = Orders("v", (), (), keep=frozenset()), 5
    loop._report_lost([lost])
    turn(loop, lambda: not loop.runs)
    assert loop.lost == [] and lost.phase == REPORTED
    lost.keep, loop.folders.unwanted_since = True, {(1, 12): 0}
    (context.base / "1-12").mkdir()
    loop.folders.delete_unused_plans(loop.orders, set())
    assert not (context.base / "1-12").exists()


def test_locally_failed_report_is_retried_and_not_lost(
    server: Server, context: Context, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "REPORT_AGAIN", 0.1)
    record = finish(context, {})
    (context.base / "1-10").mkdir()
    (context.base / "1-10" / "saved-plan").write_bytes(b"saved")
    send, troubles = (
        Reporter._send,
        [OSError(24, "Too many open files"), OSError(24, "Too many open files")],
    )

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


def test_plan_missing_from_the_disk_fails_with_a_reason(server: Server, context: Context) -> None:
    Reporter(context, finish(context, {})).report()
    assert (server.results[1, 10]["outcome"], server.results[1, 10]["code"]) == (
        "failed",
        "disk_full",
    )
    assert "no longer on the agent's disk" in server.results[1, 10]["reason"]


def test_kept_folders_and_records_are_bounded(
    server: Server, context: Context, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "MOST_KEPT", 1)
    monkeypatch.setattr(state_module, "MOST_REPORTED", 1)
    for claim in (1, 2, 3):
        for generation, keep in ((claim * 10, True), (claim * 10 + 1, False)):
            context.state.save(Record(claim, generation, "plan", 1, phase=REPORTED, keep=keep))
        (context.base / f"{claim}-{claim * 10}").mkdir()
    loop.orders = Orders("v", (Order(1, 12, "apply", 1),), ())
    context.state.save(Record(1, 12, "apply", 1, phase=REPORTED))
    loop._report(Record(9, 90, "plan", 1, phase=REPORTED, status=LOST))
    turn(loop, lambda: not loop.runs)
    # Of one an apply is due, the other is the newest.
    assert sorted(folder.name for folder in context.base.iterdir()) == ["1-10", "3-30"]
    names = {record.name for record in context.state.list_records()}
    assert names == {"1-10", "1-11", "1-12", "3-30", "3-31"}


def test_run_whose_start_was_unanswered_at_quit_is_reported_not_started(
    server: Server, context: Context, loop: Loop
) -> None:
    server.hooks["tasks/1/10/started/"] = lambda exchange: setattr(
        exchange, "close_connection", True
    )
    server.order(1, 10)
    loop.orders = Orders("v", (Order(1, 10, "plan", 1),), ())
    turn(loop, lambda: ("POST", "tasks/1/10/started/") in server.calls)
    loop._handle_signal(2)
    turn(loop, lambda: loop.lost)
    assert [(record.phase, record.status) for record in loop.lost] == [("accepted", "not_started")]


def test_stopped_slot_is_reported_despite_local_errors(
    server: Server, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    poller = Poller(
        context,
        lambda message: None,
        lambda: Hello("", "", 1, 1, UploadLimits(), Orders("", (), ())),
    )
    post, troubles = context.client.post, [RuntimeError("can't start new thread"), MemoryError()]

    def fail(*given: Any, **more: Any) -> Any:
        if troubles:
            raise troubles.pop()
        return post(*given, **more)

    monkeypatch.setattr(context.client, "post", fail)
    poller.stopper.start()
    poller.report_stopped([StopOrder(1, 10)])
    server.wait(lambda: server.stopped == [(1, 10)])
    assert troubles == []
    context.quit_now.set()
    poller.end()
    poller.stopper.join(10)


@pytest.mark.parametrize("call", ["plan/", "result/"])
@pytest.mark.parametrize("status", [503, 507])
def test_upload_refused_by_a_full_server_is_kept_and_sent_again(
    call: str, status: int, server: Server, agent: AgentProcess
) -> None:
    path = f"tasks/1/10/{call}"
    server.hooks[path] = lambda exchange: exchange.answer(
        status, {"code": "disk_full", "detail": "The disk is full."}
    )
    server.order(1, 10, commands={"plan": 'echo planned > "$BERTH_PLAN_FILE"'})
    method = "PUT" if call == "plan/" else "POST"
    server.wait(lambda: server.calls.count((method, path)) > 1)
    assert (1, 10) not in server.results
    server.hooks.clear()
    result = server.result(1, 10)
    assert (result["outcome"], result["digest"]) == (
        "planned",
        hashlib.sha256(b"planned\n").hexdigest(),
    )
