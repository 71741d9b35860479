"""Properties of every scaling decision: victims are unused, limits hold, and steady demand does
not flap.
"""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from pools.scaling import (
    DemandQueue,
    Fixed,
    MemberLimits,
    OnDemand,
    Pin,
    Policy,
    ScalingDecision,
    ScalingPace,
    Snapshot,
    Utilisation,
    Warm,
    decide,
)
from pools.scaling.model import ScaledMember
from tests.pools.scaling.helpers import NOW

LANES = ("plan", "any")


@st.composite
def members(draw: st.DrawFn, most: int = 8) -> tuple[ScaledMember, ...]:
    found = []
    for number in range(draw(st.integers(0, most))):
        slots = draw(st.integers(1, 6))
        running = draw(st.integers(0, slots))
        reserved = draw(st.integers(0, slots - running))
        draining = draw(st.integers(0, slots - running - reserved))
        state = draw(
            st.sampled_from(("ready", "ready", "ready", "creating", "offline", "deleting"))
        )
        if state in ("creating", "deleting"):
            running = reserved = draining = 0
        found.append(
            ScaledMember(
                number,
                f"m{number}",
                state,
                slots,
                running,
                reserved,
                draining,
                draw(st.integers(-1, 1)),
                NOW + draw(st.integers(0, 3)),
                draw(st.sampled_from((0.0, 1e5))),
                draw(st.booleans()) and not number,
                draw(st.integers(0, 9)) == 0,
                draw(st.integers(0, 9)) == 0,
                draw(st.integers(0, 9)) > 0,
            )
        )
    return tuple(found)


@st.composite
def snapshots(draw: st.DrawFn, *, with_orders: bool = True) -> Snapshot:
    low = draw(st.integers(0, 5))
    limits = MemberLimits(low, low + draw(st.integers(0, 6)))
    if with_orders:
        pin = draw(st.none() | st.integers(0, 9).map(Pin))
        limits = replace(
            limits,
            pin=pin,
            paused=draw(st.sampled_from(("", "", "ana"))),
            frozen=draw(st.sampled_from(("", "", "night"))),
        )
    there = draw(members(8 if with_orders else 3))
    waiting = draw(
        st.lists(
            st.tuples(
                st.sampled_from((("plan", "any"), ("any",))), st.integers(1, 30), st.booleans()
            ),
            max_size=3,
        )
    )
    lines = tuple(
        DemandQueue(lanes, n, n, n if urgent else 0, 0.0, draw(st.booleans()), draw(st.booleans()))
        for lanes, n, urgent in waiting
    )
    seconds = st.none() | st.floats(0, 2000)
    return Snapshot(
        "lab", there, lines, {lane: draw(st.integers(0, 4)) for lane in LANES},
        {"plan": draw(st.integers(0, 3)), "any": 1}, limits, draw(st.booleans()),
        draw(st.booleans()), draw(seconds), draw(seconds), draw(st.none() | st.floats(0, 100)),
    )  # fmt: skip


paces = st.builds(
    ScalingPace,
    st.sampled_from((0.0, 30.0)),
    st.sampled_from((0.0, 600.0)),
    st.integers(0, 3),
    st.integers(0, 3),
)
policies: st.SearchStrategy[Policy] = st.one_of(
    st.builds(Fixed, st.integers(0, 9), paces),
    st.builds(
        Utilisation,
        st.sampled_from((60.0, 80.0)),
        st.sampled_from((0.0, 20.0, 50.0)),
        st.booleans(),
        paces,
    ),
    st.builds(Warm, st.integers(0, 4), paces),
    st.builds(
        Utilisation, st.just(60.0), st.just(50.0), st.just(True), st.just(ScalingPace(0, 0, 1, 1))
    ),
    st.builds(OnDemand, st.none() | st.sampled_from((0.0, 600.0)), paces),
)


def victims_of(s: Snapshot, decision: ScalingDecision) -> list[ScaledMember]:
    ids = {judged.id for judged in decision.chosen}
    return [m for m in s.members if m.id in ids]


@settings(max_examples=250)
@given(snapshots(), policies)
def test_victims_are_always_empty_owned_and_not_cordoned(s: Snapshot, policy: Policy) -> None:
    decision = decide(s, policy)
    chosen = victims_of(s, decision)
    assert all(m.running == m.reserved == m.draining == 0 for m in chosen)
    assert all(m.is_owned and not m.is_cordoned and not m.is_going for m in chosen)
    assert len(chosen) == max(0, -decision.delta)
    assert decision.delta >= 0 or s.is_fresh


@settings(max_examples=250)
@given(snapshots(), policies)
def test_decision_never_leaves_the_limits(s: Snapshot, policy: Policy) -> None:
    decision = decide(s, policy)
    if decision.delta > 0:
        assert len(s.members) + decision.delta <= s.limits.high, (
            "those on their way out still count"
        )
    if decision.delta < 0 and s.limits.pin is None and not s.limits.frozen:
        gone = {m.id for m in victims_of(s, decision)}
        left = sum(m.is_there and m.id not in gone for m in s.members)
        assert left >= min(s.limits.low, len(s.there))
    if s.limits.paused:
        assert decision.delta == 0


def after(s: Snapshot, decision: ScalingDecision) -> Snapshot:
    """The decision has been carried out long ago, and the claims are the same as before."""
    gone = {m.id for m in victims_of(s, decision)}
    there = [m for m in s.members if m.id not in gone]
    each = sum(s.each.values())
    for i in range(max(0, decision.delta)):
        there.append(
            ScaledMember(
                1000 + len(there) + i, f"n{i}", "ready", each, created=NOW + 86400, quiet_for=1e5
            )
        )
    free = {
        lane: s.free.get(lane, 0) + count * max(0, decision.delta) for lane, count in s.each.items()
    }
    settled = [m._replace(state="ready") if m.state == "creating" else m for m in there]
    return replace(s, members=tuple(settled), free=free, since_up=None, since_down=None, seen=0.0)


@settings(max_examples=500)
@given(
    snapshots(with_orders=False),
    policies,
    st.integers(0, 2),
    st.just(()) | st.just((DemandQueue(("any",), 2, 2),)),
)
def test_same_demand_is_not_answered_up_and_down_in_turn(
    s: Snapshot, policy: Policy, low: int, lines: tuple[DemandQueue, ...]
) -> None:
    there = tuple(
        m for m in s.members if m.state != "creating" and not m.is_going and not m.is_lost
    )
    s = replace(
        s,
        members=there,
        lines=lines,
        limits=MemberLimits(low, 12),
        since_up=None,
        since_down=None,
        seen=0.0,
    )
    first = decide(s, policy)
    second = decide(after(s, first), policy)
    removed = {judged.id for each in (first, second) if each.delta < 0 for judged in each.chosen}
    # A silent member has no capacity: its removal is no answer to demand.
    is_silent = removed <= {member.id for member in there if member.state == "offline"}
    assert first.delta * second.delta >= 0 or is_silent, (first, second)


@settings(max_examples=100)
@given(snapshots(), policies)
def test_same_snapshot_always_gives_the_same_decision(s: Snapshot, policy: Policy) -> None:
    turned = replace(s, members=s.members[::-1], lines=s.lines[::-1])
    assert decide(s, policy).delta == decide(turned, policy).delta
    assert {j.id for j in decide(s, policy).chosen} == {j.id for j in decide(turned, policy).chosen}
