"""Where claims of an evacuated member go, which of them stay, and when a move has arrived: tables
of the pure policy.
"""

from itertools import product

import pytest

from claims.ports.evacuation.plan import (
    READY_WITHIN,
    ArrivalFacts,
    FreeMember,
    FreePorts,
    HeldPort,
    MovableClaim,
    Move,
    Stay,
    judge_arrival,
    plan_moves,
)

Free = dict[str, dict[str, range | list[int]]]  # numbers by member and lane


def free_ports(free: Free, step: int = 1, labels: dict[str, str] | None = None) -> FreePorts:
    """Ranks in the order of the members, then of the numbers."""
    members = []
    for at, (name, lanes) in enumerate(free.items()):
        selected = frozenset([labels[name]]) if labels and name in labels else frozenset[str]()
        member = FreeMember(at, name, selected_by=selected)
        for lane, numbers in lanes.items():
            salt = 1 if lane == "udp" else 0
            member.free[lane] = {
                number: (2 * (100_000 * at + number) + salt, 1000 * at + number)
                for number in numbers
            }
        members.append(member)
    return FreePorts(members, step)


def held(*places: str, keeps: bool = False, parts: bool = False) -> tuple[HeldPort, ...]:
    """Such as "tcp 3"."""
    split = [place.split() for place in places]
    return tuple(
        HeldPort(i, lane, int(number), i if parts else 0, keeps)
        for i, (lane, number) in enumerate(split)
    )


def plan(claim: MovableClaim, free: Free, step: int = 1) -> list[str] | str:
    """The places that the claim gets, by ordinal; or the code of its stay."""
    (outcome,) = plan_moves([claim], free_ports(free, step))
    if isinstance(outcome, Stay):
        return outcome.code
    targets = sorted(outcome.targets.items())
    return [f"{target.member} {target.lane} {target.number}" for _, target in targets]


TWO: Free = {"a": {"tcp": [1, 2]}, "b": {"tcp": [1, 2, 3]}}
PAIRS: Free = {"a": {"tcp": [1, 2], "udp": [2, 3]}, "b": {"tcp": [5], "udp": [5]}}

PLANS = [
    ("first by rank", MovableClaim(1, held("tcp 9")), TWO, ["a tcp 1"]),
    ("several, spread", MovableClaim(1, held("tcp 7", "tcp 8", "tcp 9")), TWO,
     ["a tcp 1", "a tcp 2", "b tcp 1"]),
    ("too many", MovableClaim(1, held(*[f"tcp {i}" for i in range(6)])), TWO, "full"),
    ("another lane", MovableClaim(1, held("udp 1")), TWO, "full"),
    ("a run", MovableClaim(1, held("tcp 4", "tcp 5", "tcp 6"), contiguous=True), TWO,
     ["b tcp 1", "b tcp 2", "b tcp 3"]),
    ("no run", MovableClaim(1, held("tcp 4", "tcp 5"), contiguous=True),
     {"a": {"tcp": [1, 3]}, "b": {"tcp": [5]}}, "not_contiguous"),
    ("together", MovableClaim(1, held("tcp 4", "tcp 6", "tcp 9"), on_one_member=True), TWO,
     ["b tcp 1", "b tcp 2", "b tcp 3"]),
    ("not together", MovableClaim(1, held("tcp 4", "tcp 5", "tcp 6", "tcp 7"), on_one_member=True),
     TWO, "not_together"),
    ("a pair", MovableClaim(1, held("tcp 9", "udp 9")), PAIRS, ["a tcp 2", "a udp 2"]),
    ("two pairs", MovableClaim(1, held("tcp 8", "udp 8", "tcp 9", "udp 9")), PAIRS,
     ["a tcp 2", "a udp 2", "b tcp 5", "b udp 5"]),
    ("no pair", MovableClaim(1, held("tcp 9", "udp 9")), {"a": {"tcp": [1], "udp": [2]}},
     "no_pair"),
    ("parts of one number", MovableClaim(1, held("tcp 9", "udp 9", parts=True)),
     {"a": {"tcp": [1], "udp": [2]}}, ["a tcp 1", "a udp 2"]),
    ("keeps its number", MovableClaim(1, held("tcp 3", keeps=True)), TWO, ["b tcp 3"]),
    ("number taken", MovableClaim(1, held("tcp 9", keeps=True)), TWO, "number_taken"),
    ("keeps a run", MovableClaim(1, held("tcp 2", "tcp 3", keeps=True), contiguous=True), TWO,
     ["b tcp 2", "b tcp 3"]),
    ("keeps a run apart", MovableClaim(1, held("tcp 2", "tcp 3", keeps=True), on_one_member=True),
     {"a": {"tcp": [2]}, "b": {"tcp": [3]}}, "number_taken"),
    ("keeps numbers apart", MovableClaim(1, held("tcp 2", "tcp 3", keeps=True)),
     {"a": {"tcp": [2]}, "b": {"tcp": [3]}}, ["a tcp 2", "b tcp 3"]),
    ("named", MovableClaim(1, held("tcp 1"), is_named=True), TWO, "named_slot"),
    ("reserved", MovableClaim(1, held("tcp 1"), is_bound=False), TWO, "not_bound"),
    ("labels", MovableClaim(1, held("tcp 1"), labels="zone"), TWO, "no_labels"),
    ("nothing free", MovableClaim(1, held("tcp 1")), {}, "full"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "claim", "free", "expected"), PLANS, ids=[p[0] for p in PLANS])
