"""Rolling renewal of outdated members: which ones, in which order, and what holds the roll.
Pure.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pools.scaling import (
    Fixed,
    MemberLimits,
    OnDemand,
    Pin,
    Policy,
    Roll,
    ScaledMember,
    ScalingDecision,
    Snapshot,
    Utilisation,
    Warm,
    decide,
    decide_roll,
)
from tests.pools.scaling.helpers import member, snapshot, waits
from tests.pools.scaling.test_properties import policies, snapshots, victims_of

KEEP = OnDemand(idle_for=None)  # wants as many as are there


def old(number: int, **more: Any) -> ScaledMember:
    return member(number, is_outdated=True, state_for=9000.0, **more)


def new(number: int, **more: Any) -> ScaledMember:
    return member(number, **({"state_for": 9000.0} | more))


def told(decision: ScalingDecision) -> tuple[int, str, list[int]]:
    return decision.delta, decision.step, [judged.id for judged in decision.chosen]


# The way of one roll ------------------------------------------------------------------------------


def test_roll_creates_a_surge_member_first() -> None:
    decision = decide(snapshot(old(1), old(2), high=3), KEEP)
    assert (told(decision), decision.verdict) == ((1, "surge", []), "grow")
    assert decision.reason == "Roll: 2 members are outdated, one more member is created first"


def test_outdated_member_is_removed_once_the_new_one_stays_ready() -> None:
    there = (old(1), old(2))
    coming = snapshot(*there, member(3, state="creating", state_for=5.0), high=3, surge=3)
    assert told(decide(coming, KEEP)) == (0, "", [])
    assert "waits for m3 to be ready" in decide(coming, KEEP).reason
    just = snapshot(*there, new(3, state_for=9.9), high=3, surge=3)
    assert told(decide(just, KEEP)) == (0, "", [])
    ready = snapshot(*there, new(3, state_for=10.0), high=3, surge=3)
    assert told(decide(ready, KEEP)) == (-1, "swap", [2]), (
        "the newest of the outdated, never the new one"
    )


def test_next_renewal_waits_until_the_last_member_is_gone() -> None:
    s = snapshot(old(1), new(3), old(2, state="deleting"), high=3)
    assert told(decide(s, KEEP)) == (0, "", [])
    assert "until m2 is gone" in decide(s, KEEP).reason


def test_member_is_rebuilt_in_place_at_the_maximum() -> None:
    decision = decide(snapshot(old(1), old(2), low=1, high=2), KEEP)
    assert (told(decision), decision.verdict, decision.words) == (
        (0, "rebuild", [2]),
        "rebuild",
        "rebuild",
    )


def test_rebuild_keeps_the_minimum_ready() -> None:
    offline = snapshot(old(1), old(2), old(3, state="offline", running=1), low=2, high=3)
    assert told(decide(offline, KEEP)) == (0, "", []), "three are there, two of them ready"
    assert "2 of 3 have to be ready during a rebuild" in decide(offline, KEEP).reason


def test_rebuilds_are_made_one_at_a_time_where_minimum_equals_maximum() -> None:
    """One member more is never allowed there, so the roll could not begin."""
    s = snapshot(old(1), old(2), low=2, high=2)
    assert told(decide(s, KEEP)) == (0, "rebuild", [2])
    meanwhile = snapshot(old(1), member(2, state="creating", state_for=5.0), low=2, high=2)
    assert told(decide(meanwhile, KEEP)) == (0, "", []), "one at a time"
    just = snapshot(old(1), new(2, state_for=9.9), low=2, high=2)
    assert told(decide(just, KEEP)) == (0, "", [])
    assert told(decide(snapshot(old(1), new(2), low=2, high=2), KEEP)) == (0, "rebuild", [1])
    assert told(decide(snapshot(old(1), low=1, high=1), KEEP)) == (0, "rebuild", [1]), (
        "and the only one, while it is idle"
    )


@pytest.mark.parametrize(
    "second",
    [{"state": "offline", "running": 1}, {"is_lost": True, "reserved": 1}],
    ids=["silent", "lost"],
)
def test_no_second_member_is_rebuilt_while_one_is_not_ready(second: dict[str, Any]) -> None:
    decision = decide(snapshot(old(1), old(2, **second), low=2, high=2), KEEP)
    assert told(decision) == (0, "", [])
    assert "1 of 2 have to be ready during a rebuild" in decision.reason


@pytest.mark.parametrize("used", ["running", "reserved", "draining"])
def test_member_in_use_is_not_rebuilt(used: str) -> None:
    s = snapshot(old(1, **{used: 1}), old(2, **{used: 1}), low=2, high=2)
    assert told(decide(s, KEEP)) == (0, "", [])
    assert told(decide(snapshot(old(1, **{used: 1}), old(2), low=2, high=2), KEEP)) == (
        0,
        "rebuild",
        [2],
    )


def test_no_member_is_rebuilt_at_the_minimum_while_claims_wait() -> None:
    s = snapshot(
        old(1), old(2, running=3), low=2, high=2, lines=waits(2, fits_free=False, wants_new=False)
    )
    assert told(decide(s, KEEP)) == (0, "", [])


def test_roll_waits_for_the_end_of_a_window_without_surge_room() -> None:
    """After the window, a new member may come first again, so the peak keeps all members."""
    roll = Roll(could_surge=True)
    peak = decide(snapshot(old(1), old(2), limits=MemberLimits(2, 2, "peak 8–18"), roll=roll), KEEP)
    assert told(peak) == (0, "", [])
    assert "2 of 2 have to be ready during a rebuild (peak 8–18)" in peak.reason
    assert told(decide(snapshot(old(1), old(2), limits=MemberLimits(2, 3), roll=roll), KEEP)) == (
        1,
        "surge",
        [],
    )
    assert told(decide(snapshot(old(1), old(2), limits=MemberLimits(2, 2, "day")), KEEP)) == (
        0,
        "rebuild",
        [2],
    ), "there never is room here"


@pytest.mark.parametrize(
    "gone",
    [{"is_leaving": True, "running": 1}, {"is_lost": True, "state": "offline", "reserved": 1}],
)
def test_no_member_is_swapped_while_another_drains_or_is_lost(gone: dict[str, Any]) -> None:
    """At the maximum no new member can be created, so neither of two ready members may go."""
    decision = decide(snapshot(old(1), old(2, **gone), new(3), low=2, high=3, surge=3), KEEP)
    assert told(decision) == (0, "", [])
    assert "2 have to be ready" in decision.reason
    pinned = snapshot(old(1), new(3), low=2, high=3, surge=3, pin=Pin(1))
    assert told(decide(pinned, KEEP)) == (-1, "swap", [1]), (
        "as many as a person wants, and no more than that"
    )


def test_idle_surplus_member_is_removed_only_if_the_minimum_stays_ready() -> None:
    late = snapshot(new(1), new(2, state="offline"), new(3, running=1), low=2, high=3, surge=3)
    assert told(decide(late, KEEP)) == (0, "", []), "two are ready, and two have to be"
    back = snapshot(new(1), new(2), new(3, running=1), low=2, high=3, surge=3)
    assert told(decide(back, KEEP)) == (-1, "over", [2])


def test_rebuild_in_place_waits_while_claims_wait() -> None:
    busy = snapshot(
        old(1), old(2, running=3), low=0, high=2, lines=waits(2, fits_free=False, wants_new=False)
    )
    assert told(decide(busy, KEEP)) == (0, "", [])
    assert "while 2 claims wait" in decide(busy, KEEP).reason


@pytest.mark.parametrize("what", ["running", "reserved", "draining"])
def test_outdated_member_in_use_is_left_alone(what: str) -> None:
    s = snapshot(old(1, **{what: 1}), high=5)
    assert told(decide(s, KEEP)) == (0, "", [])
    assert "1 member is outdated, in use or kept" in decide(s, KEEP).reason
    two = snapshot(old(1, **{what: 1}), old(2, **{what: 1}), high=5)
    assert "2 members are outdated, each of them in use or kept" in decide(two, KEEP).reason
    ready = snapshot(old(1, **{what: 1}), new(2), high=5, surge=2)
    assert told(decide(ready, KEEP)) == (0, "", [])


def test_cordoned_and_foreign_members_are_left_alone() -> None:
    assert told(decide(snapshot(old(1, is_cordoned=True)), KEEP)) == (0, "", [])
    assert decide_roll(snapshot(old(1, is_owned=False))) is None


def test_outdated_member_that_never_worked_is_rebuilt_without_surge() -> None:
    """The member was created from a broken template, so it can be renewed at once."""
    s = snapshot(old(1), old(2, state="creating"), low=2, high=5)
    assert told(decide(s, KEEP)) == (0, "rebuild", [2])
    assert told(decide(replace(s, seen=None), KEEP)) == (0, "", []), (
        "without a look nothing is ended"
    )


@pytest.mark.parametrize(
    ("s", "step"),
    [
        (snapshot(old(1), old(2), low=1, high=2), (0, "rebuild", [2])),
        (snapshot(old(1), old(2, state="creating"), high=5), (0, "rebuild", [2])),
        (snapshot(old(1), old(2), new(3), high=3, surge=3), (-1, "swap", [2])),
        (snapshot(new(1), new(2), high=3, surge=2), (-1, "over", [2])),
    ],
    ids=["rebuild", "rebuild of an unready member", "swap", "end of the surge"],
)
@pytest.mark.parametrize(
    ("look", "why"),
    [
        ({"seen": 60.0}, ""),
        ({"seen": 60.1}, "is too old"),
        ({"seen": 3.0, "runs_for": 3.0}, ""),
        ({"seen": 3.0, "runs_for": 2.9}, "began before this controller started"),
    ],
)
def test_roll_ends_a_member_after_a_recent_look_that_began_since_the_start_only(
    s: Snapshot, step: tuple[int, str, list[int]], look: dict[str, Any], why: str
) -> None:
    found = decide_roll(replace(s, **look))
    assert found is not None
    assert told(found) == ((0, "", []) if why else step)
    if why:
        ends = f"last provider check {why}" if step[1] != "over" else "for a provider check"
        assert found.reason.endswith(ends)


def test_new_member_that_is_not_ready_in_time_stops_the_roll() -> None:
    coming = snapshot(old(1), member(2, state="creating", state_for=899.0), high=5, surge=2)
    assert told(decide(coming, KEEP)) == (0, "", [])
    late = snapshot(old(1), member(2, state="creating", state_for=900.0), high=5, surge=2)
    decision = decide(late, KEEP)
    assert (decision.verdict, decision.step, decision.delta) == ("stopped", "stop", 0)
    assert decision.reason == "The roll stops: m2 is not ready after 15 min"
    stopped = replace(late, roll=Roll(stopped="m2 is not ready after 15 min"))
    assert told(decide(stopped, KEEP)) == (0, "", [])
    assert "the roll has stopped: m2 is not ready" in decide(stopped, KEEP).reason


def test_stopped_roll_names_why_the_member_is_not_ready() -> None:
    why = "ImagePullBackOff: no such image."
    coming = snapshot(
        old(1), member(2, state="creating", state_for=899.0, outside=why), high=5, surge=2
    )
    assert decide(coming, KEEP).reason.endswith(
        "The roll waits for m2 to be ready: ImagePullBackOff: no such image"
    )
    late = snapshot(
        old(1), member(2, state="creating", state_for=900.0, outside=why), high=5, surge=2
    )
    assert (
        decide(late, KEEP).reason
        == "The roll stops: m2 is not ready after 15 min: ImagePullBackOff: no such image"
    )
    assert (
        decide(late, KEEP).key
        == decide(replace(late, members=(old(1), late.members[1]._replace(outside=""))), KEEP).key
    )


def test_new_member_that_gave_up_stops_the_roll_at_once() -> None:
    assert (
        decide(
            snapshot(
                old(1), new(2, is_lost=True, state="creating", state_for=1.0), high=5, surge=2
            ),
            KEEP,
        ).step
        == "stop"
    )


def test_new_member_that_falls_silent_delays_the_roll() -> None:
    s = snapshot(old(1), new(2, state="offline", state_for=60.0), high=5)
    assert told(decide(s, KEEP)) == (0, "", [])


@pytest.mark.parametrize(
    ("roll", "words"),
    [
        (Roll(is_wanted=False), "renewed once an operator orders it"),
        (Roll(paused="ana looks"), "the roll is paused: ana looks"),
    ],
    ids=["manual", "paused"],
)
def test_people_can_hold_a_roll(roll: Roll, words: str) -> None:
    decision = decide(snapshot(old(1), high=5, roll=roll), KEEP)
    assert (told(decision), words in decision.reason) == ((0, "", []), True)


def test_scaler_pause_and_freeze_hold_a_roll() -> None:
    assert decide(snapshot(old(1, running=1), paused="ana"), KEEP).verdict == "paused"
    frozen = decide(snapshot(old(1), new(2), high=5, surge=2, frozen="night"), KEEP)
    assert (frozen.delta, frozen.step) == (-2, ""), "everybody idle goes"


def test_reverted_configuration_removes_the_surge_member() -> None:
    s = snapshot(new(1), new(2), high=5, surge=2)
    assert told(decide(s, KEEP)) == (-1, "over", [2])
    busy = snapshot(new(1), new(2, running=1), high=5, surge=2)
    assert told(decide(busy, KEEP)) == (-1, "over", [1]), (
        "one of them is too many, whichever is idle"
    )


def test_outdated_surge_member_is_removed_first() -> None:
    s = snapshot(old(1), old(2, state="creating"), high=5, surge=2)
    assert told(decide(s, KEEP)) == (-1, "over", [2])


def test_members_are_rebuilt_in_place_where_surge_is_not_allowed() -> None:
    s = snapshot(old(1), old(2), high=9, roll=Roll(may_surge=False))
    found = decide_roll(s)
    assert found is not None
    assert told(found) == (0, "rebuild", [2])
    least = decide_roll(replace(s, limits=MemberLimits(2, 9)))
    assert least is not None
    assert told(least) == (0, "rebuild", [2]), "nobody there makes one more first"


# Beside the policies ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [Fixed(2), Warm(2), Utilisation(), KEEP],
    ids=["fixed", "warm", "utilisation", "on_demand"],
)
@pytest.mark.parametrize("state", ["creating", "ready"])
def test_surge_member_is_not_removed_by_the_policy(policy: Policy, state: str) -> None:
    """Otherwise roll and policy would create and remove the member without an end."""
    s = snapshot(
        old(1),
        old(2),
        member(3, state=state, state_for=1.0),
        low=1,
        high=4,
        surge=3,
        since_up=None,
        since_down=None,
    )
    if not isinstance(policy, Utilisation):
        assert told(decide(s, policy)) == (0, "", []), decide(s, policy)
    assert 3 not in [judged.id for judged in decide(s, policy).chosen]


def test_surge_member_is_not_removed_by_a_pin() -> None:
    s = snapshot(
        old(1),
        old(2),
        member(3, state="creating", state_for=1.0),
        high=4,
        surge=3,
        limits=MemberLimits(0, 4, pin=Pin(2)),
    )
    assert told(decide(s, Fixed(9))) == (0, "", [])


def test_surge_member_counts_towards_the_maximum() -> None:
    s = snapshot(
        old(1, running=3), old(2, running=3), new(3, running=3), high=3, surge=3, lines=waits(2)
    )
    assert decide(s, Utilisation()).words == "+1 blocked"


def test_policy_decision_comes_before_the_roll() -> None:
    assert told(decide(snapshot(old(1), high=5, lines=waits(9, fits_free=False)), OnDemand()))[
        :2
    ] == (1, "")
    assert told(decide(snapshot(old(1), new(2), old(3), low=1), Fixed(1))) == (-2, "", [3, 1]), (
        "outdated ones go first"
    )


def test_complete_roll_ends_with_as_many_members_as_before() -> None:
    s, seen = snapshot(old(1), old(2), old(3), low=3, high=4), []
    for turn in range(40):
        decision = decide(s, Utilisation())
        seen.append(decision.step)
        gone = {judged.id for judged in decision.chosen} if decision.delta < 0 else set()
        there = [
            m._replace(state="ready", state_for=m.state_for + 60.0)
            for m in s.members
            if m.id not in gone
        ]
        surge = s.surge if decision.step != "swap" else None
        if decision.delta > 0:
            surge = 10 + turn
            there.append(member(surge, state="creating", state_for=0.0))
        s = replace(s, members=tuple(there), surge=surge, since_down=0.0)
    assert [step for step in seen if step] == ["surge", "swap"] * 3
    assert (len(s.members), any(m.is_outdated for m in s.members), s.surge) == (3, False, None)


# For any snapshot ---------------------------------------------------------------------------------


@st.composite
def rolling(draw: st.DrawFn) -> Snapshot:
    s = draw(snapshots())
    there = tuple(
        m._replace(
            is_outdated=draw(st.booleans()), state_for=draw(st.sampled_from((0.0, 60.0, 9000.0)))
        )
        for m in s.members
    )
    surge = draw(st.none() | st.sampled_from([m.id for m in there])) if there else None
    roll = Roll(
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from(("", "", "ana"))),
        draw(st.sampled_from(("", "", "m2"))),
    )
    return replace(s, members=there, surge=surge, roll=roll)


@settings(max_examples=400)
@given(rolling(), policies)
def test_roll_leaves_members_in_use_and_keeps_the_limits(s: Snapshot, policy: Policy) -> None:
    decision = decide(s, policy)
    chosen = victims_of(s, decision)
    assert all(m.running == m.reserved == m.draining == 0 for m in chosen)
    assert all(m.is_owned and not m.is_cordoned and not m.is_going for m in chosen)
    if decision.delta > 0:
        assert len(s.members) + decision.delta <= s.limits.high
    if decision.step in ("swap", "rebuild"):
        assert all(m.is_outdated and m.id != s.surge for m in chosen)
        assert s.is_fresh
        ready = sum(m.state == "ready" and m.is_there for m in s.members)
        left = ready - sum(m.state == "ready" and m.is_there for m in chosen)
        low = s.limits.low if s.limits.pin is None else min(s.limits.low, s.limits.pin.count)
        if decision.step == "rebuild" and not (
            s.roll.may_surge and (s.limits.high > s.limits.low or s.roll.could_surge)
        ):
            low -= 1  # one more first is never allowed there
        assert left >= min(ready, low), "never fewer ready than the least"
    if decision.step in ("surge", "swap", "rebuild"):
        assert not s.roll.paused
        assert not s.roll.stopped
        assert not (s.limits.paused or s.limits.frozen)


@settings(max_examples=200)
@given(rolling(), policies)
def test_roll_changes_no_decision_without_outdated_members(s: Snapshot, policy: Policy) -> None:
    s = replace(s, members=tuple(m._replace(is_outdated=False) for m in s.members), surge=None)
    assert decide(s, policy).step == ""
