"""Tables of the pure allocation policy, without a database."""

import pytest

from claims.allocation.requests.policy import (
    STRICT_AFTER,
    Offer,
    Passing,
    PoolState,
    QueueHead,
    SlotDemand,
    Turn,
    WaitingHead,
    choose_heads,
    choose_passings,
    find_reason,
    find_refusal,
    is_passable,
    longest_run,
)

TASKS = Offer(
    "tf", "plan_and_apply", ("plan", "plan_and_apply"), ("any",), each=1, run=1, max_members=3
)
PORTS = Offer(
    "eu", "tcp", ("tcp",), ("tcp",), each=50, run=50, max_members=2, quota=50, span=(30000, 30049)
)
US = Offer(
    "us", "tcp", ("tcp",), ("tcp",), each=50, run=50, max_members=2, quota=50, span=(30000, 30049)
)


def other(offer: Offer, **changes: object) -> Offer:
    return Offer(
        **{name: changes.get(name, getattr(offer, name)) for name in Offer.__dataclass_fields__}
    )  # type: ignore[arg-type]


REFUSALS: list[tuple[str, SlotDemand, list[Offer], str | None]] = [
    ("fits", SlotDemand(3), [TASKS], None),
    ("as many as its maximum", SlotDemand(100), [PORTS], None),
    ("one more", SlotDemand(101), [PORTS], "too_big"),
    (
        "members that are there may have more",
        SlotDemand(120),
        [other(PORTS, members=((70, 70),))],
        None,
    ),
    ("or fewer", SlotDemand(60), [other(PORTS, members=((5, 5), (5, 5)))], "too_big"),
    ("no kind and several", SlotDemand(), [other(TASKS, kind="")], "kind_missing"),
    (
        "a kind nobody serves",
        SlotDemand(),
        [other(TASKS, kind="train", lanes=())],
        "kind_not_offered",
    ),
    ("no member allowed", SlotDemand(), [other(PORTS, max_members=0)], "no_room"),
    (
        "one is there though none is allowed",
        SlotDemand(),
        [other(PORTS, max_members=0, members=((50, 50),))],
        None,
    ),
    ("a run that fits", SlotDemand(50, contiguous=True), [PORTS], None),
    ("a run over two members", SlotDemand(51, contiguous=True), [PORTS], "run_too_long"),
    (
        "a run past foreign ports",
        SlotDemand(30, contiguous=True),
        [other(PORTS, run=20)],
        "run_too_long",
    ),
    ("together", SlotDemand(2, on_one_member=True), [TASKS], "member_too_small"),
    (
        "together on a bigger member",
        SlotDemand(2, on_one_member=True),
        [other(TASKS, members=((4, 4),))],
        None,
    ),
    ("two pools, one too small", SlotDemand(100), [PORTS, other(US, max_members=1)], "too_big"),
    ("same number", SlotDemand(1, same_number=True), [PORTS, US], None),
    (
        "unequal segments",
        SlotDemand(1, same_number=True),
        [PORTS, other(US, segment=10)],
        "unequal_segments",
    ),
    (
        "unequal quotas",
        SlotDemand(1, same_number=True),
        [PORTS, other(US, quota=40)],
        "unequal_quotas",
    ),
    (
        "ports and no ports",
        SlotDemand(1, same_number=True),
        [PORTS, other(US, quota=None, span=None)],
        "unequal_quotas",
    ),
    (
        "ranges apart",
        SlotDemand(1, same_number=True),
        [PORTS, other(US, span=(40000, 40049))],
        "no_common_range",
    ),
    (
        "ranges apart do not matter otherwise",
        SlotDemand(1),
        [PORTS, other(US, span=(40000, 40049))],
        None,
    ),
]


@pytest.mark.parametrize(
    ("name", "wanted", "offers", "code"), REFUSALS, ids=[r[0] for r in REFUSALS]
)
def test_a_demand_that_could_never_be_served_is_refused_with_its_code(
    name: str, wanted: SlotDemand, offers: list[Offer], code: str | None
) -> None:
    refusal = find_refusal(wanted, offers)
    assert (refusal.code if refusal else None) == code
    assert refusal is None or (refusal.text and refusal.way_out)


def test_the_longest_run_has_equal_steps() -> None:
    assert longest_run([], 1) == 0
    assert longest_run([5], 1) == 1
    assert longest_run([3, 1, 2, 7, 8], 1) == 3
    assert longest_run([30000, 30010, 30020, 30040], 10) == 3


