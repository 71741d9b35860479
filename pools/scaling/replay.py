"""Replay of recorded demand under another policy, with the decisions of the scaler and a simulated
clock. Pure.

The record holds, minute by minute, how many slots were held, reserved and waited for. A rise
counts as new claims, a fall as the end of the oldest claims. Lanes and claims shorter than a minute
are not recorded, and demand does not react to supply. So replays are compared only with each other,
and `as_it_was` counts the past in the same way.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from .decide import decide
from .model import DemandQueue, MemberLimits, ScaledMember, Snapshot
from .policies import Fixed, OnDemand, Policy, Utilisation, Warm

LANE = "slot"
MINUTE = 60.0
BUILT_IN = (Fixed, OnDemand, Utilisation, Warm)
POINTS = 500
MOST_WORK = 800_000  # decisions times members of one replay; `pace_of` spaces the decisions out


@dataclass(frozen=True, slots=True)
class DemandSample:
    """Recorded demand from `at` until the next sample."""

    at: float  # seconds since 1970
    members: int
    slots: int
    held: int
    reserved: int
    waiting: int

    @property
    def wanted(self) -> int:
        return self.held + self.reserved + self.waiting


@dataclass(frozen=True, slots=True)
class Point:
    at: float
    members: int
    slots: int
    wanted: int
    waiting: int


@dataclass
class ReplayResult:
    points: list[Point] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)  # seconds until each served claim got a slot
    still_waiting: int = 0
    created: int = 0
    removed: int = 0
    member_hours: float = 0.0
    waiting_hours: float = 0.0  # slots waited for, times hours
    most: int = 0
    every: float = 0.0  # seconds between two decisions

    def add(self, point: Point, seconds: float) -> None:
        """Count what held for so many seconds."""
        self.points.append(point)
        self.member_hours += point.members * seconds / 3600
        self.waiting_hours += point.waiting * seconds / 3600
        self.most = max(self.most, point.members)

    def wait(self, share: float) -> float:
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def thinned(self) -> list[Point]:
        """At most `POINTS` points: of each stretch the point with the most waiting claims."""
        size = max(1, -(-len(self.points) // POINTS))
        return [
            max(self.points[i : i + size], key=lambda p: p.waiting)
            for i in range(0, len(self.points), size)
        ]


@dataclass
class _Machine:
    number: int
    created: float
    ready_at: float
    since: float
    running: int = 0


@dataclass
class _Simulation:
    each: int
    machines: list[_Machine] = field(default_factory=list)
    queue: deque[float] = field(default_factory=deque)  # arrival time of each waiting claim
    tasks: deque[_Machine] = field(default_factory=deque)  # machine of each claim, oldest first
    made: int = 0

    def add(self, now: float, ready_at: float) -> None:
        self.made += 1
        self.machines.append(_Machine(self.made, now, ready_at, ready_at))

    def follow(self, wanted: int, now: float, outcome: ReplayResult) -> None:
        """Adjust the claims to `wanted`: the oldest claims end, new claims queue for a slot."""
        while len(self.tasks) + len(self.queue) > wanted:
            if self.queue and not self.tasks:
                self.queue.popleft()
                continue
            machine = self.tasks.popleft()
            machine.running -= 1
            machine.since = now
        self.queue.extend([now] * (wanted - len(self.tasks) - len(self.queue)))
        for machine in self.machines:
            if not self.queue:
                break
            while self.queue and machine.ready_at <= now and machine.running < self.each:
                outcome.waits.append(now - self.queue.popleft())
                machine.running += 1
                self.tasks.append(machine)

    def see(
        self,
        moment: DemandSample,
        now: float,
        limits: MemberLimits,
        up: float | None,
        down: float | None,
    ) -> Snapshot:
        reserved = min(moment.reserved, len(self.tasks))
        kept: dict[int, int] = {}
        for i, machine in enumerate(self.tasks):
            if i >= reserved:
                break
            kept[machine.number] = kept.get(machine.number, 0) + 1
        members = tuple(
            ScaledMember(
                m.number, f"m{m.number}", "ready" if m.ready_at <= now else "creating", self.each,
                m.running - kept.get(m.number, 0), kept.get(m.number, 0), created=m.created,
                quiet_for=max(0.0, now - m.since),
            )
            for m in self.machines
        )  # fmt: skip
        free = sum(self.each - m.running for m in self.machines if m.ready_at <= now)
        waiting = len(self.queue)
        return Snapshot(
            "replay", members, (DemandQueue((LANE,), waiting, waiting),) if waiting else (),
            {LANE: free}, {LANE: self.each}, limits, False, False, None if up is None else now - up,
            None if down is None else now - down, 0.0,
        )  # fmt: skip


@dataclass
class _Clock:
    """Skips decisions over facts that have not changed since the last decision."""

    policy: Policy
    up: float | None = None
    down: float | None = None
    seen: object = None

    def is_due(
        self, world: _Simulation, moment: DemandSample, limits: MemberLimits, now: float
    ) -> bool:
        """True if the facts differ from those of the last decision. Ages count only as passed
        thresholds of the policy. A policy outside of Berth may read any fact, so it is always due.
        """
        if not isinstance(self.policy, BUILT_IN):
            return True
        pace = self.policy.pace
        idle_for = self.policy.idle_for if isinstance(self.policy, OnDemand) else None
        ages = [
            0 if at is None else 1 + (now - at >= pace.up) + (now - at >= pace.down)
            for at in (self.up, self.down)
        ]
        machines = tuple(
            (
                m.number,
                m.running,
                m.ready_at <= now,
                idle_for is not None and not m.running and now - m.since >= idle_for,
            )
            for m in world.machines
        )
        found = (machines, len(world.queue), moment.reserved, limits, ages)
        if found == self.seen:
            return False
        self.seen = found
        return True

    def record_change(self, delta: int, now: float) -> None:
        if delta:
            self.seen = None
            self.up, self.down = (now, self.down) if delta > 0 else (self.up, now)


def replay(
    moments: Sequence[DemandSample],
    policy: Policy,
    limits_at: Callable[[datetime], MemberLimits],
    *,
    each: int,
    ready_after: float = 60.0,
    every: float = 15.0,
) -> ReplayResult:
    """Decide every `every` seconds, starting with the recorded number of members."""
    outcome, world = ReplayResult(), _Simulation(max(1, each))
    if not moments:
        return outcome
    start, end = moments[0].at, moments[-1].at + MINUTE
    for _ in range(moments[0].members):
        world.add(start, start)
    every = outcome.every = pace_of(moments, every)
    clock, index, now = _Clock(policy), 0, start
    while now < end:
        while index + 1 < len(moments) and moments[index + 1].at <= now:
            index += 1
        moment = moments[index]
        world.follow(moment.wanted, now, outcome)
        limits = limits_at(datetime.fromtimestamp(now, UTC))
        if clock.is_due(world, moment, limits, now):
            decision = decide(world.see(moment, now, limits, clock.up, clock.down), policy)
            clock.record_change(decision.delta, now)
            outcome.created += max(0, decision.delta)
            for _ in range(decision.delta):
                world.add(now, now + ready_after)
            if decision.delta < 0:
                gone = {judged.id for judged in decision.chosen}
                outcome.removed += len(gone)
                world.machines = [m for m in world.machines if m.number not in gone]
        members = len(world.machines)
        slots, waiting = members * world.each, len(world.queue)
        outcome.add(Point(now, members, slots, moment.wanted, waiting), every)
        now += every
    outcome.still_waiting = len(world.queue)
    return outcome


def as_it_was(moments: Sequence[DemandSample], *, each: int) -> ReplayResult:
    """Count the recorded members in the same way as `replay` counts simulated ones."""
    outcome, world = ReplayResult(every=15.0), _Simulation(max(1, each))
    for i, moment in enumerate(moments):
        if i:
            outcome.created += max(0, moment.members - moments[i - 1].members)
            outcome.removed += max(0, moments[i - 1].members - moment.members)
        until = moments[i + 1].at if i + 1 < len(moments) else moment.at + MINUTE
        _follow_slots(world, moment, outcome)
        # A gap in the record must not count as hours of waiting.
        length = min(until - moment.at, 10 * MINUTE)
        point = Point(moment.at, moment.members, moment.slots, moment.wanted, moment.waiting)
        outcome.add(point, length)
    outcome.still_waiting = len(world.queue)
    return outcome


def _follow_slots(world: _Simulation, moment: DemandSample, outcome: ReplayResult) -> None:
    """Give slots to as many claims as held one, in order of arrival."""
    running = moment.held + moment.reserved
    held = world.machines[0] if world.machines else _Machine(0, 0.0, 0.0, 0.0)
    if not world.machines:
        world.machines.append(held)
    while len(world.tasks) + len(world.queue) > moment.wanted:
        (world.tasks if world.tasks else world.queue).popleft()
    world.queue.extend([moment.at] * (moment.wanted - len(world.tasks) - len(world.queue)))
    while world.queue and len(world.tasks) < running:
        outcome.waits.append(moment.at - world.queue.popleft())
        world.tasks.append(held)


def pace_of(moments: Sequence[DemandSample], every: float) -> float:
    """Seconds between two decisions, so that each replay stays within `MOST_WORK`."""
    length = moments[-1].at - moments[0].at + MINUTE
    busiest = max(max(m.members for m in moments), 10)
    return max(every, length * busiest / MOST_WORK)
