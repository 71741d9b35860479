"""The loop of controllers: step, sleep until woken, back off, stop.

A process runs any number of controllers, each in a thread. The main thread listens on one direct
connection, wakes the threads of a notified topic, and writes heartbeats of the loops to the
database every few seconds. A wake-up is only a hint: each controller also looks by timer and after
a lost connection. Row locks coordinate the processes, so any number of processes may run.
"""

import logging
import os
import random
import select
import signal
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from types import FrameType

import psycopg
from django.db import InterfaceError, OperationalError, close_old_connections, connections

from project.kernel import metrics
from project.kernel.actor import acting_as
from project.kernel.db.direct_connection import connect_direct
from project.kernel.events import notify
from project.kernel.retry import Backoff, delay_after

from . import heartbeats
from .probe import ProbeServer

logger = logging.getLogger(__name__)

BACKOFF = Backoff(0.2, 30.0)
BEAT_EVERY = 5.0
# Seconds of sleep after which the connection is checked before its use; a check before each step
# would cost a round trip.
IDLE = 5.0
GRACE = 25.0  # seconds for a step to end after SIGTERM; less than the grace period of Kubernetes


class Controller(ABC):
    """One kind of background work, which finds its work in the database."""

    name: str = ""
    topics: tuple[str, ...] = ()
    resync: float = 30.0  # seconds; the longest delay after a missed hint
    wake_up: Callable[[], None] | None = None  # wakes the loop of the controller, if it has one

    @abstractmethod
    def step(self) -> bool:
        """One unit of work in its own transaction. True: more work may be due, call again."""

    def close(self) -> None:  # noqa: B027
        """Close resources. Called in the thread of the controller, at the end."""


class StopRequest:
    """A request to end the process. The file descriptor ends a sleep at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    @property
    def is_requested(self) -> bool:
        return self._event.is_set()

    def request(self) -> None:
        self._event.set()
        os.write(self._write, b"x")

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)

    def fileno(self) -> int:
        return self._read

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)

    def on_signals(self) -> None:
        """The first SIGTERM or SIGINT lets the steps end, the second one ends the process
        at once.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        self.request()


class Loop:
    """One controller in its thread."""

    def __init__(self, controller: Controller, stop: StopRequest) -> None:
        self.controller = controller
        self.stop = stop
        self.wake = threading.Event()
        controller.wake_up = self.wake.set
        self.steps = 0
        self.failures = 0
        self.error = ""
        self.stepping_since: float | None = None  # monotonic; None while it sleeps
        self.slept_from = 0.0
        self.thread = threading.Thread(target=self._run, name=controller.name, daemon=True)

    def stuck_for(self) -> float:
        since = self.stepping_since
        return 0.0 if since is None else time.monotonic() - since

    def _run(self) -> None:
        with acting_as(self.controller.name):
            try:
                while not self.stop.is_requested:
                    # Cleared before the step: a hint during the step starts the next step.
                    self.wake.clear()
                    if not self._step() and not self.stop.is_requested:
                        self.wake.wait(self.controller.resync * random.uniform(0.8, 1.2))
            finally:
                self.controller.close()
                connections.close_all()

    def _step(self) -> bool:
        """True: call again at once, also after an error, because `_failed` has slept."""
        self.stepping_since = time.monotonic()
        try:
            if self.stepping_since - self.slept_from > IDLE:
                close_old_connections()
            with metrics.STEP_SECONDS.labels(self.controller.name).time():
                is_more = self.controller.step()
        except Exception as error:
            self._failed(error)
            return True
        finally:
            self.stepping_since, self.slept_from = None, time.monotonic()
        self.steps += 1
        if self.failures:
            logger.info(
                "%s: works again after %s failed steps", self.controller.name, self.failures
            )
        self.failures, self.error = 0, ""
        metrics.STEPS.labels(self.controller.name, "ok").inc()
        return is_more

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self.error = f"{type(error).__name__}: {error}".replace("\x00", "")[
            : heartbeats.LONGEST_ERROR
        ]
        metrics.STEPS.labels(self.controller.name, "failed").inc()
        connections.close_all()  # a connection may be broken or in a transaction
        self.stepping_since = None
        delay = delay_after(self.failures, BACKOFF, random.random())
        if isinstance(error, OperationalError | InterfaceError):
            logger.warning(
                "%s: the database does not answer, next look in %.1f s: %s",
                self.controller.name,
                delay,
                error,
            )
        else:
            logger.exception("%s: step failed, next one in %.1f s", self.controller.name, delay)
        self.stop.wait(delay)


