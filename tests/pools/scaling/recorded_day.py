"""Demand of a day as Berth records it: minute by minute, made from random claims."""

import random
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import cos, pi

from pools.scaling import MemberLimits, Policy
from pools.scaling.replay import MINUTE, DemandSample, ReplayResult, replay

EACH = 3  # slots of a member
READY_AFTER = 75.0  # seconds until a new member takes claims
LIMITS = MemberLimits(1, 20)


@dataclass(frozen=True)
class Job:
    at: float
    holds: float


def random_jobs(seed: int = 4711, most_an_hour: float = 120.0) -> list[Job]:
    """Quiet nights, two busy hours, short plans and some long ones. The same for the same seed."""
    chance, jobs, now = random.Random(seed), list[Job](), 0.0
    while now < 86400:
        hour = now / 3600
        rate = (
            most_an_hour
            * (0.04 + 0.5 * (1 - cos(2 * pi * hour / 24)) * (1.4 if 9 <= hour < 11 else 0.7))
            / 3600
        )
        now += chance.expovariate(rate)
        jobs.append(
            Job(
                now,
                chance.expovariate(1 / 900) if chance.random() < 0.15 else chance.uniform(60, 400),
            )
        )
    return [job for job in jobs if job.at < 86400]


def record(jobs: list[Job], until: float = 90_000.0) -> list[DemandSample]:
    """The record of a pool in which each of the jobs found a free slot."""
    return [
        DemandSample(at, 1, EACH, sum(job.at <= at < job.at + job.holds for job in jobs), 0, 0)
        for at in (minute * MINUTE for minute in range(round(until / MINUTE)))
    ]


@cache
def recorded_day() -> list[DemandSample]:
    return record(random_jobs())


def replay_day(day: list[DemandSample], policy: Policy) -> ReplayResult:
    """Replay the record with a decision every 5 seconds, as often as the scaler decides."""
    return replay(day, policy, lambda moment: LIMITS, each=EACH, ready_after=READY_AFTER, every=5.0)


def changes_of(outcome: ReplayResult) -> list[tuple[float, int]]:
    """When members were created or removed, and how many."""
    counts = [LIMITS.low, *(point.members for point in outcome.points)]
    return [
        (point.at, point.members - before)
        for before, point in zip(counts, outcome.points, strict=False)
        if point.members != before
    ]


def count_reversals(outcome: ReplayResult, within: float, first: int) -> int:
    """Changes that took back the change before within so many seconds, counted where the earlier
    change created members (`first` is 1) or removed some (-1).
    """
    changes = changes_of(outcome)
    pairs = pairwise(changes)
    return sum(a[1] * first > 0 > a[1] * b[1] and b[0] - a[0] < within for a, b in pairs)
