"""The named statements can make every declared transition of claims and slots with all rules on.

`test_transitions.py` proves the other half: undeclared transitions are refused.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from claims.states import CLAIM
from slots.states import SLOT
from tests.database import helpers
from tests.database import race_actors as p
from tests.database.helpers import Connection, run, value

Step = Callable[[Connection], Any]


@pytest.fixture
def c(tables: None) -> Iterator[Connection]:
    helpers.load(slots=20, pools=2, claims=20, per_member=5)
    with helpers.connect() as connection:
        yield connection
        assert helpers.violations(connection) == {}


@pytest.fixture
def d(tables: None) -> Iterator[Connection]:
    """Pools whose slots drain after a release."""
    helpers.load(slots=20, pools=2, claims=20, per_member=5, queue="local")
    with helpers.connect() as connection:
        yield connection
        assert helpers.violations(connection) == {}


def operations(c: Connection) -> int:
    return int(value(c, "SELECT count(*) FROM kernel_operation"))


# -- bind and release ------------------------------------------------------------------------------
def test_heads_of_the_queue_get_the_first_slots(c: Connection) -> None:
    rows = p.bind_batch(c, None, 3)
    assert sorted((r.claim_id, r.slot_id) for r in rows) == [(0, 0), (2, 1), (4, 2)]
    assert len({r.generation for r in rows}) == 3
    assert operations(c) == 0, "nothing is to be done outside"


def test_priority_goes_before_age(c: Connection) -> None:
    c.execute("UPDATE claims_claim SET rank = 50 WHERE id = 6")
    assert [r.claim_id for r in p.bind_batch(c, None, 1)] == [6]


def test_released_slots_without_external_resources_are_idle_at_once(c: Connection) -> None:
    assert p.release(c, p.hand(c))
    assert p.slot_row(c) == ("idle", None)
    assert p.claim_row(c)[2] == "released"


def test_released_slots_with_external_resources_drain(d: Connection) -> None:
    assert p.release(d, p.hand(d))
    assert p.slot_row(d) == ("draining", None)
    assert value(
        d, "SELECT drain_until IS NOT NULL AND due_at IS NOT NULL FROM slots_slot WHERE id = 0"
    ), "the finalizer looks again"
    assert operations(d) == 2, "one for the bind, one for the release"
    assert run(
        d,
        "free_slot",
        slot=0,
        generation=value(d, "SELECT generation FROM slots_slot WHERE id = 0"),
        actor="t",
    )
    assert p.slot_row(d) == ("idle", None)


def test_cleaning_of_an_earlier_holder_does_nothing(d: Connection) -> None:
    p.release(d, p.hand(d))
    assert not run(
        d,
        "free_slot",
        slot=0,
        generation=value(d, "SELECT generation FROM slots_slot WHERE id = 0") - 1,
        actor="t",
    )


def test_release_by_an_old_generation_does_nothing(c: Connection) -> None:
    first = p.hand(c)
    assert p.lose(c, first)
    second = p.hand(c, 0, (1,))
    assert second > first
    assert not p.release(c, first)
    assert not run(
        c,
        "release_batch",
        claims=[0],
        generations=[first],
        outcome="released",
        drain="1 h",
        actor="t",
    )
    assert p.claim_row(c)[0] == "bound"


def test_batch_release_skips_stale_generations(c: Connection) -> None:
    good, stale = p.hand(c, 0, (0,)), p.hand(c, 2, (1,))
    rows = run(
        c,
        "release_batch",
        claims=[0, 2, 4],
        generations=[good, stale - 1, 7],
        outcome="released",
        drain="1 h",
        actor="t",
    )
    assert [r.claim_id for r in rows] == [0]
    assert p.claim_row(c, 2)[0] == "bound"


def test_shrinking_keeps_the_first_slots(d: Connection) -> None:
    d.execute("UPDATE claims_claim SET size = 3 WHERE id = 0")
    before = p.hand(d, 0, (0, 1, 2))
    rows = p.shrink(d, before, 1)
    assert {(r.id, r.state) for r in rows} == {(0, "held"), (1, "draining"), (2, "draining")}
    assert p.generation_of(d) > before
    assert not p.release(d, before), "what is held has changed, so has the generation"


def test_move_replaces_one_of_three_slots(c: Connection) -> None:
    c.execute("UPDATE claims_claim SET size = 3 WHERE id = 0")
    assert p.move(c, p.hand(c, 0, (0, 1, 2)), target=11, ordinals=(1,), lost=0) == 1
    assert [
        r[0] for r in c.execute("SELECT id FROM slots_slot WHERE claim_id = 0 ORDER BY ordinal")
    ] == [0, 11, 2]
    assert p.slot_row(c, 1)[0] == "retired"


def test_move_can_return_to_the_slot_that_still_drains(d: Connection) -> None:
    p.move(d, p.hand(d))
    found = run(d, "find_node", pool=0, lane="any", claim=0, labels="{}", earlier_claims=[])[0].id
    assert found == 0
    assert p.move(d, p.generation_of(d), target=0) == 1
    assert p.slot_row(d) == ("held", 0)
    assert p.slot_row(d, 10)[0] == "draining"


def test_lost_claim_is_queued_again_and_its_slot_is_retired(c: Connection) -> None:
    assert p.lose(c, p.hand(c))
    assert p.claim_row(c)[0] == "waiting"
    assert p.slot_row(c)[0] == "retired"
    assert value(c, "SELECT drain_until IS NULL AND due_at IS NULL FROM slots_slot WHERE id = 0"), (
        "nobody is to look at it again"
    )


def test_retired_slot_of_a_pool_with_a_queue_has_no_deadline(d: Connection) -> None:
    p.give_back(d, p.hand(d), to="waiting", lost=0)
    p.move(d, p.hand(d, 2, (1,)), 2, target=11, lost=0)
    assert (
        value(
            d,
            "SELECT count(*) FROM slots_slot WHERE state = 'retired' "
            "AND (drain_until IS NOT NULL OR due_at IS NOT NULL)",
        )
        == 0
    )


# -- plan, approval, apply -------------------------------------------------------------------------
def test_plan_approve_apply_in_the_same_slot(c: Connection) -> None:
    generation = p.reserved(c)
    assert (p.claim_row(c)[:2], p.slot_row(c)) == (("reserved", "plan"), ("reserved", 0))
    assert p.approve(c, generation)
    assert (p.claim_row(c)[:2], p.slot_row(c)) == (("bound", "apply"), ("held", 0))
    assert p.give_back(c, p.generation_of(c), outcome="applied", verb="finish")


def test_plan_park_approve_apply_elsewhere(c: Connection) -> None:
    generation = p.parked(c)
    assert p.held(c) == 0
    assert p.unpark(c, generation)
    assert p.claim_row(c)[:2] == ("waiting", "apply")
    assert p.bind_batch(c, None, 1)[0].claim_id == 0, "approved work goes first"
    assert p.give_back(c, p.generation_of(c), outcome="applied", verb="finish")


def test_parked_claim_reserves_a_slot_again_and_keeps_its_deadline(c: Connection) -> None:
    generation = p.parked(c)
    deadline = value(c, "SELECT expires_at FROM claims_claim WHERE id = 0")
    assert p.reserve_again(c, generation)
    assert p.claim_row(c)[:2] == ("reserved", "plan")
    assert value(c, "SELECT expires_at FROM claims_claim WHERE id = 0") == deadline
    assert not p.reserve_again(c, generation), "once"


def test_approval_after_the_deadline_is_refused_before_the_claim_expires(
    c: Connection,
) -> None:
    generation = p.overdue(c)
    assert not p.approve(c, generation)
    assert p.expire(c, None)
    assert value(c, "SELECT is_stale FROM claims_plan WHERE id = 1")


def test_next_serial_claim_waits_until_the_first_has_ended(c: Connection) -> None:
    c.execute("INSERT INTO claims_workspace (id, name) VALUES (1, 'prod')")
    c.execute("UPDATE claims_claim SET workspace_id = 1, is_serial = true WHERE id = 2")
    c.execute(
        "UPDATE claims_claim SET workspace_id = 1, is_serial = true, state = 'blocked' WHERE id = 4"
    )

    def promote() -> list[int]:
        return [r.id for r in run(c, "promote", workspace=1, actor="t")]

    assert promote() == []
    generation = p.hand(c, 2)
    assert promote() == []
    p.give_back(c, generation, 2)
    c.execute("UPDATE claims_workspace SET locked_at = now() WHERE id = 1")
    assert promote() == [], "nobody goes in a locked workspace"
    c.execute("UPDATE claims_workspace SET locked_at = NULL WHERE id = 1")
    assert promote() == [4]


# -- what the log says -----------------------------------------------------------------------------
def test_log_names_the_holder_of_a_slot(c: Connection) -> None:
    first = p.hand(c)
    then = value(c, "SELECT clock_timestamp()")
    p.release(c, first)
    p.hand(c, 2)
    assert run(c, "holder_at", slot=0, at=then)[0].claim_id == 0
    assert run(c, "holder_at", slot=0, at=value(c, "SELECT clock_timestamp()"))[0].claim_id == 2


def test_log_records_state_before_and_after(c: Connection) -> None:
    p.give_back(c, p.reserved(c), outcome="rejected", verb="reject")
    told = c.execute(
        "SELECT verb, before, after FROM kernel_event WHERE slot_id = 0 ORDER BY id"
    ).fetchall()
    assert told == [
        ("bind", "waiting", "bound"),
        ("reserve", "held", "reserved"),
        ("reject", "reserved", "idle"),
    ]


# -- every declared move ---------------------------------------------------------------------------
class Walk:
    """Watches rows change their state."""

    def __init__(self, c: Connection) -> None:
        self.c = c
        self.seen: dict[str, set[str]] = {"slots_slot": set(), "claims_claim": set()}
        self.now = {table: self.look(table) for table in self.seen}

    def look(self, table: str) -> dict[int, str]:
        return dict(self.c.execute(f"SELECT id, state FROM {table}").fetchall())  # type: ignore[arg-type]

    def look_again(self) -> None:
        for table, before in self.now.items():
            after = self.look(table)
            self.seen[table] |= {
                f"{before[k]}>{state}"
                for k, state in after.items()
                if k in before and before[k] != state
            }
            self.now[table] = after

    def start(self) -> None:
        helpers.load(slots=20, pools=2, claims=20, per_member=5)
        self.now = {table: self.look(table) for table in self.seen}


def clean(c: Connection, slot: int) -> None:
    run(
        c,
        "free_slot",
        slot=slot,
        generation=value(c, "SELECT generation FROM slots_slot WHERE id = %s", slot),
        actor="t",
    )


def outside(c: Connection) -> None:
    c.execute("UPDATE pools_pool SET queue = 'local'")


def offer_again(c: Connection) -> None:
    retired = [row[0] for row in c.execute("SELECT id FROM slots_slot WHERE state = 'retired'")]
    run(c, "offer_slots", slots=retired, actor="t", reason="")


def serial(c: Connection) -> None:
    c.execute("INSERT INTO claims_workspace (id, name) VALUES (1, 'prod')")
    c.execute(
        "UPDATE claims_claim SET workspace_id = 1, is_serial = true, state = 'blocked' WHERE id = 0"
    )


def let_go(**how: Any) -> Step:
    return lambda c: p.give_back(c, p.generation_of(c), **how)


def ours(act: Callable[[Connection, int], Any]) -> Step:
    """A call of the present holder."""
    return lambda c: act(c, p.generation_of(c))


LIVES: list[list[Step]] = [
    [p.hand, ours(p.release)],
    [lambda c: p.bind_first(c, None), ours(p.lose), offer_again],
    [p.planned, ours(p.reserve), ours(p.approve)],
    [
        p.planned,
        ours(p.reserve),
        ours(p.park),
        ours(p.reserve_again),
        let_go(to="parked", lost=0),
        ours(p.unpark),
        ours(p.cancel),
    ],
    [p.hand, ours(p.park), ours(p.cancel)],
    [p.planned, ours(p.reserve), let_go(outcome="rejected")],
    [outside, p.planned, ours(p.reserve), let_go(outcome="rejected")],
    [
        outside,
        p.hand,
        ours(p.move),
        lambda c: p.move(c, p.generation_of(c), target=0),
        lambda c: clean(c, 10),
        ours(p.release),
    ],
    [outside, p.hand, ours(p.release), lambda c: p.retire(c, None)],
    [lambda c: p.retire(c, None)],
    [p.hand, let_go(to="blocked"), ours(p.cancel)],
    [serial, lambda c: run(c, "promote", workspace=1, actor="t")],
]


def test_every_declared_transition_can_be_made(c: Connection) -> None:
    walk = Walk(c)
    for life in LIVES:
        walk.start()
        for step in life:
            step(c)
            walk.look_again()
            assert helpers.violations(c) == {}
    assert walk.seen["slots_slot"] == SLOT.moves
    assert walk.seen["claims_claim"] == CLAIM.moves
