"""Processes that work in parallel for a slice of time, each with its own connections.
For benches and race tests.

The processes stay for all slices, because connecting and preparing take longer than a slice.
"""

import multiprocessing
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

from django.db import connections
from django.utils.module_loading import import_string

PRELOADED = "project.kernel.bench.preloaded"
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
        return percentile_ms(self.latencies, share) if self.latencies else 0.0


def percentile_ms(times: Sequence[float], share: float) -> float:
    """`times`: seconds, sorted."""
    return 1000 * times[min(len(times) - 1, int(len(times) * share))]


def latency_figures(times: Sequence[float]) -> dict[str, object]:
    """`times`: seconds, sorted."""
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
    return {name: round(percentile_ms(times, share), 2) for name, share in shares.items()}


class WorkerGroup:
    """`make` is the dotted name of a function (k, n, **options) that prepares worker k of n and
    returns the function that the worker repeats.
    """

    def __init__(
        self,
        make: str,
        size: int,
        options: Mapping[str, object] | None = None,
    ) -> None:
        # Forked from a process that has loaded Django and has no connections and threads.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([PRELOADED])
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
        _gather(self._pipes, 120.0)

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
