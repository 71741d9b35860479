"""The controller loop: no wake-up is lost, errors back off, and a stop is clean."""

import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from django.db import connection

from project.kernel.actor import current_actor
from project.kernel.controllers import heartbeats, runtime
from project.kernel.controllers.runtime import Controller, StopRequest, run
from project.kernel.db.direct_connection import connect_direct
from project.kernel.embedded.process import free_port
from project.kernel.events import notify
from project.kernel.models import Beat, Event
from project.kernel.retry import Backoff
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE = 20.0


class Scripted(Controller):
    """Plays a function for each step and lets tests wait for the n-th."""

    name = "scripted"
    topics = ("claims",)
    resync = 1000.0  # only a wake-up makes it step again

    def __init__(self, play: Callable[[int], bool | None] = lambda n: False) -> None:
        self.play = play
        self.begun = 0
        self.ended = 0
        self.change = threading.Condition()

    def step(self) -> bool:
        with self.change:
            self.begun += 1
            self.change.notify_all()
        try:
            return bool(self.play(self.begun))
        finally:
            with self.change:
                self.ended += 1
                self.change.notify_all()

    def wait_for(self, n: int, timeout: float = PATIENCE) -> bool:
        with self.change:
            return self.change.wait_for(lambda: self.ended >= n, timeout)

    def wait_for_begin(self, n: int) -> bool:
        with self.change:
            return self.change.wait_for(lambda: self.begun >= n, PATIENCE)


@contextmanager
def running(*controllers: Controller, **options: Any) -> Iterator[StopRequest]:
    stop = StopRequest()
    thread = threading.Thread(target=run, args=(controllers,), kwargs={"stop": stop, **options})
    thread.start()
    try:
        yield stop
    finally:
        stop.request()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        stop.close()


@contextmanager
def listening() -> Iterator[Callable[[], None]]:
    """Waits until the runtime listens: before that, hints may be missed by design."""
    with connect_direct("test") as session:

        def wait() -> None:
            for _ in range(1000):
                found = session.execute(
                    """SELECT FROM pg_stat_activity
                    WHERE application_name = 'berth controllers' AND state = 'idle'
                    AND (query LIKE 'LISTEN%' OR query ILIKE '%beat%')"""
                ).fetchone()
                if found is not None:
                    return
                session.execute("SELECT pg_sleep(0.01)")
            raise AssertionError("nobody listens")

        yield wait


@pytest.fixture
def settled() -> Iterator[Callable[[], None]]:
    with listening() as wait:
        yield wait


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "BACKOFF", Backoff(0.01, 0.02))


def test_hint_wakes_controllers_of_its_topic(settled):
    woken, deaf = Scripted(), Scripted()
    # No other test and no process of the test run publishes this topic late.
    deaf.name, deaf.topics = "deaf", ("other",)
    with running(woken, deaf):
        settled()
        assert deaf.wait_for(1)
        for _ in range(4):
            before = woken.ended
            notify.publish("claims")
            assert woken.wait_for(before + 1)
        assert deaf.ended <= 2, "its start, and the wake-up that comes with LISTEN"


def test_hint_during_a_step_is_not_lost(settled):
    """The step has read the rows already; what is new needs another step, and no timer would
    come for a long time.
    """
    inside, go_on = threading.Event(), threading.Event()
    armed = threading.Event()

    def play(n: int) -> None:
        if armed.is_set() and not inside.is_set():
            inside.set()
            assert go_on.wait(PATIENCE)

    controller = Scripted(play)
    with running(controller):
        settled()
        assert controller.wait_for(1)
        notify.publish("claims")
        assert notify.flush(PATIENCE)
        armed.set()
        notify.publish("claims")
        assert inside.wait(PATIENCE)
        begun = controller.begun
        notify.publish("claims")
        assert notify.flush(PATIENCE)
        with connect_direct("test") as session:
            session.execute("SELECT pg_sleep(0.05)")  # the notification has arrived by now
        go_on.set()
        assert controller.wait_for(begun + 1)


def test_step_that_reports_more_work_is_repeated_at_once():
    controller = Scripted(lambda n: n < 50)
    with running(controller):
        assert controller.wait_for(50)


def test_resync_timer_runs_steps_without_hints():
    controller = Scripted()
    controller.topics = ()
    controller.resync = 0.01
    with running(controller):
        assert controller.wait_for(5)


