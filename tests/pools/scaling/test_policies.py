"""Each guard of the scaling policies alone: snapshots that differ only in the deciding value."""

from dataclasses import replace
from typing import Any

import pytest

from pools.scaling import (
    Fixed,
    MemberLimits,
    OnDemand,
    Pin,
    ScalingDecision,
    ScalingPace,
    Snapshot,
    Utilisation,
    Warm,
    decide,
    force,
    list_next,
    order,
)
from tests.pools.scaling.helpers import NOW, fleet, member, snapshot, waits

S8 = Utilisation()
S8_IDLE = Utilisation(idle_members=True)


def used(percent: float, *, members: int = 10, low: int = 0, **more: Any) -> Snapshot:
    """A snapshot with this use, of members with 100 slots each; the last members are idle."""
    left, made = round(percent * members), []
    for i in range(1, members + 1):
        made.append(member(i, min(100, left), slots=100))
        left -= min(100, left)
    return snapshot(*made, low=low, high=20, each={"slot": 100}, **more)


def verdict(decision: ScalingDecision) -> tuple[str, int, str]:
    return decision.verdict, decision.delta, decision.code


# S8 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percent", "expected"),
    [
        (80.0, ("hold", 0, "between")),
        (80.1, ("grow", 1, "busy")),
        (100.0, ("grow", 1, "busy")),
        (20.0, ("hold", 0, "between")),
        (19.9, ("hold", 0, "kept")),  # one claim runs
        (0.0, ("shrink", -1, "idle")),
    ],
)
def test_utilisation_thresholds_decide_growth_and_shrinking(percent, expected):
    assert verdict(decide(used(percent), S8)) == expected


@pytest.mark.parametrize(("percent", "expected"), [(20.0, 0), (19.9, -1), (80.0, 0), (80.1, 1)])
def test_utilisation_thresholds_with_idle_members(percent, expected):
    assert decide(used(percent), S8_IDLE).delta == expected


def test_running_claim_prevents_shrinking():
    found = decide(snapshot(*fleet(0, 0, 0, 0, 0, 1)), S8)
    assert verdict(found) == ("hold", 0, "kept")
    assert found.reason == "5.6 % is below 20 %, but 1 slot is held"


def test_reserved_claim_prevents_shrinking():
    found = decide(snapshot(*fleet(0, 0, 0, 0, 0), member(9, 0, 1)), S8)
    assert verdict(found) == ("hold", 0, "kept")
    assert "1 slot is reserved" in found.reason


@pytest.mark.parametrize("policy", [S8, S8_IDLE], ids=["plain", "idle_members"])
def test_waiting_claim_prevents_shrinking(policy):
    found = decide(snapshot(*fleet(0, 0, 0, 0), lines=waits(1)), policy)
    assert (found.delta, "1 claim waits" in found.reason) == (0, True)


def test_idle_members_mode_shrinks_a_large_pool_beside_one_long_task():
    found = decide(snapshot(*fleet(1, 0, 0, 0, 0, 0, 0), member(8, 0, 1)), S8_IDLE)
    assert (found.delta, [j.name for j in found.chosen]) == (-1, ["m7"])
    assert {j.name: j.why for j in found.spared}["m1"] == "1 running"
    assert {j.name: j.why for j in found.spared}["m8"] == "1 reserved"


def test_pool_does_not_shrink_below_its_minimum():
    assert verdict(decide(snapshot(*fleet(0, 0, 0), low=3), S8)) == ("hold", 0, "min")


def test_member_that_would_be_needed_again_is_not_removed():
    large = member(2, 0, slots=95)
    found = decide(snapshot(member(1, 5, slots=5), large, each={"slot": 95}), S8_IDLE)
    assert verdict(found) == ("hold", 0, "needed")


def test_member_being_created_counts_as_capacity():
    assert decide(snapshot(*fleet(3, 3, 2)), S8).delta == 1
    assert decide(snapshot(*fleet(3, 3, 2), member(4, state="creating")), S8).delta == 0