class Listener:
    """The connection that receives hints, polled by the main thread. A new connection wakes all
    controllers, because hints may have been lost.
    """

    def __init__(self, loops: Sequence[Loop]) -> None:
        self._loops = loops
        self._connection: psycopg.Connection[object] | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._has_beaten = False

    def connect(self) -> None:
        """Connect if an attempt is due. Controllers are woken after LISTEN, so no hint is lost in
        between.
        """
        if self._connection is not None or time.monotonic() < self._retry_at:
            return
        try:
            connection = connect_direct("controllers")
            connection.add_notify_handler(lambda notification: self._wake(notification.payload))
            connection.execute(f"LISTEN {notify.CHANNEL}")
        except psycopg.Error as error:
            self._failures += 1
            self._retry_at = time.monotonic() + delay_after(
                self._failures, Backoff(0.2, 2.0), random.random()
            )
            if self._failures == 3:
                logger.warning("no connection for hints, controllers look by timer: %s", error)
            return
        if self._failures:
            logger.info("receives hints again")
        self._connection, self._failures = connection, 0
        for loop in self._loops:
            loop.wake.set()

    def wait(self, stop: StopRequest, seconds: float) -> None:
        """Wait for a hint, the stop or the timeout, and wake the controllers of received hints."""
        waiting: list[StopRequest | psycopg.Connection[object]] = [stop]
        if self._connection is not None:
            waiting.append(self._connection)
        else:
            seconds = min(seconds, 0.2)
        ready, _, _ = select.select(waiting, [], [], max(0.0, seconds))
        if self._connection is not None and self._connection in ready:
            self._receive(self._connection)

    def beat(self, instance: str) -> None:
        """Write the heartbeats of the loops. This also detects a dead connection."""
        if self._connection is not None:
            try:
                # An earlier process may have had this name: in a container each is process 1.
                if not self._has_beaten:
                    heartbeats.remove(self._connection, instance)
                self._has_beaten = True
                heartbeats.write(
                    self._connection, instance, [_beat_of(loop) for loop in self._loops]
                )
            except psycopg.Error as error:
                self._lose(error)

    def close(self, instance: str) -> None:
        if self._connection is not None:
            try:
                heartbeats.remove(self._connection, instance)
            except psycopg.Error as error:
                logger.info("the heartbeats of this process were not removed: %s", error)
            self._connection.close()
            self._connection = None

    def _receive(self, connection: psycopg.Connection[object]) -> None:
        """Read hints from libpq: a query would add a round trip to each wake-up."""
        try:
            connection.pgconn.consume_input()
            while (notification := connection.pgconn.notifies()) is not None:
                self._wake(notification.extra.decode())
        except psycopg.Error as error:
            self._lose(error)

    def _wake(self, topic: str) -> None:
        for loop in self._loops:
            if topic in loop.controller.topics:
                loop.wake.set()

    def _lose(self, error: psycopg.Error) -> None:
        logger.warning("lost the connection for hints: %s", error)
        if self._connection is not None:
            self._connection.close()
        self._connection, self._failures, self._retry_at = None, 1, 0.0


def run(
    controllers: Iterable[Controller],
    *,
    once: bool = False,
    stop: StopRequest | None = None,
    probe_port: int = 0,
) -> None:
    """Run controllers until the stop. `once`: run each until it has no more work, and raise its
    errors.

    With a probe port, /healthz fails while a loop is stuck in a step, and /readyz also while a loop
    fails or has not finished its first step.
    """
    controllers = list(controllers)
    names = [c.name for c in controllers]
    if len(set(names)) < len(names):
        raise ValueError(f"a process runs each controller once: {', '.join(sorted(names))}")
    if once:
        _run_once(controllers)
        return
    own = stop is None
    stop = stop or StopRequest()
    if own:
        stop.on_signals()
    loops = [Loop(c, stop) for c in controllers]
    probe = None
    if probe_port:
        probe = ProbeServer(probe_port, lambda: _name_stuck(loops), lambda: _name_unready(loops))
    try:
        _run_threads(loops, stop)
    finally:
        notify.flush()
        if probe:
            probe.close()
        if own:
            stop.close()


def instance_name() -> str:
    return f"{socket.gethostname()[:90]}:{os.getpid()}"


def _run_once(controllers: Sequence[Controller]) -> None:
    for controller in controllers:
        with acting_as(controller.name):
            try:
                while controller.step():
                    pass
            finally:
                controller.close()
    notify.flush()


def _run_threads(loops: Sequence[Loop], stop: StopRequest) -> None:
    names = ", ".join(loop.controller.name for loop in loops)
    listener, instance, beat_at = Listener(loops), instance_name(), 0.0
    logger.info("running: %s", names)
    for loop in loops:
        loop.thread.start()
    while not stop.is_requested:
        listener.connect()
        if time.monotonic() >= beat_at:
            listener.beat(instance)
            beat_at = time.monotonic() + BEAT_EVERY
        listener.wait(stop, min(beat_at - time.monotonic(), 1.0))
    for loop in loops:
        loop.wake.set()
    end = time.monotonic() + GRACE
    for loop in loops:
        loop.thread.join(max(0.0, end - time.monotonic()))
    listener.close(instance)
    if left := [loop.controller.name for loop in loops if loop.thread.is_alive()]:
        logger.warning("stopped in the middle of a step: %s", ", ".join(left))
    logger.info("stopped: %s", names)


def _name_stuck(loops: Sequence[Loop]) -> str:
    return "; ".join(
        f"{loop.controller.name} has been in one step for {loop.stuck_for():.0f} s"
        for loop in loops
        if loop.stuck_for() > heartbeats.STALE
    )


def _name_unready(loops: Sequence[Loop]) -> str:
    faults = [_name_stuck(loops)]
    for loop in loops:
        if loop.failures:
            faults.append(
                f"{loop.controller.name}: {loop.failures} failed steps in a row: {loop.error}"
            )
        elif not loop.steps:
            faults.append(f"{loop.controller.name} has not finished its first step")
    return "; ".join(filter(None, faults))


def _beat_of(loop: Loop) -> heartbeats.LoopHeartbeat:
    return heartbeats.LoopHeartbeat(
        loop.controller.name, loop.stuck_for(), loop.steps, loop.failures, loop.error
    )
