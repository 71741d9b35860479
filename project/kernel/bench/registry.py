"""Benches measure rates as ratios to R, which is measured before and after in the same run. Each
app registers its benches in `benches.py`.
"""

import math
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from project.kernel.errors import Invalid

from .baseline import Reference
from .workers import WorkerGroup

AT_LEAST, AT_MOST = ">=", "<="


@dataclass(frozen=True)
class Goal:
    field: str
    limit: float
    sign: str = AT_LEAST

    def judge(self, value: float) -> dict[str, object]:
        is_met = value >= self.limit if self.sign == AT_LEAST else value <= self.limit
        off = abs(value - self.limit) / self.limit if self.limit else 0.0
        return {
            "goal": f"{self.sign} {self.limit:g}",
            "value": value,
            "met": is_met,
            "missed_by": "" if is_met else f"{off:.0%}",
        }


class NothingMeasured(RuntimeError):
    """A slice of a bench did no work, so its figures are meaningless."""


def check_measured(value: float, what: str) -> float:
    """Returns the value; raises if it is not a positive number."""
    if not (value > 0 and math.isfinite(value)):
        raise NothingMeasured(
            f"{what} is {value:g}: nothing was measured. The bench ran out of work, or the "
            "measured code made no progress."
        )
    return value


@dataclass(frozen=True)
class Compared:
    """Rates measured between slices of R."""

    ratio: float  # median of the ratios
    ratios: list[float]
    rate: float
    reference: float

    def as_dict(self, digits: int = 3) -> dict[str, object]:
        return {
            "ratio": round(self.ratio, digits),
            "ratios": [round(r, digits) for r in self.ratios],
            "per_second": round(self.rate, 1),
            "r_per_second": round(self.reference, 1),
        }


@dataclass
class BenchRun:
    """The argument of a bench: R, worker processes, and the length of slices."""

    reference: Reference
    is_quick: bool = False  # a smoke run, whose figures are meaningless

    def log(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)  # noqa: T201

    def seconds(self, full: float, quick: float = 0.3) -> float:
        return quick if self.is_quick else full

    def slices(self, full: int = 5, quick: int = 1) -> int:
        return quick if self.is_quick else full

    def workers(self, make: str, size: int, **options: object) -> WorkerGroup:
        return WorkerGroup(make, size, options)

    @contextmanager
    def reference_around(self) -> Iterator[dict[str, object]]:
        """Figures of a bench: R before and after the block."""
        found: dict[str, object] = {"r_before": round(self.reference.measure(self.seconds(1.0)))}
        yield found
        found["r_after"] = round(self.reference.measure(self.seconds(1.0)))

    def compare(self, measure: Callable[[], float], slices: int | None = None) -> Compared:
        """Compares a rate with R. Each slice of `measure` runs between two slices of R, so other
        load of the machine affects both.
        """
        ratios, rates, references = (
            list[float](),
            list[float](),
            [self.reference.measure(self.seconds(1.0))],
        )
        for turn in range(slices or self.slices()):
            rates.append(check_measured(measure(), f"the rate of slice {turn + 1}"))
            references.append(check_measured(self.reference.measure(self.seconds(1.0)), "R"))
            ratios.append(rates[-1] * 2 / (references[-2] + references[-1]))
            self.log(f"  {turn + 1}: {rates[-1]:.0f}/s is {ratios[-1]:.2f} R")
        return Compared(
            statistics.median(ratios),
            ratios,
            statistics.median(rates),
            statistics.median(references),
        )

    def interleave(
        self, one: Callable[[], float], other: Callable[[], float], slices: int | None = None
    ) -> tuple[float, list[float]]:
        """The median ratio of `one` to `other` over interleaved slices, and all ratios."""
        ratios = list[float]()
        for turn in range(slices or self.slices()):
            # The order alternates.
            pair = (one(), other()) if turn % 2 == 0 else tuple(reversed((other(), one())))
            for rate in pair:
                check_measured(rate, f"a rate of slice {turn + 1}")
            ratios.append(pair[0] / pair[1])
            self.log(f"  {turn + 1}: {pair[0]:.0f}/s against {pair[1]:.0f}/s")
        return statistics.median(ratios), ratios


Measure = Callable[[BenchRun], Mapping[str, Any]]


@dataclass(frozen=True)
class Bench:
    name: str
    about: str
    goals: Sequence[Goal]
    measure: Measure
    needs_valkey: bool


_benches: dict[str, Bench] = {}


def bench(
    name: str, about: str, goals: Sequence[Goal], *, needs_valkey: bool = False
) -> Callable[[Measure], Measure]:
    def register(measure: Measure) -> Measure:
        if name in _benches:
            raise ValueError(f"the bench {name} is registered twice")
        _benches[name] = Bench(name, about, tuple(goals), measure, needs_valkey)
        return measure

    return register


def list_benches() -> list[Bench]:
    return sorted(_benches.values(), key=lambda b: b.name)


def get_bench(name: str) -> Bench:
    if name not in _benches:
        raise Invalid(
            f"There is no bench {name}.",
            way_out=f"Benches: {', '.join(b.name for b in list_benches())}.",
        )
    return _benches[name]


def run_bench(chosen: Bench, run: BenchRun) -> dict[str, Any]:
    """The printed result: first the figures, then goals and machine."""
    found = dict(chosen.measure(run))
    goals = {g.field: g.judge(check_measured(float(found[g.field]), g.field)) for g in chosen.goals}
    machine = {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.system(),
    }
    return {
        "bench": chosen.name,
        **found,
        "goals": goals,
        "r_by": run.reference.by,
        "quick": run.is_quick,
        "machine": machine,
    }
