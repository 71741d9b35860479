"""The sentences of decisions: what is wanted, what delays it, and until when."""

from typing import Any

import pytest
from hypothesis import given, settings

from pools.scaling import Fixed, OnDemand, Policy, ScalingPace, Snapshot, Utilisation, decide
from tests.pools.scaling.helpers import fleet, member, snapshot, waits
from tests.pools.scaling.test_properties import policies, snapshots


@given(snapshots(), policies)
@settings(max_examples=60, deadline=None)
def test_reason_has_at_most_one_contrast_and_names_changes_in_words(
    s: Snapshot, policy: Policy
) -> None:
    reason = decide(s, policy).reason
    for sentence in reason.split(". "):
        assert sentence.count(", but ") <= 1
    assert "the last +" not in reason and "the last −" not in reason
    assert not reason.endswith(" there")


PACE = ScalingPace(up=30.0, down=600.0, step_up=2)


@pytest.mark.parametrize("policy", [Utilisation(pace=PACE), OnDemand(pace=PACE)])
def test_decision_in_the_cool_down_after_growth_names_the_wish_and_the_time_left(
    policy: Policy,
) -> None:
    s = snapshot(*fleet(3, 3), lines=waits(9), since_up=5.0)
    found = decide(s, policy)
    assert (found.verdict, found.wanted, found.allowed_in) == (
        "hold",
        1 if isinstance(policy, Utilisation) else 2,
        25.0,
    )
    assert found.words == f"+{found.wanted} delayed"
    assert found.reason.endswith("; the cool-down ends in 25 s")


@pytest.mark.parametrize(
    ("changes", "why", "allowed_in"),
    [
        ({"since_down": 60.0}, "the cool-down ends in 9 min", 540.0),
        ({"since_up": 100.0, "since_down": 60.0}, "the cool-down ends in 9 min", 540.0),
        ({"seen": 61.0}, "the provider was last checked 61 s ago", None),
        ({"seen": None}, "the provider was never checked", None),
    ],
)
def test_decision_that_delays_a_removal_names_the_wish_and_the_cause(
    changes: dict[str, Any], why: str, allowed_in: float | None
) -> None:
    found = decide(snapshot(*fleet(0, 0, 0), **changes), Utilisation(pace=PACE))
    assert (found.verdict, found.words, found.allowed_in) == ("hold", "−1 delayed", allowed_in)
    assert found.reason.endswith(f", but {why}")


def test_removal_that_waiting_claims_delay_names_their_number() -> None:
    found = decide(snapshot(*fleet(0, 0, 0), lines=waits(1)), Fixed(1))
    assert (found.words, found.allowed_in) == ("−2 delayed", None)
    assert found.reason == "1 member wanted, 3 members exist, but 1 claim waits"


def test_decision_without_a_wish_is_called_no_change() -> None:
    found = decide(snapshot(*fleet(2, 1)), Utilisation())
    assert (found.verdict, found.words, found.wanted) == ("hold", "no change", 0)


def test_slots_that_new_members_would_not_have_are_not_called_served() -> None:
    s = snapshot(member(1, 3), lines=waits(2, wants_new=False))
    assert decide(s, OnDemand()).reason == (
        "2 slots are missing for waiting claims, but new members would not have the requested "
        "slots or labels"
    )