def test_failing_controller_backs_off_while_others_continue(settled, caplog):
    def fail(n: int) -> None:
        raise ValueError("no such thing")

    failing, other = Scripted(fail), Scripted()
    failing.name, other.name = "failing", "other"
    with running(failing, other):
        settled()
        assert failing.wait_for(3)
        for _ in range(3):
            before = other.ended
            notify.publish("claims")
            assert other.wait_for(before + 1)
        assert failing.ended < 10, "0.2 s, doubling: it cannot have run often"
    assert "failing: step failed" in caplog.text
    assert "ValueError: no such thing" in caplog.text


def test_back_off_doubles_and_ends_with_the_first_success(monkeypatch, caplog):
    pauses = []
    monkeypatch.setattr(StopRequest, "wait", lambda self, seconds: pauses.append(seconds) or False)

    def play(n: int) -> None:
        if n <= 12:
            raise ValueError

    controller = Scripted(play)
    with running(controller):
        assert controller.wait_for(13)
    assert len(pauses) == 12
    assert 0.1 <= pauses[0] <= 0.2
    assert all(later > earlier for earlier, later in zip(pauses[0:8:2], pauses[2:9:2], strict=True))
    assert 15 <= pauses[-1] <= 30


def test_beat_of_a_failing_controller_carries_the_error(impatient, monkeypatch):
    monkeypatch.setattr(runtime, "BEAT_EVERY", 0.02)

    def play(n: int) -> None:
        if n < 500:
            raise ValueError("the reason")

    controller = Scripted(play)
    with running(controller):
        with connect_direct("test") as session:
            for _ in range(500):
                found = session.execute(
                    "SELECT failures, error FROM kernel_beat WHERE failures > 0"
                ).fetchone()
                if found is not None:
                    break
                session.execute("SELECT pg_sleep(0.01)")
    assert found is not None
    assert found[1] == "ValueError: the reason"


def test_beat_is_deleted_when_its_loop_ends(settled):
    with running(Scripted()):
        settled()
        assert Beat.objects.get().name == "scripted"
    assert not Beat.objects.exists()


def test_controller_is_the_actor_of_its_events():
    actors = []
    controller = Scripted(lambda n: actors.append(current_actor()))
    with running(controller):
        assert controller.wait_for(1)
    assert set(actors) == {"scripted"}


def test_stop_waits_for_the_running_step():
    inside, go_on = threading.Event(), threading.Event()

    def play(n: int) -> bool:
        inside.set()
        assert go_on.wait(PATIENCE)
        return True

    controller = Scripted(play)
    with running(controller) as stop:
        assert inside.wait(PATIENCE)
        stop.request()
        go_on.set()
    assert (controller.begun, controller.ended) == (1, 1)


def test_stop_abandons_a_step_that_does_not_end(monkeypatch, caplog):
    monkeypatch.setattr(runtime, "GRACE", 0.05)
    go_on = threading.Event()
    controller = Scripted(lambda n: go_on.wait(PATIENCE))
    with caplog.at_level("WARNING"), running(controller) as stop:
        assert controller.wait_for_begin(1)
        stop.request()
    assert "stopped in the middle of a step: scripted" in caplog.text
    go_on.set()
    assert controller.wait_for(1)
    for thread in threading.enumerate():
        if thread.name == "scripted":
            thread.join(PATIENCE)


def kill_sessions(pattern: str) -> None:
    with connect_direct("killer") as session:
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name LIKE %s AND pid <> pg_backend_pid()",
            [pattern],
        )


def test_lost_listening_connection_wakes_every_controller(settled):
    controller = Scripted()
    with running(controller):
        settled()
        assert controller.wait_for(1)
        before = controller.ended
        kill_sessions("berth controllers")
        assert controller.wait_for(before + 1)
        settled()
        before = controller.ended
        notify.publish("claims")
        assert controller.wait_for(before + 1)