FINE = PoolState("active", has_member=True, is_any_willing=True)
FREE = PoolState("active", has_member=True, is_any_willing=True, is_free=True)
GPU = SlotDemand(1, selector={"gpu": "t4"})
REASONS: list[tuple[str, SlotDemand, list[PoolState], str]] = [
    ("no pool", SlotDemand(), [PoolState()], "pool_not_found"),
    ("a second pool that is missing", SlotDemand(), [FREE, PoolState()], "pool_not_found"),
    ("gone is missing", SlotDemand(), [PoolState("gone")], "pool_not_found"),
    ("pending", SlotDemand(), [PoolState("pending")], "pool_pending"),
    ("deleting", SlotDemand(), [PoolState("deleting")], "pool_deleting"),
    (
        "refused since the pool has changed",
        SlotDemand(),
        [PoolState("active", refusal="too_big", has_member=True)],
        "too_big",
    ),
    ("no member", SlotDemand(), [PoolState("active")], "no_member"),
    (
        "no member with the labels",
        GPU,
        [PoolState("active", has_member=True, is_any_willing=True, has_labels=False)],
        "no_member_with_labels",
    ),
    ("paused", SlotDemand(), [PoolState("active", is_paused=True, has_member=True)], "pool_paused"),
    ("all cordoned", SlotDemand(), [PoolState("active", has_member=True)], "no_member_willing"),
    (
        "those with labels cordoned",
        GPU,
        [PoolState("active", has_member=True, is_any_willing=True, is_labelled_willing=False)],
        "no_member_willing",
    ),
    ("full", SlotDemand(), [FINE], "full"),
    ("one of two full", SlotDemand(2), [FREE, FINE], "full"),
    ("free, but not with the labels", GPU, [FREE], "full"),
    ("free: its turn comes", SlotDemand(), [FREE], "next"),
    ("fewer than asked for", SlotDemand(3), [FREE], "not_enough"),
    ("not in a row", SlotDemand(3, contiguous=True), [FREE], "not_contiguous"),
    ("not together", SlotDemand(3, on_one_member=True), [FREE], "not_together"),
    ("no common number", SlotDemand(1, same_number=True), [FREE, FREE], "no_common_number"),
]


@pytest.mark.parametrize(("name", "wanted", "pools", "code"), REASONS, ids=[r[0] for r in REASONS])
def test_a_queue_gets_the_wait_reason_of_its_state(
    name: str, wanted: SlotDemand, pools: list[PoolState], code: str
) -> None:
    assert find_reason(wanted, pools) == code


@pytest.mark.parametrize(
    "code", ["no_member_with_labels", "pool_not_found", "no_member_willing", "too_big"]
)
def test_a_queue_that_released_slots_cannot_serve_is_passable(code: str) -> None:
    assert is_passable(code, is_simple=False)


@pytest.mark.parametrize(
    ("code", "is_simple"), [("full", False), ("not_contiguous", False), ("no_member_willing", True)]
)
def test_a_queue_that_released_slots_can_serve_is_not_passable(code: str, is_simple: bool) -> None:
    assert not is_passable(code, is_simple=is_simple)


@pytest.mark.parametrize(
    ("size", "taken", "passed", "waited", "may_pass"),
    [
        (1, 1, 0, 0.0, True),
        (2, 2, 1, 0.0, True),
        (2, 2, 2, 0.0, False),  # a slot more than the waiting claim needs
        (2, 1, 2, 0.0, True),  # of which the waiting claim could use but one
        (3, 1, 0, 0.0, False),  # an equal
        (4, 1, 0, 0.0, False),
        (1, 1, 3, 0.0, False),
        (1, 1, 0, STRICT_AFTER - 1, True),
        (1, 1, 0, STRICT_AFTER, False),
    ],
)
def test_a_smaller_claim_passes_a_waiting_one_only_within_its_size(
    size: int, taken: int, passed: int, waited: float, may_pass: bool
) -> None:
    assert (
        WaitingHead(claim=7, size=3, passed=passed, waited=waited).may_be_passed(size, taken)
        is may_pass
    )


def test_slots_that_no_waiting_claim_could_use_are_taken_first() -> None:
    plain, gpu, spent = (
        WaitingHead(1, 2),
        WaitingHead(2, 2, labels={"gpu": "t4"}),
        WaitingHead(3, 2, passed=2, labels={"zone": "eu"}),
    )
    assert choose_passings([plain]) == [Passing([1], [])]
    assert choose_passings([plain, gpu]) == [Passing([1], [{"gpu": "t4"}]), Passing([1, 2], [])]
    assert choose_passings([gpu, spent]) == [Passing([], [{"gpu": "t4"}, {"zone": "eu"}])]
    assert choose_passings([gpu, WaitingHead(4, 1)]) == [], (
        "an equal that takes any slot is passed by nobody"
    )


def test_turns_are_ordered_by_rank_and_then_by_age() -> None:
    assert sorted([Turn(100, 7), Turn(0, 9), Turn(100, 3), Turn(50, 8)]) == [
        Turn(0, 9),
        Turn(50, 8),
        Turn(100, 3),
        Turn(100, 7),
    ]


def test_limited_tries_mix_the_first_turns_with_the_longest_untried_queues() -> None:
    heads = [QueueHead(Turn(100, i), shape=i, is_simple=False, tried=float(i)) for i in range(10)]
    assert choose_heads(heads, 10) == heads
    # The first two by their turns, then those that were tried longest ago.
    assert [h.shape for h in choose_heads(heads, 4)] == [0, 1, 8, 9]
    never = QueueHead(Turn(100, 5), shape=5, is_simple=False, tried=None)
    assert [h.shape for h in choose_heads([*heads[:5], never, *heads[6:]], 3)] == [0, 5, 9]