def test_plan(name: str, claim: MovableClaim, free: Free, expected: list[str] | str) -> None:
    assert plan(claim, free) == expected


def test_runs_of_segments_have_the_step_of_the_pool() -> None:
    claim = MovableClaim(1, held("tcp 100", "tcp 200"), contiguous=True)
    assert plan(claim, {"a": {"tcp": [300, 350, 500, 600]}}, step=100) == ["a tcp 500", "a tcp 600"]


def test_labels_choose_among_members() -> None:
    claim = MovableClaim(1, held("tcp 9"), labels="zone=eu")
    (found,) = plan_moves([claim], free_ports(TWO, labels={"b": "zone=eu"}))
    assert isinstance(found, Move)
    assert found.targets[0].member == "b"


def test_claims_take_their_slots_from_the_free_ones_in_their_order() -> None:
    claims = [MovableClaim(n, held(f"tcp {n}")) for n in (1, 2, 3)]
    found = list(plan_moves(claims, free_ports({"a": {"tcp": [1, 2]}})))
    assert [type(each) for each in found] == [Move, Move, Stay]
    assert isinstance(found[2], Stay)
    assert (found[2].reason, found[2].wants) == (
        "It needs 1 tcp port, and 0 are free elsewhere",
        {"tcp": 1},
    )


def test_a_smaller_claim_moves_past_one_that_does_not_fit() -> None:
    large = MovableClaim(1, held("tcp 1", "tcp 2", "tcp 3"))
    small = MovableClaim(2, held("tcp 4"))
    found = list(plan_moves([large, small], free_ports({"a": {"tcp": [1, 2]}})))
    assert [type(each) for each in found] == [Stay, Move]


@pytest.mark.parametrize("wants", [True, False])
def test_only_claims_that_a_new_member_helps_want_room(wants: bool) -> None:
    claim = MovableClaim(1, held("tcp 1"), is_named=not wants)
    (found,) = plan_moves([claim], free_ports({}))
    assert isinstance(found, Stay)
    assert found.needs_room == wants


def arrive(
    *,
    bound: bool,
    serving: bool,
    was: bool,
    programmed: bool,
    ready: bool,
    failed: bool,
    late: bool,
) -> str:
    return judge_arrival(
        ArrivalFacts(
            is_bound=bound, is_serving=serving, was_ready=was, is_programmed=programmed,
            is_ready=ready, failure="broken" if failed else "", waits_for="not yet",
            waited=READY_WITHIN if late else 1.0,
        )
    ).action  # fmt: skip


CROSS = list(product([False, True], repeat=7))


@pytest.mark.parametrize("facts", CROSS, ids=["".join(str(int(v)) for v in f) for f in CROSS])
def test_arrival_of_every_combination(facts: tuple[bool, ...]) -> None:
    """Old ports that served players end only for new ports that are ready, or with their claim."""
    bound, serving, was, programmed, ready, failed, late = facts
    found = arrive(
        bound=bound, serving=serving, was=was, programmed=programmed, ready=ready, failed=failed,
        late=late,
    )  # fmt: skip
    if not bound or not serving or ready:
        assert found == "arrive"
    elif was:
        assert found == ("take_back" if failed or (programmed and late) else "wait")
    else:
        assert found == ("arrive" if programmed or failed else "wait")


def test_an_outage_of_the_provider_is_waited_for_without_a_limit() -> None:
    facts = ArrivalFacts(
        is_bound=True, is_serving=True, was_ready=True, waits_for="lb1 30000: missing",
        waited=1e6,
    )  # fmt: skip
    assert judge_arrival(facts) == ("wait", "lb1 30000: missing")
