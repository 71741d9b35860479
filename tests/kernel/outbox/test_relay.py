"""The relay sends hints for committed rows to web processes and workers; without Valkey no work
is lost.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import connection, connections
from kombu import Connection

from project.celery import app
from project.kernel.events.log import renumber_future_events
from project.kernel.models import Operation
from project.kernel.outbox import relay, tasks
from project.kernel.outbox.operations import (
    AcquiredOperation,
    add_operation,
    list_due_queues,
    register_performer,
)
from project.kernel.outbox.performer import Performer
from project.kernel.outbox.relay import LiveRelay, QueueRelay

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("performers")]


@pytest.fixture
def done() -> list[int]:
    seen: list[int] = []

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        seen.append(taken.id)

    return seen


@pytest.fixture
def queue() -> Iterator[Any]:
    """A queue that no other process reads."""
    with Connection(settings.CELERY_BROKER_URL) as connection:
        with connection.SimpleQueue("test-relay") as found:
            found.clear()
            yield found
            found.clear()
            found.close()


def drain(queue: Any) -> int:
    """How many messages there were. A queue that never had one does not exist."""
    count = 0
    while True:
        try:
            queue.get_nowait().ack()
        except queue.Empty:
            return count
        count += 1


@pytest.fixture
def nowhere() -> str:
    """An address without a server."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"redis://127.0.0.1:{s.getsockname()[1]}/0"


@pytest.fixture
def live() -> Iterator[LiveRelay]:
    found = LiveRelay()
    yield found
    found.close()


@pytest.fixture
def queues() -> Iterator[QueueRelay]:
    found = QueueRelay()
    yield found
    found.close()


def test_web_processes_are_notified_of_new_events(live):
    def step() -> None:
        live.step()
        connections.close_all()

    async def listen() -> Any:
        layer: Any = get_channel_layer()
        channel = await layer.new_channel()
        await layer.group_add(relay.LIVE_GROUP, channel)
        await asyncio.to_thread(step)
        return await asyncio.wait_for(layer.receive(channel), 10), await layer.flush()

    assert asyncio.run(listen())[0] == {"type": "more"}


def test_live_hints_are_sent_at_most_ten_times_a_second(live, monkeypatch):
    sent: list[float] = []

    async def send() -> None:
        sent.append(time.monotonic())

    monkeypatch.setattr(relay, "_send_live", send)
    for _ in range(4):
        live.step()
    assert sent[-1] - sent[0] >= 2 * relay.LIVE_INTERVAL


def test_without_valkey_live_hints_are_dropped_and_logged_once(live, nowhere, caplog, monkeypatch):
    layer: Any = type(get_channel_layer())(hosts=[{"address": nowhere}])
    monkeypatch.setattr(relay, "get_channel_layer", lambda: layer)
    monkeypatch.setattr(relay, "LIVE_INTERVAL", 0.0)
    start = time.monotonic()
    for _ in range(3):
        assert live.step() is False
    assert time.monotonic() - start < 3 * (relay.TIMEOUT + 0.5)
    assert caplog.text.count("live hints are not sent") == 1


def test_return_of_valkey_is_logged_once(live, caplog, monkeypatch):
    states = iter([ConnectionRefusedError("no"), ConnectionRefusedError("no"), None, None])

    async def send() -> None:
        if (error := next(states)) is not None:
            raise error

    monkeypatch.setattr(relay, "_send_live", send)
    monkeypatch.setattr(relay, "LIVE_INTERVAL", 0.0)
    with caplog.at_level("INFO"):
        for _ in range(4):
            live.step()
    told = [r.getMessage() for r in caplog.records if r.name == "project.kernel.outbox.relay"]
    assert [t.partition(",")[0].partition(":")[0] for t in told] == [
        "live hints are not sent",
        "live hints are sent again",
    ]


def test_relay_renumbers_restored_events_before_the_first_hint(live, monkeypatch):
    order: list[str] = []

    async def send() -> None:
        order.append("told")

    monkeypatch.setattr(relay, "renumber_future_events", lambda: order.append("renumbered"))
    monkeypatch.setattr(relay, "_send_live", send)
    live.step()
    live.step()
    assert order == ["renumbered", "told", "told"]
    assert renumber_future_events() == 0