def test_offline_members_do_not_count_as_capacity():
    assert (
        decide(
            snapshot(*fleet(3, 3, 2), member(4, state="offline"), member(5, state="offline")), S8
        ).delta
        == 1
    )


# S9, S10, S11 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [S8, OnDemand()], ids=["utilisation", "on_demand"])
@pytest.mark.parametrize(("low", "expected"), [(0, 1), (1, 1), (4, 4)])
def test_cold_start_grows_by_policy_and_minimum(policy, low, expected):
    assert (
        decide(snapshot(low=low, lines=waits(2), since_up=1.0, seen=None), policy).delta == expected
    )


def test_empty_pool_without_waiting_claims_holds():
    assert verdict(decide(snapshot(), S8)) == ("hold", 0, "empty")


def test_pool_does_not_shrink_without_a_fresh_look():
    assert decide(snapshot(*fleet(0, 0), seen=59.0), S8).delta == -1
    for seen in (61.0, None):
        found = decide(snapshot(*fleet(0, 0), seen=seen), S8)
        assert (found.verdict, "but the provider was " in found.reason) == ("hold", True)


def test_reservations_keep_a_floor_of_members():
    held = [member(i, 0, 1) for i in range(1, 3)]
    assert decide(snapshot(*held), S8).inputs["floor"] == 1
    seven = snapshot(*[member(i, 0, 3) for i in (1, 2)], member(3, 0, 1), *fleet(0, 0, 0), high=20)
    assert seven.floor == 3
    lost = snapshot(member(1, 0, 3, is_lost=True), member(2, 0, 3, is_lost=True), member(3, 0, 1))
    assert verdict(decide(lost, Warm(max_idle=0))) == ("grow", 2, "floor")


def test_pool_grows_when_reservations_use_all_members():
    """All three reserved and the fourth wants in: reservations are use, so there is one more."""
    found = decide(
        snapshot(*[member(i, 0, 3) for i in (1, 2, 3)], low=3, high=12, lines=waits(1)), S8
    )
    assert verdict(found) == ("grow", 1, "busy")


def test_approved_apply_grows_the_pool_despite_free_plan_slots():
    """A third is in use, but no free slot takes an apply: one more member at once, within the
    cool-down too.
    """
    line = waits(1, urgent=1, lanes=("any",))
    found = decide(
        snapshot(
            *fleet(1, 1, 1), free={"plan": 6}, each={"any": 1, "plan": 2}, lines=line, since_up=1.0
        ),
        S8,
    )
    assert verdict(found) == ("grow", 1, "urgent")
    coming = snapshot(
        *fleet(1, 1, 1),
        member(4, state="creating"),
        free={"plan": 6},
        each={"any": 1, "plan": 2},
        lines=line,
    )
    assert decide(coming, S8).delta == 0


def test_free_slots_of_another_lane_do_not_serve_waiting_claims():
    found = decide(
        snapshot(
            *fleet(1, 1, 1),
            free={"plan": 6},
            each={"any": 1, "plan": 2},
            lines=waits(1, lanes=("any",)),
        ),
        S8,
    )
    assert verdict(found) == ("grow", 1, "waiting")


# Fixed, warm, on demand ---------------------------------------------------------------------------


@pytest.mark.parametrize(("there", "expected"), [(0, 4), (3, 1), (4, 0), (6, -2)])
def test_fixed_policy_keeps_its_count(there, expected):
    assert decide(snapshot(*fleet(*[0] * there)), Fixed(4)).delta == expected


@pytest.mark.parametrize(
    ("running", "pending", "high", "expected"),
    [
        ([1, 1], 0, 10, 1),  # two in use, one idle wanted
        ([1, 1, 0], 0, 10, 0),
        ([1, 1, 0], 1, 10, 1),  # the waiting claim takes the idle member
        ([1, 1, 0, 0, 0], 0, 10, -2),
        ([1, 1, 0], 5, 5, 2),  # P20: the maximum cuts, it does not stop
        ([1, 0, 0, 0, 0, 0], 0, 3, -4),
    ],
)
def test_warm_policy_keeps_idle_members(running, pending, high, expected):
    members = [member(i, n, slots=1) for i, n in enumerate(running, 1)]
    assert (
        decide(
            snapshot(
                *members, high=high, each={"slot": 1}, lines=waits(pending) if pending else ()
            ),
            Warm(1),
        ).delta
        == expected
    )


