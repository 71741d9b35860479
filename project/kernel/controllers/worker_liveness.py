"""Whether a Celery worker still accepts tasks, for its probe, for /readyz and for the overview.

A worker sends itself a message through the broker, and its own consumer answers, so a stuck
consumer is detected. While the broker does not answer, the worker does not count as stuck: its
poller performs due operations, and a restart would not repair the broker.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from celery import Celery
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from project.kernel.db.direct_connection import connect_direct
from project.kernel.log_once import LogOnce

from . import heartbeats
from .probe import ProbeServer, default_port
from .runtime import instance_name

logger = logging.getLogger(__name__)

NAME = "worker"
EVERY = 10.0  # seconds between two messages; three of them fit into heartbeats.STALE
PATIENCE = 2.0  # seconds for the consumer's answer, which takes milliseconds
BROKER_DOWN = (OSError, TimeoutError, RedisError, KombuError)

# True: the consumer answered. Raises one of BROKER_DOWN while the broker does not answer.
Ask = Callable[[], bool]


class WorkerLiveness:
    """Asks the consumer every few seconds and writes the answer as a heartbeat named `worker`."""

    def __init__(
        self,
        ask: Ask,
        instance: str,
        connect: Callable[[], psycopg.Connection[object]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._instance = instance
        self._connect = connect or (lambda: connect_direct(NAME))
        self._connection: psycopg.Connection[object] | None = None
        self._answered_at = self._clock()
        self._steps = 0
        self._is_written = False
        self._stop = threading.Event()
        self._broker, self._database = (
            LogOnce(
                f"the worker's heartbeat: the {what}",
                logger,
                away="does not answer",
                back="answers again",
            )
            for what in ("broker", "database")
        )

    def run(self) -> None:
        while not self._stop.is_set():
            self.check()
            self._stop.wait(EVERY)
        self._remove_heartbeat()

    def stop(self) -> None:
        self._stop.set()

    def check(self) -> None:
        try:
            if self._ask():
                self._steps += 1
                self._answered_at = self._clock()
            self._broker.worked()
        except BROKER_DOWN as error:
            self._broker.failed(error)
            self._answered_at = self._clock()
        self._write()

    def stuck_for(self) -> float:
        return self._clock() - self._answered_at

    def explain_stuck(self) -> str:
        stuck = 0.0 if self._stop.is_set() else self.stuck_for()
        return (
            f"the consumer has not answered for {stuck:.0f} s" if stuck > heartbeats.STALE else ""
        )

    def explain_unready(self) -> str:
        if stuck := self.explain_stuck():
            return stuck
        return "" if self._is_written else "no heartbeat of this worker is in the database"

    def _write(self) -> None:
        stuck = self.stuck_for()
        stuck = stuck if stuck > EVERY + PATIENCE else 0.0
        try:
            if self._connection is None:
                self._connection = self._connect()
                heartbeats.remove(self._connection, self._instance)
            pulse = heartbeats.LoopHeartbeat(NAME, stuck, self._steps, 0, "")
            heartbeats.write(self._connection, self._instance, [pulse])
            self._is_written = True
            self._database.worked()
        except psycopg.Error as error:
            self._database.failed(error)
            self._forget_connection()
            self._is_written = False

    def _remove_heartbeat(self) -> None:
        if self._connection is not None:
            try:
                heartbeats.remove(self._connection, self._instance)
            except psycopg.Error as error:
                logger.info("the worker's heartbeat was not removed: %s", error)
            self._forget_connection()

    def _forget_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def connect_broker(app: Any, timeout: float) -> Any:
    """A connection of its own, on which each operation takes at most `timeout` seconds."""
    short = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    options = {**app.conf.broker_transport_options, **short, "retry_on_timeout": False}
    return app.connection_for_write(connect_timeout=timeout, transport_options=options)


def ask_consumer(app: Any, hostname: str) -> bool:
    with connect_broker(app, PATIENCE) as connection:
        return bool(app.control.ping([hostname], timeout=PATIENCE, connection=connection))


def start_worker_liveness(app: Celery, hostname: str) -> WorkerLiveness:
    """Called in a worker that is ready. Its probe answers until the process ends."""
    pulse = WorkerLiveness(lambda: ask_consumer(app, hostname), instance_name())
    if port := default_port():
        ProbeServer(port, pulse.explain_stuck, pulse.explain_unready)
    threading.Thread(target=pulse.run, name="pulse", daemon=True).start()
    return pulse