def test_workers_receive_only_the_name_of_a_queue(queue, queues):
    add_operation(lane="a", kind="sync", queue="test-relay")
    queues.step()
    message = queue.get(timeout=10)
    assert message.headers["task"] == tasks.PERFORM
    assert message.payload[0] == ["test-relay"]
    assert message.headers["expires"] is not None
    assert message.headers["ignore_result"] is True
    assert message.headers["eta"] is None
    message.ack()


def test_queue_is_not_announced_repeatedly(queue, queues):
    add_operation(lane="a", kind="sync", queue="test-relay")
    for _ in range(10):
        queues.step()
    assert drain(queue) == 1


def test_queue_without_due_operations_is_not_announced(queue, queues):
    add_operation(lane="a", kind="sync", queue="test-relay", delay=60)
    queues.step()
    assert drain(queue) == 0


def test_queue_with_due_operations_is_announced_again(queue, queues, monkeypatch):
    add_operation(lane="a", kind="sync", queue="test-relay")
    queues.step()
    monkeypatch.setattr(relay, "RENEW", 0.0)
    queues.step()
    assert drain(queue) == 2


def test_without_valkey_operations_wait_and_nothing_blocks(nowhere, caplog, monkeypatch):
    monkeypatch.setattr(relay, "RENEW", 0.0)
    for name in ("a", "b", "c"):
        add_operation(lane="x", kind="sync", queue=name)
    queues = QueueRelay(Celery("nowhere", broker=nowhere, set_as_current=False))
    start = time.monotonic()
    for _ in range(2):
        assert queues.step() is False
    assert time.monotonic() - start < 10
    assert caplog.text.count("queue hints are not sent") == 1
    assert list_due_queues() == ["a", "b", "c"]
    queues.close()


def test_worker_performs_until_nothing_is_due(done):
    wanted = [add_operation(lane=f"lane-{n % 7}", kind="sync", queue="q") for n in range(60)]
    assert tasks.perform("q") == 60
    assert sorted(done) == wanted


def test_worker_that_loses_its_database_session_warns_and_performs_later(caplog):
    sessions = []

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        sessions.append(connection.connection)
        if len(sessions) == 1:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    add_operation(lane="a", kind="sync", queue="q")
    assert tasks.perform("q") == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the database does not answer: terminating connection" in caplog.text
    tasks.OutboxPoller(frozenset({"q"})).poll()
    assert tasks.perform("q") == 1
    assert len(set(sessions)) == 2


def test_worker_with_nothing_due_performs_nothing(done):
    assert tasks.perform("q") == 0


def test_worker_out_of_time_leaves_due_operations(done, monkeypatch):
    monkeypatch.setattr(tasks, "DRAIN", -1.0)
    add_operation(lane="a", kind="sync", queue="q")
    assert tasks.perform("q") == 0


def test_task_is_registered_under_the_name_the_relay_sends():
    app.finalize()
    assert tasks.perform.name == tasks.PERFORM
    assert tasks.PERFORM in app.tasks


def test_worker_without_messages_polls_by_itself(done):
    """Valkey is away, or the relay: what has been due for a while is performed all the same."""
    late = add_operation(lane="a", kind="sync", queue="mine")
    add_operation(lane="a", kind="sync", queue="another worker's")
    poller = tasks.OutboxPoller(frozenset({"mine"}))
    assert poller.poll() == 0, "not yet: somebody is about to be told"
    Operation.objects.update(due_at="2020-01-01T00:00:00Z")
    assert poller.poll() == 1
    assert done == [late]


def test_poller_stops_with_its_worker(monkeypatch):
    monkeypatch.setattr(tasks, "POLL", 0.01)
    looked = threading.Event()
    poller = tasks.OutboxPoller(frozenset())
    monkeypatch.setattr(poller, "poll", lambda: looked.set() or 0)
    poller.start()
    assert looked.wait(10)
    poller.stop()
    poller._thread.join(10)
    assert not poller._thread.is_alive()


def test_operations_can_be_performed_without_celery(done):
    add_operation(lane="a", kind="sync", queue="one")
    add_operation(lane="a", kind="sync", queue="two")
    performer = Performer()
    assert performer.step() is True
    assert performer.step() is False
    assert len(done) == 2