def test_warm_policy_counts_starting_and_not_leaving_members():
    coming = [member(1, 1, slots=1), member(2, slots=1, state="creating")]
    assert decide(snapshot(*coming, each={"slot": 1}), Warm(1)).delta == 0
    going = [member(1, 1, slots=1), member(2, slots=1, state="deleting")]
    assert decide(snapshot(*going, each={"slot": 1}, high=3), Warm(1)).delta == 1
    found = decide(snapshot(*going, each={"slot": 1}, high=2), Warm(1))
    assert (found.verdict, found.words) == ("blocked", "+1 blocked"), (
        "what goes still counts against the most"
    )


def test_on_demand_creates_one_member_per_cycle():
    found = decide(snapshot(*fleet(3), lines=waits(20)), OnDemand())
    assert (found.delta, found.verdict) == (1, "grow")
    assert (
        decide(snapshot(*fleet(3), member(2, state="creating"), lines=waits(20)), OnDemand()).delta
        == 1
    )
    enough = snapshot(
        *fleet(3), *[member(i, state="creating") for i in range(2, 9)], lines=waits(20)
    )
    assert decide(enough, OnDemand()).delta == 0


def test_claim_larger_than_one_member_grows_the_pool_twice():
    """S4: the request that was absorbed is not lost, what is missing is counted again."""
    first = snapshot(each={"tcp": 50}, lines=(waits(60, lanes=("tcp",))[0]._replace(claims=1),))
    assert decide(first, OnDemand()).delta == 1
    then = replace(first, members=(member(1, slots=50),), free={"tcp": 50}, is_requested=False)
    assert decide(then, OnDemand()).delta == 1


def test_on_demand_removes_members_idle_for_long():
    assert decide(snapshot(*fleet(0, 0)), OnDemand(600)).delta == -1
    assert decide(snapshot(*fleet(0, 0, quiet_for=599.0)), OnDemand(600)).delta == 0
    assert decide(snapshot(*fleet(0, 0)), OnDemand(None)).delta == 0


def test_unmatched_label_claims_do_not_create_members():
    assert decide(snapshot(lines=waits(1, wants_new=False)), OnDemand()).delta == 0
    assert decide(snapshot(*fleet(0, 0), lines=waits(1, wants_new=False)), OnDemand()).delta == 0, (
        "but keep those that are there"
    )


# Precedence ---------------------------------------------------------------------------------------


def test_pause_overrides_everything():
    found = decide(snapshot(*fleet(3, 3), paused="by ana", frozen="night", pin=Pin(8), low=5), S8)
    assert verdict(found) == ("paused", 0, "paused")


def test_freeze_removes_idle_members_and_keeps_the_others():
    found = decide(
        snapshot(*fleet(1, 0, 0), member(4, 0, 1), frozen="night", pin=Pin(8), low=2), S8
    )
    assert (verdict(found), [j.name for j in found.chosen]) == (
        ("shrink", -2, "freeze"),
        ["m3", "m2"],
    )
    busy = decide(snapshot(*fleet(3, 3), frozen="night", lines=waits(9, urgent=1)), S8)
    assert verdict(busy) == ("frozen", 0, "freeze")


@pytest.mark.parametrize(
    ("look", "delta"),
    [
        ({"seen": 60.0}, -2),
        ({"seen": 60.1}, 0),
        ({"seen": None}, 0),
        ({"seen": 3.0, "runs_for": 3.0}, -2),
        ({"seen": 3.0, "runs_for": 2.9}, 0),
    ],
)
@pytest.mark.parametrize("frozen", ["", "night"], ids=["policy", "freeze"])
def test_members_go_after_a_recent_look_that_began_since_the_start_only(look, delta, frozen):
    found = decide(snapshot(*fleet(0, 0), frozen=frozen, **look), Fixed(0))
    assert (found.delta, len(found.chosen)) == (delta, -delta)


