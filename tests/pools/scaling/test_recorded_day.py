"""The product's replay of a recorded day: bounds on flapping, waiting times and members."""

import pytest

from pools.scaling import Fixed, OnDemand, Policy, Utilisation, Warm
from tests.pools.scaling.recorded_day import (
    LIMITS,
    READY_AFTER,
    Job,
    changes_of,
    count_reversals,
    record,
    recorded_day,
    replay_day,
)

ONE_START = READY_AFTER + 5.0  # seconds until a member that the next decision creates is ready
# With the longest that 19 of 20 claims and all claims may wait, in seconds.
POLICIES: dict[str, tuple[Policy, float, float]] = {
    "utilisation": (Utilisation(), 0, ONE_START),
    "idle_members": (Utilisation(idle_members=True), 0, ONE_START),
    "warm": (Warm(2), 0, ONE_START),
    "on_demand": (OnDemand(), ONE_START, 2 * ONE_START),
    "fixed": (Fixed(14), 0, 0),
}


@pytest.mark.parametrize("name", POLICIES)
def test_replay_of_a_recorded_day_keeps_waits_and_flapping_within_bounds(name: str) -> None:
    policy, most, longest = POLICIES[name]
    outcome = replay_day(recorded_day(), policy)
    changes = changes_of(outcome)
    up = count_reversals(outcome, policy.pace.down, 1)
    down = count_reversals(outcome, READY_AFTER, -1)
    print(
        f"{name}: {len(outcome.waits)} claims, wait {outcome.wait(0.95):.0f} s 19 of 20, "
        f"{outcome.wait(1):.0f} s longest; "
        f"{len(changes)} changes, {outcome.member_hours:.0f} member hours, {outcome.most} at "
        f"most; created and removed at once {up}, removed and wanted back at once {down}"
    )
    assert (outcome.every, outcome.still_waiting, len(changes) > 0) == (5.0, 0, True)
    assert up == 0, "it flaps"
    assert down <= 0.15 * len(changes), "it removes members that are wanted back at once"
    assert outcome.wait(0.95) <= most
    assert outcome.wait(1) <= longest
    assert outcome.most <= LIMITS.high


def test_more_warm_members_cost_hours_and_do_not_lengthen_waits() -> None:
    few, many = (replay_day(recorded_day(), Warm(spare)) for spare in (1, 4))
    assert many.wait(0.95) <= few.wait(0.95)
    assert many.member_hours > few.member_hours


def test_pool_only_shrinks_after_the_last_claim() -> None:
    jobs = [Job(60.0 * number, 3600.0) for number in range(20)]
    last = max(job.at + job.holds for job in jobs)
    outcome = replay_day(record(jobs, last + 14_400), Utilisation(idle_members=True))
    later = [delta for at, delta in changes_of(outcome) if at > last]
    assert (len(later) > 0, [delta for delta in later if delta > 0]) == (True, [])
    assert outcome.points[-1].members == LIMITS.low
