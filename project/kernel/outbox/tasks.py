"""What Celery workers run. A message names a queue; what is due there is read from the database."""

import logging
import threading
import time
from typing import Any

from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down
from django.db import Error as DatabaseError
from django.db import connections

from project.kernel.actor import acting_as
from project.kernel.controllers.worker_liveness import WorkerLiveness, start_worker_liveness

from .operations import list_due_queues, perform_due

logger = logging.getLogger(__name__)

PERFORM = "project.kernel.tasks.perform"  # stands in messages: it stays where the module moves
DRAIN = 10.0  # seconds; the relay names the queue again while something is due
POLL = 2.0
LATE = 5.0  # nobody was told for so long: the broker or the relay is away


# Acknowledged early: the message is a hint, and the operations are safe in the database whatever
# becomes of the worker.
@shared_task(name=PERFORM, ignore_result=True, acks_late=False)  # type: ignore[no-untyped-call, untyped-decorator]
def perform(queue: str) -> int:
    """Perform what is due in this queue, until nothing is."""
    end, count = time.monotonic() + DRAIN, 0
    with acting_as("worker"):
        while time.monotonic() < end and (done := perform_due(queue)):
            count += done
    return count


class OutboxPoller:
    """Performs in the worker itself what nobody was told of, so that the outbox goes on without
    Valkey and without the relay.
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
            return sum(
                perform_due(q, should_stop=self._stop.is_set)
                for q in list_due_queues(LATE)
                if q in self._queues
            )

    def _run(self) -> None:
        while not self._stop.wait(POLL):
            try:
                self.poll()
            except DatabaseError as error:
                logger.warning("the database does not answer: %s", error)
                connections.close_all()
            except Exception:
                # Whatever it was: without this thread the outbox stands still while Valkey is away.
                logger.exception("the look for forgotten operations failed, next one in %s s", POLL)
                connections.close_all()
        connections.close_all()


_running: list[OutboxPoller | WorkerLiveness] = []


@worker_ready.connect  # type: ignore[untyped-decorator]
def _start_threads(sender: Any = None, **kwargs: Any) -> None:
    poller = OutboxPoller(frozenset(sender.app.amqp.queues.consume_from))
    poller.start()
    _running.extend([poller, start_worker_liveness(sender.app, sender.hostname)])


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _stop_threads(**kwargs: Any) -> None:
    for each in _running:
        each.stop()
