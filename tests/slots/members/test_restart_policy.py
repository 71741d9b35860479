"""The restart policy (P13): which members are restarted, when, and when attempts stop. Pure."""

from typing import Any

import pytest

from slots.members.policy import (
    BACK_OFF,
    GRACE,
    MOST_RESTARTS,
    STAY,
    WELL_AFTER,
    RestartCondition,
    decide_restart,
)

LOST = 600.0


def offline(for_s: float, **more: Any) -> RestartCondition:
    return RestartCondition(state="offline", for_s=for_s, **more)


def down(for_s: float, **more: Any) -> RestartCondition:
    return offline(for_s, is_down=True, **more)


@pytest.mark.parametrize("restarts", range(MOST_RESTARTS))
def test_ended_member_waits_for_the_back_off_only(restarts: int) -> None:
    wait = BACK_OFF[restarts]
    assert decide_restart(down(wait, restarts=restarts), LOST).action == "restart"
    if wait:
        assert decide_restart(down(wait - 0.1, restarts=restarts), LOST) == STAY


@pytest.mark.parametrize("restarts", range(MOST_RESTARTS))
@pytest.mark.parametrize("state", ["offline", "creating"])
def test_silent_member_waits_two_minutes_longer_than_the_back_off(
    state: str, restarts: int
) -> None:
    wait = GRACE + BACK_OFF[restarts]
    assert (
        decide_restart(RestartCondition(state=state, for_s=wait, restarts=restarts), LOST).action
        == "restart"
    )
    assert (
        decide_restart(RestartCondition(state=state, for_s=wait - 0.1, restarts=restarts), LOST)
        == STAY
    )


def test_restart_constants_match_the_documented_waits() -> None:
    assert [seconds / 60 for seconds in BACK_OFF] == [0, 1, 2, 4, 8]
    assert (GRACE, MOST_RESTARTS, WELL_AFTER) == (120, 5, 600)


def test_restarts_stop_after_five_failures() -> None:
    verdict = decide_restart(down(0.0, restarts=5), LOST)
    assert (verdict.action, verdict.reason) == ("give_up", "started 5 times in a row in vain")
    assert decide_restart(offline(119.9, restarts=5), LOST) == STAY
    assert decide_restart(offline(120.0, restarts=5), LOST).action == "give_up"


def test_member_that_gave_up_is_lost_after_the_lost_time() -> None:
    tired = {"restarts": 5, "has_given_up": True}
    assert decide_restart(down(599.9, **tired), LOST) == STAY
    assert decide_restart(down(600.0, **tired), LOST).action == "lose"
    assert decide_restart(down(600.0, is_lost=True, **tired), LOST) == STAY
    assert decide_restart(down(99999.0, **tired), None) == STAY


def test_planned_end_restarts_at_once_without_counting() -> None:
    verdict = decide_restart(down(0.0, is_planned=True, restarts=5, has_given_up=True), LOST)
    assert (verdict.action, verdict.is_counted) == ("restart", False)


def test_silent_member_is_not_restarted_under_its_task() -> None:
    assert decide_restart(offline(3000.0, is_busy=True), LOST) == STAY
    assert decide_restart(offline(3000.0, is_busy=True, is_lost=True), LOST).action == "restart"
    assert decide_restart(down(0.0, is_busy=True), LOST).action == "restart"


def test_restart_count_is_reset_once_a_member_stayed_well() -> None:
    assert decide_restart(RestartCondition(state="ready", for_s=599.9, restarts=3), LOST) == STAY
    assert (
        decide_restart(RestartCondition(state="ready", for_s=600.0, restarts=3), LOST).action
        == "forget"
    )
    assert (
        decide_restart(RestartCondition(state="ready", for_s=600.0, has_given_up=True), LOST).action
        == "forget"
    )
    assert decide_restart(RestartCondition(state="ready", for_s=99999.0), LOST) == STAY


@pytest.mark.parametrize("state", ["deleting", "gone"])
def test_leaving_member_is_left_alone(state: str) -> None:
    assert decide_restart(RestartCondition(state=state, for_s=99999.0, is_down=True), LOST) == STAY
