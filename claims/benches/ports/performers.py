"""A worker process of the bench: threads that perform the due operations of the providers' queues,
as the threads of a Celery worker do. The bench starts and ends their work at once; the hints of
the relay are no part of it.
"""

import logging
import multiprocessing
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event

from django.db import DatabaseError, connections

from pools.providers.aws.provider import AwsProvider
from project.kernel.actor import acting_as
from project.kernel.bench.workers import PRELOADED
from project.kernel.outbox.operations import perform_due, release_interrupted

logger = logging.getLogger(__name__)

ALL = 1000  # threads
IDLE = 0.02  # seconds between two looks for due operations
START = 60.0
LIMIT = 500  # operations of one call, as in the product


class Performers:
    def __init__(self, queue: str, threads: int, *, processes: int = 1, pace: float = 1.0) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([PRELOADED])
        self._go, self._stop = context.Event(), context.Event()
        self._most = context.Value("i", ALL)
        name = str(connections["default"].settings_dict["NAME"])
        kept = {key: value for key, value in os.environ.items() if key.startswith(("AWS_", "TEN"))}
        self._processes: list[ForkServerProcess] = [
            context.Process(
                target=_run,
                args=(name, kept, queue, threads, pace, self._go, self._stop, self._most),
            )
            for _ in range(processes)
        ]
        for process in self._processes:
            process.start()

    def check(self) -> None:
        """Raises if a process has ended."""
        if any(not process.is_alive() for process in self._processes):
            raise RuntimeError("a worker process has ended, see stderr")

    def close(self) -> None:
        self._stop.set()
        self._go.set()
        for process in self._processes:
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()

    @contextmanager
    def working(self, threads: int = ALL) -> Iterator[None]:
        """The first threads of each process perform operations in this block."""
        self._most.value = threads
        self._go.set()
        try:
            yield
        finally:
            self._go.clear()


@contextmanager
def performing(
    queue: str, threads: int, *, processes: int = 1, pace: float = 1.0
) -> Iterator[Performers]:
    performers = Performers(queue, threads, processes=processes, pace=pace)
    try:
        yield performers
    finally:
        performers.close()


def _run(
    database: str,
    environment: Mapping[str, str],
    queue: str,
    threads: int,
    pace: float,
    go: Event,
    stop: Event,
    most: "Synchronized[int]",
) -> None:
    connections["default"].settings_dict["NAME"] = database
    os.environ.update(environment)
    AwsProvider.pace = pace
    running = [
        threading.Thread(target=_perform, args=(number, queue, go, stop, most), daemon=True)
        for number in range(threads)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def _perform(number: int, queue: str, go: Event, stop: Event, most: "Synchronized[int]") -> None:
    def should_pause() -> bool:
        return stop.is_set() or not go.is_set() or number >= most.value

    with acting_as("worker"):
        while not stop.is_set():
            go.wait()
            try:
                is_idle = should_pause() or not perform_due(queue, LIMIT, should_pause)
            except DatabaseError as error:  # a lock was not free for two seconds
                logger.warning("the database refused: %s", error)
                connections.close_all()
                release_interrupted()
                is_idle = True
            if is_idle:
                stop.wait(IDLE)
    connections.close_all()