def test_lost_database_connection_is_replaced(impatient, settled, caplog):
    def play(n: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET application_name = 'the step'; SELECT 1")

    controller = Scripted(play)
    with running(controller):
        settled()
        assert controller.wait_for(1)
        kill_sessions("the step")
        before = controller.ended
        notify.publish("claims")
        assert controller.wait_for(before + 2)  # one fails, the next works
    assert "the database does not answer" in caplog.text
    assert "Traceback" not in caplog.text


def test_transaction_left_open_by_a_step_is_ended(impatient):
    """A step that fails in the middle must not pass its transaction on to the next."""
    seen = []

    def play(n: int) -> None:
        seen.append(connection.in_atomic_block or not connection.get_autocommit())
        if n == 1:
            connection.set_autocommit(False)
            raise ValueError

    controller = Scripted(play)
    with running(controller):
        assert controller.wait_for(2)
    assert seen[:2] == [False, False]


def test_once_runs_until_no_work_is_left():
    controller = Scripted(lambda n: n < 4)
    run([controller], once=True)
    assert controller.ended == 4


def test_controller_may_run_only_once_in_a_process():
    with pytest.raises(ValueError, match="each controller once"):
        run([Scripted(), Scripted()])


def test_once_raises_the_error_of_a_step():
    def fail(n: int) -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        run([Scripted(fail)], once=True)


# Processes and signals ----------------------------------------------------------------------------


def database_url() -> str:
    s = connection.settings_dict
    return (
        f"postgresql://{quote(s['USER'])}"
        f":{quote(s['PASSWORD'])}@{s['HOST']}:{s['PORT']}/{s['NAME']}"
    )


@contextmanager
def looping(seconds: float) -> Iterator[tuple[subprocess.Popen[bytes], psycopg.Connection]]:
    """The process of `looping_controller.py`, in the middle of its first step."""
    with connect_direct("test") as session:
        session.execute(f"LISTEN {notify.CHANNEL}")
        environment = os.environ | {"DATABASE_URL": database_url()}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.kernel.controllers.looping_controller", str(seconds)],
            env=environment,
        )
        try:
            list(session.notifies(timeout=60, stop_after=1))
            assert Event.objects.filter(verb="begin").count() == 1
            yield process, session
        finally:
            process.kill()
            process.wait()


def test_sigterm_ends_the_process_after_the_running_step():
    with looping(1.0) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert list(Event.objects.order_by("id").values_list("verb", "actor")) == [
        ("begin", "slow"),
        ("end", "slow"),
    ]
    assert not Beat.objects.exists()


def test_second_sigterm_ends_the_process_at_once():
    with looping(600) as (process, _):
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == -signal.SIGTERM


# Probes -------------------------------------------------------------------------------------------


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def wait_for_answer(port: int, path: str, status: int) -> tuple[int, str]:
    def answered() -> tuple[int, str] | None:
        return answer if (answer := ask(port, path))[0] == status else None

    return wait_until(answered, lambda: ask(port, path))


def test_controller_process_answers_probes(monkeypatch):
    port, go_on = free_port(), threading.Event()
    controller = Scripted(lambda n: go_on.wait(PATIENCE))
    with running(controller, probe_port=port):
        assert controller.wait_for_begin(1)
        assert ask(port, "/healthz") == (200, "ok")
        assert "berth_controller_steps_total" in ask(port, "/metrics")[1]
        assert ask(port, "/x")[0] == 404
        monkeypatch.setattr(heartbeats, "STALE", -1.0)
        status, text = ask(port, "/healthz")
        assert status == 503
        assert "scripted has been in one step" in text
        go_on.set()


def test_controller_process_is_ready_while_its_steps_succeed():
    port, go_on, fail = free_port(), threading.Event(), threading.Event()

    def step(n: int) -> None:
        if n > 1:  # the first hints may wake it at once
            fail.wait(PATIENCE)
            raise ValueError("broken")
        go_on.wait(PATIENCE)

    controller = Scripted(step)
    with running(controller, probe_port=port):
        assert controller.wait_for_begin(1)
        assert ask(port, "/readyz") == (503, "scripted has not finished its first step")
        go_on.set()
        wait_for_answer(port, "/readyz", 200)
        controller.wake_up()
        fail.set()
        _, text = wait_for_answer(port, "/readyz", 503)
        assert "failed steps in a row: ValueError: broken" in text
        assert ask(port, "/healthz") == (200, "ok"), "a restart would not help"


def test_metrics_of_a_bound_probe_need_the_token_where_one_is_set(settings):
    port, controller = free_port(), Scripted(lambda n: None)
    with running(controller, probe_port=port):
        assert controller.wait_for_begin(1)
        assert ask(port, "/metrics")[0] == 200
        settings.BERTH_METRICS_TOKEN = "secret"
        assert ask(port, "/metrics")[0] == 403
