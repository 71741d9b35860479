"""The outbox as in production: relay, Valkey and a Celery worker in its own process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection

from project.kernel.controllers.runtime import StopRequest, run
from project.kernel.db.direct_connection import connect_direct
from project.kernel.events import notify
from project.kernel.models import Beat, Event, Operation
from project.kernel.outbox.operations import add_operation
from project.kernel.outbox.relay import QueueRelay
from tests.kernel.controllers.test_runtime import PATIENCE, ask, database_url, free_port

pytestmark = pytest.mark.django_db(transaction=True)
QUEUE = "test-worker"


@pytest.fixture
def probe_port() -> int:
    return free_port()


@pytest.fixture
def worker(probe_port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable,
        "-m",
        "celery",
        "--quiet",
        "-A",
        "project.celery",
        "worker",
        "--pool",
        "threads",
        "--concurrency",
        "2",
    ]
    command += [
        "-Q",
        QUEUE,
        "-I",
        "tests.kernel.outbox.celery_performer",
        "--without-mingle",
        "--without-gossip",
        "--without-heartbeat",
        "-l",
        "WARNING",
    ]
    command += ["--hostname", "worker@test-kernel"]
    environment = os.environ | {
        "DATABASE_URL": database_url(),
        "BERTH_QUEUES": QUEUE,
        "BERTH_PROBE_PORT": str(probe_port),
        "PYTHONWARNINGS": "default",
        "C_FORCE_ROOT": "1",
    }
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    yield process
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture
def relay() -> Iterator[None]:
    stop = StopRequest()
    thread = threading.Thread(target=run, args=([QueueRelay()],), kwargs={"stop": stop})
    thread.start()
    yield
    stop.request()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    stop.close()


@pytest.fixture
def listener() -> Iterator[psycopg.Connection]:
    with connect_direct("test") as session:
        session.execute(f"LISTEN {notify.CHANNEL}")
        yield session


def wait_until_done(listener: psycopg.Connection, n: int) -> None:
    """The worker's own events wake us; its start takes seconds, so the clock is generous."""
    for _ in range(60):
        if Operation.objects.filter(done_at__isnull=False).count() == n:
            return
        list(listener.notifies(timeout=1.0, stop_after=1))
    raise AssertionError("the worker performs nothing")


def test_committed_operation_is_performed_by_a_worker(worker, relay, listener):
    wanted = list(range(1, 31))
    for n in wanted:
        add_operation(lane=f"lane-{n % 5}", kind="say", queue=QUEUE, claim_id=n)
    wait_until_done(listener, 30)
    events = Event.objects.filter(verb="performed").order_by("claim_id")
    assert [e.claim_id for e in events] == wanted
    assert {e.actor for e in events} == {"worker"}
    assert [e.data for e in events] == [{"in_transaction": False, "threads": 2}] * 30


def test_without_relay_the_worker_finds_the_operation(worker, listener):
    """As without Valkey: no message arrives, and the worker finds the operation by its timer."""
    add_operation(lane="a", kind="say", queue=QUEUE)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_operation SET due_at = due_at - interval '1 min'")
    wait_until_done(listener, 1)


def test_worker_with_an_answering_consumer_is_alive_and_ready(worker, listener, probe_port, client):
    add_operation(lane="a", kind="say", queue=QUEUE)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_operation SET due_at = due_at - interval '1 min'")
    wait_until_done(listener, 1)  # it runs
    for _ in range(60):
        if Beat.objects.filter(name="worker", steps__gt=0).exists():
            break
        list(listener.notifies(timeout=0.5, stop_after=1))
    assert Beat.objects.get(name="worker").steps > 0, "its consumer answered over the broker"
    assert ask(probe_port, "/healthz") == (200, "ok")
    assert ask(probe_port, "/readyz") == (200, "ok")
    assert "berth_operations_total" in ask(probe_port, "/metrics")[1]
    found = {check["name"]: check["ok"] for check in client.get("/readyz").json()["checks"]}
    assert found["worker"], found