def test_maximum_overrides_a_pin():
    assert verdict(decide(snapshot(*fleet(0, 0, 0), high=3, pin=Pin(5)), S8)) == ("hold", 0, "pin")
    assert verdict(decide(snapshot(*fleet(0, 0, 0), high=2, pin=Pin(5)), S8)) == (
        "shrink",
        -1,
        "max",
    )


def test_pin_overrides_floor_minimum_and_policy():
    assert decide(snapshot(*fleet(3, 3), low=1, pin=Pin(4, "release")), S8).delta == 2
    found = decide(snapshot(*fleet(0, 0, 0), low=3, pin=Pin(1), lines=waits(1), since_down=1.0), S8)
    assert verdict(found) == ("shrink", -2, "pin")


def test_floor_overrides_the_minimum():
    lost = [member(i, 0, 3, is_lost=True) for i in (1, 2)]
    assert verdict(decide(snapshot(*lost, low=1), Warm(0))) == ("grow", 2, "floor")


def test_minimum_overrides_the_policy_at_once():
    assert verdict(decide(snapshot(*fleet(0), low=4, since_up=1.0), S8)) == ("grow", 3, "min")


def test_maximum_blocks_growth_and_is_reported():
    found = decide(snapshot(*fleet(3, 3), high=2, lines=waits(6), is_requested=True), S8)
    assert (found.words, found.clears_request) == ("+1 blocked", True)
    assert found.reason == "100.0 % of 6 slots in use, but 2 of 2 members exist"


def test_pool_over_its_maximum_removes_idle_members():
    found = decide(snapshot(*fleet(0, 1, 0, 0, 0), high=3, lines=waits(1)), S8)
    assert verdict(found) == ("shrink", -2, "max")


# Cool-downs and requests --------------------------------------------------------------------------


@pytest.mark.parametrize(("since", "expected"), [(29.0, 0), (30.0, 1), (None, 1)])
def test_growth_waits_for_its_cool_down(since, expected):
    assert decide(snapshot(*fleet(3, 3), since_up=since), S8).delta == expected


@pytest.mark.parametrize("which", ["since_down", "since_up"])
@pytest.mark.parametrize(("since", "expected"), [(599.0, 0), (600.0, -1)])
def test_shrinking_waits_after_growth_and_after_shrinking(which, since, expected):
    assert decide(snapshot(*fleet(0, 0), **{which: since}), S8).delta == expected


def test_steps_are_bounded_by_pace_and_policy():
    assert (
        decide(snapshot(*fleet(0, 0, 0, 0)), Utilisation(pace=ScalingPace(0, 0, 2, 2))).delta == -1
    ), "S8 wishes one at a time"
    assert (
        decide(snapshot(lines=waits(20), high=9), OnDemand(pace=ScalingPace(0, 0, 3, 1))).delta == 1
    ), "the first comes alone"
    assert (
        decide(
            snapshot(*fleet(3), lines=waits(20), high=9), OnDemand(pace=ScalingPace(0, 0, 3, 1))
        ).delta
        == 3
    )


def test_scale_request_stays_until_it_is_served():
    wanting = snapshot(*fleet(3, 3), lines=waits(1), is_requested=True)
    assert not decide(wanting, OnDemand()).clears_request
    coming = replace(
        wanting, members=(*wanting.members, member(3, state="creating")), grown_since_request=True
    )
    assert not decide(coming, OnDemand()).clears_request
    done = decide(
        snapshot(*fleet(3, 3, 1), is_requested=True, grown_since_request=True), OnDemand()
    )
    assert (done.clears_request, done.absorbs) == (True, True)
    nothing = decide(snapshot(*fleet(0), is_requested=True), OnDemand())
    assert (nothing.clears_request, nothing.absorbs) == (True, False)
    assert decide(replace(wanting, limits=MemberLimits(paused="off")), OnDemand()).clears_request


