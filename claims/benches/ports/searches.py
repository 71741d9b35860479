"""Searches for special numbers: a run among 100,000 ports, and one number in three pools."""

import statistics
import time
from collections.abc import Mapping

from django.db import transaction

from claims.allocation.requests.policy import SlotDemand
from claims.allocation.requests.pool_facts import find_pools
from claims.allocation.search.slot_search import find_slots
from claims.benches.ports.seed import FIRST, close_numbers, fill_ports
from project.kernel.bench.registry import BenchRun, NothingMeasured

RUN = 100  # numbers in a row
# Every so many numbers one is taken, except at the end. With the second gap the search for a run
# reads nearly every free number.
GAP, WORST_GAP = RUN // 2, RUN // 2 + 1


def measure_searches(run: BenchRun) -> Mapping[str, object]:
    """What each search looks for is at the end of 100,000 ports."""
    members, each = (2, 500) if run.is_quick else (40, 2500)
    free_from = FIRST + each - 2 * RUN
    for name, gap in (("long", GAP), ("worst", WORST_GAP)):
        close_numbers(fill_ports(name, members, each), step=gap, last_end=free_from)
    names = [f"same-{i}" for i in range(3)]
    each = 500 if run.is_quick else 33_333
    for i, name in enumerate(names):
        # Two of the three pools have each number free, and all three the last.
        close_numbers(fill_ports(name, 1, each), step=3, rest=i, end=FIRST + each - 1)
    rounds, in_a_row = run.slices(21, 3), SlotDemand(size=RUN, contiguous=True)
    return {
        "contiguous_ms": time_search(["long"], in_a_row, rounds),
        "contiguous_worst_ms": time_search(["worst"], in_a_row, rounds),
        "three_pools_ms": time_search(names, SlotDemand(same_number=True), rounds),
    }


def time_search(names: list[str], wanted: SlotDemand, rounds: int) -> float:
    """Median of the milliseconds in which the slots are found and locked."""
    known = find_pools(names)
    pools, took = [known[name] for name in names], list[float]()
    for _ in range(rounds):
        with transaction.atomic():
            began = time.perf_counter()
            found = find_slots(wanted, pools, "tcp", 0)
            took.append(time.perf_counter() - began)
            transaction.set_rollback(True)
        if found is None or len(found) != wanted.size * len(names):
            raise NothingMeasured(f"no numbers were found in {', '.join(names)}")
    return round(1000 * statistics.median(took), 2)
