"""Tables of the pure policy of deadlines and lost claims, without a database."""

import pytest

from claims.lifecycle.policy import DeadlineCheck, TimedClaim, check_deadlines, fate_of_lost

LOOKS: list[tuple[str, TimedClaim, DeadlineCheck]] = [
    ("no limit", TimedClaim(10, None, False), DeadlineCheck("", None)),
    ("not yet", TimedClaim(10, None, False, acknowledge=30), DeadlineCheck("", 20)),
    (
        "too late",
        TimedClaim(30, None, False, acknowledge=30),
        DeadlineCheck("unacknowledged", None, "not acknowledged within 30 s"),
    ),
    (
        "acknowledged: the limit is over",
        TimedClaim(99, None, True, acknowledge=30),
        DeadlineCheck("", None),
    ),
    (
        "held too long",
        TimedClaim(61, None, True, hold=60),
        DeadlineCheck("expired", None, "held for 1 min 1 s, the limit is 1 min"),
    ),
    (
        "the hold counts before the silence",
        TimedClaim(61, 61, True, hold=60, heartbeat=10),
        DeadlineCheck("expired", None, "held for 1 min 1 s, the limit is 1 min"),
    ),
    (
        "never heard: since it was bound",
        TimedClaim(20, None, True, heartbeat=15),
        DeadlineCheck("silent", None, "silent for 20 s, the limit is 15 s"),
    ),
    ("heard", TimedClaim(100, 5, True, heartbeat=15, hold=200), DeadlineCheck("", 10)),
    (
        "the nearest limit",
        TimedClaim(10, 5, False, acknowledge=12, heartbeat=15, hold=200),
        DeadlineCheck("", 2),
    ),
]


@pytest.mark.parametrize(("name", "timed", "look"), LOOKS, ids=[c[0] for c in LOOKS])
def test_a_deadline_check_ends_keeps_or_postpones_the_claim(
    name: str, timed: TimedClaim, look: DeadlineCheck
) -> None:
    assert check_deadlines(timed) == look


def test_a_lost_plan_is_retried_and_a_lost_apply_ends() -> None:
    assert fate_of_lost(step="plan", is_retried=True)[:2] == ("waiting", "")
    assert fate_of_lost(step="", is_retried=False)[:2] == ("ended", "lost")
    assert fate_of_lost(step="apply", is_retried=True)[:2] == ("ended", "lost")
