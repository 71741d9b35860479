"""The kernel's own benches."""

from collections.abc import Callable, Mapping
from functools import partial

from django.db import connection, transaction

from project.kernel.events.log import START, read_events, record

from .registry import BenchRun, Goal, bench

WRITE = """
INSERT INTO kernel_event (verb, pool_id, slot_id, claim_id, generation, before, after, actor)
SELECT 'bench', g % 100, g, g, g, 'waiting', 'bound', 'bench' FROM generate_series(1, 1000) g"""


@bench(
    "events",
    "events read in the order of commits, and written by two processes",
    [Goal("read_per_second", 1000.0)],
)
def measure_events(run: BenchRun) -> Mapping[str, object]:
    for _ in range(5 if run.is_quick else 500):
        with connection.cursor() as cursor:
            cursor.execute(WRITE)
    with (
        run.workers("project.kernel.bench.benches.make_writer", 2) as writers,
        run.workers("project.kernel.bench.benches.EventReader", 1) as readers,
    ):
        alone = readers.slice(run.seconds(2.0))
        written = run.compare(lambda: writers.slice(run.seconds(1.0)).rate, slices=run.slices(3))
    return {
        "read_per_second": round(alone.rate),
        "read_p99_ms": round(alone.percentile_ms(0.99), 2),
        "written": written.as_dict(),
    }


def make_writer(k: int, n: int) -> Callable[[], int]:
    return partial(_write, k)


def _write(k: int) -> int:
    with transaction.atomic():
        record(
            "bench",
            pool_id=k,
            slot_id=k,
            claim_id=k,
            generation=1,
            before="waiting",
            after="bound",
            actor="bench",
        )
    return 1


class EventReader:
    def __init__(self, k: int, n: int) -> None:
        self._position = START

    def __call__(self) -> int:
        rows, self._position = read_events(self._position, 500)
        if not rows:
            self._position = START
        return len(rows)
