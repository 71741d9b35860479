"""A day of recorded demand: bounds on flapping, waiting times and members."""

import pytest

from pools.scaling import Fixed, OnDemand, Policy, Utilisation, Warm
from tests.pools.scaling.recorded_day import live, record_day

DAY = record_day()
READY_AFTER = 75.0  # seconds until a member is there
# With the longest that half and nine in ten may wait, in seconds.
POLICIES: dict[str, tuple[Policy, float, float]] = {
    "utilisation": (Utilisation(), 10, 60),
    "idle_members": (Utilisation(idle_members=True), 10, 120),
    "warm": (Warm(2), 10, 30),
    "on_demand": (OnDemand(), 30, 120),
    "fixed": (Fixed(14), 10, 30),
}


@pytest.mark.parametrize("name", POLICIES)
def test_recorded_day_keeps_waits_and_flapping_within_bounds(name: str) -> None:
    policy, half, nine = POLICIES[name]
    report = live(DAY, policy)
    waits = (
        f"wait {report.wait(0.5):.0f} s half, {report.wait(0.9):.0f} s nine in ten, "
        f"{report.wait(1):.0f} s longest"
    )
    up, down = report.turns(policy.pace.down, 1), report.turns(READY_AFTER, -1)
    costs = (
        f"{len(report.changes)} changes, {report.member_hours:.0f} member hours, "
        f"{report.most} at most"
    )
    print(
        f"{name}: {len(DAY)} claims, {waits}; {costs}; created and removed at once {up}, removed "
        f"and wanted back at once {down}"
    )
    assert up == 0, "it flaps"
    assert down <= 0.15 * len(report.changes), (
        "it takes away what is wanted before another could even be there"
    )
    assert report.wait(0.5) <= half
    assert report.wait(0.9) <= nine
    assert report.most <= 20


def test_more_warm_members_cost_hours_and_do_not_lengthen_waits() -> None:
    """One against another over the same day: more that stand ready, less to wait for."""
    few, many = live(DAY, Warm(1)), live(DAY, Warm(4))
    assert many.wait(0.95) <= few.wait(0.95)
    assert many.member_hours > few.member_hours


def test_pool_only_shrinks_after_the_last_claim() -> None:
    steady = [job for job in record_day(7, 40) if job.at < 3600]
    report = live(steady, Utilisation(idle_members=True))
    last = max(job.at + job.holds for job in steady)
    assert all(delta < 0 for at, delta in report.changes if at > last), (
        "after the last one it only shrinks"
    )