def test_forced_growth_obeys_maximum_and_freeze():
    assert verdict(force(snapshot(*fleet(0)), 1, "demo")) == ("grow", 1, "forced")
    assert force(snapshot(*fleet(0), high=1), 1, "demo").words == "+1 blocked"
    assert force(snapshot(*fleet(0), high=3), 5, "demo").delta == 2
    assert force(snapshot(*fleet(0), frozen="night"), 1, "demo").verdict == "blocked"


# Members in order ---------------------------------------------------------------------------------


def test_victims_are_chosen_in_order():
    """S14. A golden list: on their way out, unknown, idle; dear ones later; the newest first, to
    the microsecond.
    """
    at = NOW
    members = [
        member(1, created=at),
        member(2, created=at + 1e-6),
        member(3, created=at + 9, cost=10),
        member(4, created=at + 9, cost=-5),
        member(5, state="offline", created=at),
        member(6, state="offline", cost=1, created=at + 3600),
        member(7, state="deleting"),
        member(8, is_leaving=True),
        member(9, state="creating"),
        member(10, running=1, created=at + 86400),
        member(11, reserved=1),
        member(12, running=2),
        member(13, is_lost=True, state="offline", created=at + 7200),
    ]
    golden = ["m8", "m7", "m13", "m5", "m6", "m9", "m4", "m2", "m1", "m3", "m10", "m12", "m11"]
    assert [m.name for m in order(members)] == golden
    assert [m.name for m in order(members[::-1])] == golden


def test_next_victims_are_listed_with_what_blocks_the_others():
    members = [
        *fleet(0, 2, 0),
        member(4, 0, 1),
        member(5, is_cordoned=True),
        member(6, is_owned=False),
        member(7, draining=1),
    ]
    assert [(m.name, why) for m, why in list_next(members)] == [
        ("m3", ""),
        ("m1", ""),
        ("m6", "not created by Berth"),
        ("m5", "cordoned by an operator"),
        ("m7", "1 draining"),
        ("m2", "2 running"),
        ("m4", "1 reserved"),
    ]


def test_decision_explains_chosen_and_spared_members():
    members = [
        member(1, created=NOW),
        member(2, created=NOW + 7800),
        member(3, created=NOW, cost=10),
        member(4, 1),
    ]
    found = decide(snapshot(*members), Utilisation(idle_members=True))
    assert [(j.name, j.why) for j in found.chosen] == [("m2", "idle, cost 0, newest")]
    assert [(j.name, j.why) for j in found.spared] == [
        ("m1", "idle, 2 h 10 min older"),
        ("m3", "deletion cost 10"),
        ("m4", "1 running"),
    ]


@pytest.mark.parametrize("held", ["running", "reserved", "draining"])
@pytest.mark.parametrize(
    "policy",
    [S8, S8_IDLE, Warm(0), OnDemand(0.0), Fixed(0)],
    ids=["utilisation", "idle_members", "warm", "on_demand", "fixed"],
)
def test_silent_members_with_claims_are_never_removed(policy, held):
    """The rows decide which slots are held, not the messages of agents."""
    silent = [member(i, state="offline", **{held: 1}) for i in range(1, 6)]
    assert decide(snapshot(*silent), policy).chosen == ()
    # A member without claims shows that the policy wants to remove members.
    if isinstance(policy, Fixed):
        found = decide(snapshot(*silent, member(6, state="offline")), policy)
        assert [candidate.name for candidate in found.chosen] == ["m6"]


def test_snapshot_totals_equal_the_sum_over_members():
    states = [
        {"state": state, flag: True}
        for state in ("ready", "creating", "offline", "deleting")
        for flag in ("is_leaving", "is_cordoned", "is_lost", "is_owned")
    ]
    members = [
        member(i, i % 2, i % 3 % 2, draining=i % 5 % 2, **more) for i, more in enumerate(states)
    ]
    s = snapshot(*members)
    assert s.total == sum(m.usable for m in members)
    assert s.there == tuple(m for m in members if m.is_there)
    assert s.sums.going == sum(m.is_going for m in members)
