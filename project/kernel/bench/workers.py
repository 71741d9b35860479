"""Processes that work in parallel for a slice of time, each with its own Django and connections.
For benches and race tests.

The processes stay for all slices, because starting Django takes longer than a slice.
"""

import multiprocessing
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

import django
from django.db import connections
from django.utils.module_loading import import_string

Once = Callable[[], int]  # does one piece of work and returns its size


@dataclass(frozen=True)
class Slice:
    count: int
    seconds: float
    latencies: list[float]  # seconds a call, sorted

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    def percentile_ms(self, share: float) -> float:
        return (
            1000 * self.latencies[min(len(self.latencies) - 1, int(len(self.latencies) * share))]
            if self.latencies
            else 0.0
        )


class WorkerGroup:
    """`make` is the dotted name of a function (k, n, **options) that prepares worker k of n and
    returns the function that the worker repeats.
    """

    def __init__(
        self,
        make: str,
        size: int,
        options: Mapping[str, object] | None = None,
        start_timeout: float = 120.0,
    ) -> None:
        # Spawned, so that the workers inherit no connections and threads.
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(size)
        self._pipes: list[Connection] = []
        self._processes = []
        database = connections["default"].settings_dict["NAME"]
        for k in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work,
                args=(make, k, size, database, dict(options or {}), theirs, self._barrier),
                daemon=True,
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        _gather(self._pipes, start_timeout)

    def slice(self, seconds: float, **options: object) -> Slice:
        """Starts all workers together for so many seconds. Workers with an attribute `begin` get
        the options.
        """
        for pipe in self._pipes:
            pipe.send((seconds, options))
        answers = _gather(self._pipes, seconds + 120)
        latencies = sorted(latency for _, _, some in answers for latency in some)
        return Slice(
            sum(count for count, _, _ in answers),
            max(elapsed for _, elapsed, _ in answers),
            latencies,
        )

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()  # the worker reads the end and exits
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()

    def __enter__(self) -> "WorkerGroup":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _gather(pipes: Sequence[Connection], timeout: float) -> list[Any]:
    answers = [_receive(pipe, timeout) for pipe in pipes]
    if errors := [value for kind, value in answers if kind == "error"]:
        raise RuntimeError(
            "a worker failed:\n"
            + next((e for e in errors if "BrokenBarrierError" not in e), errors[0])
        )
    return [value for _, value in answers]


def _receive(pipe: Connection, timeout: float) -> Any:
    if not pipe.poll(timeout):
        return "error", f"no answer for {timeout:.0f} s"
    try:
        return pipe.recv()
    except EOFError:
        return "error", "the worker ended without an answer"


def _work(
    make: str,
    k: int,
    size: int,
    database: str,
    options: dict[str, object],
    pipe: Connection,
    barrier: Barrier,
) -> None:
    try:
        django.setup()
        # A test uses another database than the settings.
        connections["default"].settings_dict["NAME"] = database
        once: Once = import_string(make)(k, size, **options)
        pipe.send(("ready", None))
        while True:
            try:
                seconds, more = pipe.recv()
            except EOFError:
                return
            if begin := getattr(once, "begin", None):
                begin(**more)
            barrier.wait(120)
            pipe.send(("done", _slice(once, seconds)))
    except BaseException:
        barrier.abort()
        pipe.send(("error", traceback.format_exc()))


def _slice(once: Once, seconds: float) -> tuple[int, float, list[float]]:
    count, latencies = 0, list[float]()
    start = before = time.perf_counter()
    while before - start < seconds:
        count += once()
        after = time.perf_counter()
        latencies.append(after - before)
        before = after
    return count, before - start, latencies
