"""Tasks of Celery workers. A message names a queue; the worker reads its due operations."""

import logging
import math
import threading
import time
from typing import Any

from celery import shared_task
from celery.concurrency.thread import TaskPool
from celery.signals import worker_ready, worker_shutting_down
from django.db import Error as DatabaseError
from django.db import InterfaceError, OperationalError, connections

from project.kernel.actor import acting_as
from project.kernel.controllers.worker_liveness import WorkerLiveness, start_worker_liveness

from .operations import list_due_queues, perform_due, release_abandoned, release_interrupted
from .turns import TURNS, until

logger = logging.getLogger(__name__)

PERFORM = "project.kernel.tasks.perform"  # messages carry this name, so it never changes
DRAIN = 10.0  # seconds; the relay names the queue again while operations are due
POLL = 2.0
LATE = 5.0  # seconds an operation is due without a hint: the broker or the relay is away


# Acknowledged early: the message is a hint, and the operations stay in the database if the worker
# dies.
@shared_task(name=PERFORM, ignore_result=True, acks_late=False)  # type: ignore[untyped-decorator]
def perform(queue: str) -> int:
    """Perform the due operations of this queue, for DRAIN seconds at most, or until another queue
    needs the thread. Returns their number. After a loss of the database, the poller makes the
    interrupted operations due.
    """
    end, count = time.monotonic() + DRAIN, 0
    with acting_as("worker"), TURNS.take(queue) as is_over:
        if is_over is None:
            return 0
        try:
            while time.monotonic() < end and (done := perform_due(queue, should_stop=is_over)):
                count += done
        except (OperationalError, InterfaceError) as error:
            logger.warning("the database does not answer: %s", error)
            connections.close_all()
    return count


class OutboxPoller:
    """Performs late operations without a hint, so that the outbox works without Valkey and without
    the relay. Releases operations that this process held when it lost the database, and once those
    of workers that have died.
    """

    def __init__(self, queues: frozenset[str]) -> None:
        self._queues = queues
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="poll", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def poll(self) -> int:
        with acting_as("worker"):
            release_interrupted()
            late = [queue for queue in list_due_queues(LATE) if queue in self._queues]
            return sum(self._perform(queue, is_alone=len(late) == 1) for queue in late)

    def _perform(self, queue: str, *, is_alone: bool) -> int:
        """Several queues take turns, because this is one thread."""
        end = math.inf if is_alone else time.monotonic() + POLL

        def is_over() -> bool:
            return self._stop.is_set() or time.monotonic() >= end

        with until(is_over):
            return perform_due(queue, should_stop=is_over)

    def _run(self) -> None:
        is_first = True
        while not self._stop.wait(POLL):
            try:
                if is_first:
                    release_abandoned(self._queues)
                    is_first = False
                self.poll()
            except DatabaseError as error:
                logger.warning("the database does not answer: %s", error)
                connections.close_all()
            except Exception:
                # Without this thread the outbox stands still while Valkey is away.
                logger.exception("polling for late operations failed, next poll in %s s", POLL)
                connections.close_all()
        connections.close_all()


def threads_of(pool: Any) -> int:
    """The threads of a worker. 0: its pool has none, and each process performs one task."""
    return int(pool.limit or 0) if isinstance(pool, TaskPool) else 0


_running: list[OutboxPoller | WorkerLiveness] = []


@worker_ready.connect  # type: ignore[untyped-decorator]
def _start_threads(sender: Any = None, **kwargs: object) -> None:
    queues = frozenset(sender.app.amqp.queues.consume_from)
    TURNS.configure(threads_of(sender.pool), queues)
    poller = OutboxPoller(queues)
    poller.start()
    _running.extend([poller, start_worker_liveness(sender.app, sender.hostname)])


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _stop_threads(**kwargs: object) -> None:
    for each in _running:
        each.stop()
