"""A simulated day of recorded demand against a policy: claims arrive, hold a slot and end;
members take time to start.
"""

import heapq
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import cos, pi

from pools.scaling import DemandQueue, MemberLimits, Policy, ScaledMember, Snapshot, decide

LANE = "slot"
EACH = 3


@dataclass(frozen=True)
class Job:
    at: float
    holds: float


def record_day(seed: int = 4711, most_an_hour: float = 60.0) -> list[Job]:
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


@dataclass
class Machine:
    number: int
    created: float
    ready_at: float
    running: int = 0
    quiet_since: float = 0.0


@dataclass
class Report:
    waits: list[float] = field(default_factory=list)
    changes: list[tuple[float, int]] = field(default_factory=list)
    member_hours: float = 0.0
    most: int = 0

    def wait(self, share: float) -> float:
        return sorted(self.waits)[int(share * (len(self.waits) - 1))]

    def turns(self, within: float, first: int) -> int:
        """Changes that took back the one before, so soon; `first`: of those that were
        up, or down.
        """
        pairs = zip(self.changes, self.changes[1:], strict=False)
        return sum(a[1] * first > 0 > a[1] * b[1] and b[0] - a[0] < within for a, b in pairs)


def live(
    jobs: Sequence[Job],
    policy: Policy,
    *,
    low: int = 1,
    high: int = 20,
    ready_after: float = 75.0,
    every: float = 5.0,
) -> Report:
    """Every `every` seconds one decision, as the scaler makes it."""
    report, machines, queue = Report(), list[Machine](), deque[Job]()
    ends: list[tuple[float, int]] = []
    up = down = None
    ahead, now, number = deque(jobs), 0.0, 0
    while now < 90_000:
        now += every
        by_number = {m.number: m for m in machines}
        while ends and ends[0][0] <= now:
            ended, which = heapq.heappop(ends)
            by_number[which].running -= 1
            by_number[which].quiet_since = ended
        while ahead and ahead[0].at <= now:
            queue.append(ahead.popleft())
        for machine in machines:  # pack: one after the other
            while queue and machine.ready_at <= now and machine.running < EACH:
                job = queue.popleft()
                report.waits.append(now - job.at)
                machine.running += 1
                heapq.heappush(ends, (now + job.holds, machine.number))
        decision = decide(see(machines, queue, now, low, high, up, down), policy)
        if decision.delta > 0:
            for _ in range(decision.delta):
                number += 1
                machines.append(
                    Machine(number, now, now + ready_after, quiet_since=now + ready_after)
                )
            up = now
        elif decision.delta < 0:
            gone = {judged.id for judged in decision.chosen}
            assert all(m.running == 0 for m in machines if m.number in gone)
            machines = [m for m in machines if m.number not in gone]
            down = now
        if decision.delta:
            report.changes.append((now, decision.delta))
        report.member_hours += len(machines) * every / 3600
        report.most = max(report.most, len(machines))
    assert not queue and len(report.waits) == len(jobs), "somebody was never served"
    return report


def see(
    machines: Sequence[Machine],
    queue: Sequence[Job],
    now: float,
    low: int,
    high: int,
    up: float | None,
    down: float | None,
) -> Snapshot:
    members = tuple(
        ScaledMember(
            m.number, f"m{m.number}", "ready" if m.ready_at <= now else "creating", EACH, m.running,
            created=m.created, quiet_for=max(0.0, now - m.quiet_since),
        )
        for m in machines
    )  # fmt: skip
    free = sum(EACH - m.running for m in machines if m.ready_at <= now)
    lines = (DemandQueue((LANE,), len(queue), len(queue)),) if queue else ()
    return Snapshot(
        "lab", members, lines, {LANE: free}, {LANE: EACH}, MemberLimits(low, high), False, False,
        None if up is None else now - up, None if down is None else now - down, 1.0,
    )  # fmt: skip
