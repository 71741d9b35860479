"""Races for binding, keeping and releasing slots, in both orders."""

from typing import Any

import pytest

from tests.database import helpers
from tests.database import race_actors as p
from tests.database.helpers import Connection, value
from tests.database.race import ORDERS, Outcome, Race, no_holder_leaves, one_wins


def by_name(claim: int, *slots: int) -> Any:
    return lambda c, _: p.hand(c, claim, slots)


def shrink(c: Connection, generation: int) -> bool:
    return bool(p.shrink(c, generation))


def batch_takes(claim: int | None = None, slot: int | None = None) -> Any:
    """A batch: did it take this claim, this slot?"""
    return lambda c, _: [
        r
        for r in p.bind_batch(c, None, 20)
        if claim in (None, r.claim_id) and slot in (None, r.slot_id)
    ]


def three_slots(c: Connection) -> int:
    c.execute("UPDATE claims_claim SET size = 3 WHERE id = 0")
    return p.hand(c, 0, (0, 1, 2))


def two_ask_for_three(c: Connection) -> None:
    c.execute("UPDATE claims_claim SET size = 3 WHERE id IN (0, 2)")


def one_waits(c: Connection) -> None:
    c.execute("DELETE FROM claims_claim WHERE id <> 0")


def nobody_waits(c: Connection) -> None:
    c.execute("DELETE FROM claims_claim")


def draining(c: Connection) -> int:
    """Moved from slot 0 to 10; slot 0 drains. Its generation."""
    p.move(c, p.hand(c))
    return int(value(c, "SELECT generation FROM slots_slot WHERE id = 0"))


def clean(c: Connection, generation: int) -> bool:
    return bool(helpers.run(c, "free_slot", slot=0, generation=generation, actor="t"))


def take_back(c: Connection, _: Any) -> int:
    return p.move(c, p.generation_of(c), target=0)


def two_held(c: Connection) -> tuple[int, int]:
    return p.hand(c, 0, (0,)), p.hand(c, 2, (1,))


def leased(c: Connection) -> int:
    """Bound, and to be acknowledged within half a minute."""
    generation = p.hand(c)
    c.execute(
        """UPDATE claims_claim SET spec = '{"acknowledge": 30}',
          due_at = bound_at + interval '30 s' WHERE id = 0"""
    )
    return generation


def leased_too_long(c: Connection) -> int:
    generation = leased(c)
    c.execute(
        "UPDATE claims_claim SET bound_at = now() - interval '31 s', due_at = now() - interval '1 "
        "s' WHERE id = 0"
    )
    return generation


def end_unanswered(c: Connection, generation: int) -> bool:
    """The finalizer's side: locks, looks again, then ends it."""
    is_due = value(
        c,
        "SELECT acknowledged_at IS NULL AND due_at <= now() FROM claims_claim "
        "WHERE id = 0 FOR NO KEY UPDATE",
    )
    return bool(is_due and p.give_back(c, generation, outcome="unacknowledged", verb="expire"))


def due_in_time(c: Connection) -> int:
    """The finalizer comes to look, and there is time left to acknowledge."""
    generation = leased(c)
    c.execute("UPDATE claims_claim SET due_at = now() - interval '1 s' WHERE id = 0")
    return generation


def finalize(c: Connection, generation: int) -> bool:
    """As the product does it: looks at what is due under its lock, then ends it."""
    rows = helpers.run(c, "lock_due_claim", claim=0)
    return bool(
        rows
        and not rows[0].is_acknowledged
        and p.give_back(c, generation, outcome="unacknowledged", verb="expire")
    )


def allocate_three(claim: int) -> Any:
    """An allocator that serves a claim of three slots: finds them, then hands them over."""
    return lambda c, _: p.hand(
        c, claim, tuple(row.id for row in helpers.run(c, "find_any", 3, pool=0, lane="any"))
    )


def is_closed(c: Connection) -> bool:
    return not value(c, "SELECT bool_or(is_open) FROM slots_slot WHERE member_id = 0")


def one_has_the_target(o: Outcome) -> bool:
    """One transaction has moved; the other was refused, because the slot was taken."""
    return "1" in o.answers and bool(o.answers & {"BR001", "BR002"})


def ask(c: Connection, _: Any) -> list[Any]:
    return helpers.run(c, "request_scale", pool=0)


AGAINST_CAPACITY = [
    Race(
        "bind, scale-in",
        p.bind_batch,
        p.remove_if_empty,
        lambda o: no_holder_leaves(o) and len(o.one) == 5,
    ),
    Race("create, scale-in", p.create, p.remove_if_empty, no_holder_leaves),
    Race("bind, cordon", p.bind_batch, p.close_member, lambda o: len(o.one) == 5 and o.two == 5),
    Race(
        "a slot by name, cordon",
        by_name(0, 0),
        p.close_member,
        lambda o: o.two == 5 and (o.one == "BR001" or p.slot_row(o.c)[1] == 0),
    ),
    Race(
        "a slot by name, retire",
        by_name(0, 0),
        p.retire,
        lambda o: p.slot_row(o.c) == (("retired", None) if o.two else ("held", 0)),
    ),
    Race(
        "release, cordon: the slot comes back closed",
        p.release,
        p.close_member,
        lambda o: o.one and is_closed(o.c),
        p.hand,
    ),
    Race(
        "move, scale-in of the target",
        p.move,
        lambda c, _: p.remove_if_empty(c, _, 2),
        no_holder_leaves,
        p.hand,
    ),
    Race("two ask for more members", ask, ask, one_wins),
    Race("bind, cleaning", clean, batch_takes(slot=0), lambda o: o.one, draining, "local"),
]
AGAINST_THE_CLAIM = [
    Race("cancel, bind", p.cancel, p.bind_first, one_wins, one_waits),
    Race("cancel, batch", p.cancel, batch_takes(claim=0), one_wins),
    Race("prioritise, bind", p.prioritise, p.bind_first, one_wins, one_waits),
    Race("bind, bind", p.bind_first, p.bind_first, one_wins, one_waits),
    Race(
        "batch, batch",
        p.bind_batch,
        p.bind_batch,
        lambda o: len(o.one) == len(o.two) == 5 and p.held(o.c) == 10,
    ),
    Race(
        "two allocators, three slots each",
        allocate_three(0),
        allocate_three(2),
        lambda o: p.held(o.c) == 6,
        two_ask_for_three,
    ),
    Race(
        "the same key twice",
        p.create,
        p.create,
        lambda o: one_wins(o) and p.held(o.c) == 1,
        nobody_waits,
    ),
    Race(
        "two claims, a slot in common",
        by_name(0, 0, 1, 2),
        by_name(2, 2, 3, 4),
        lambda o: p.held(o.c) == 3,
        two_ask_for_three,
    ),
]
LETTING_GO = [
    Race("release twice", p.release, p.release_many, one_wins, p.hand),
    Race("release, loss", p.release, p.lose, one_wins, p.hand),
    Race(
        "shrink, release",
        shrink,
        p.release,
        lambda o: one_wins(o) and p.held(o.c) in (0, 1),
        three_slots,
    ),
    Race(
        "shrink, move of what is let go",
        shrink,
        lambda c, g: p.move(c, g, ordinals=(2,)),
        one_wins,
        three_slots,
    ),
    Race("keep, release", p.keep, p.release, lambda o: o.two and p.held(o.c) == 0, p.hand),
    Race(
        "acknowledge, in time", p.acknowledge, end_unanswered, lambda o: o.one and not o.two, leased
    ),
    Race("acknowledge, finalize", p.acknowledge, finalize, one_wins, due_in_time),
    Race(
        "acknowledge, too late",
        p.acknowledge,
        end_unanswered,
        lambda o: not o.one and o.two,
        leased_too_long,
    ),
]
MOVES = [
    Race(
        "two move to one slot",
        lambda c, g: p.move(c, g[0], 0),
        lambda c, g: p.move(c, g[1], 2),
        one_has_the_target,
        two_held,
    ),
    Race("move, release by the same generation", p.move, p.release, one_wins, p.hand, "local"),
    Race(
        "move, loss of its source",
        lambda c, g: p.move(c, g, lost=0),
        p.lose,
        lambda o: one_wins(o) and p.slot_row(o.c)[0] == "retired",
        p.hand,
    ),
    Race(
        "move, bind of the target",
        p.move,
        by_name(2, 10),
        lambda o: p.slot_row(o.c, 10)[1] in (0, 2) and "BR" in str(o.answers),
        p.hand,
    ),
    Race(
        "take back, cleaning",
        take_back,
        clean,
        lambda o: o.one == 1 and p.slot_row(o.c) == ("held", 0),
        draining,
        "local",
    ),
]
RACES = AGAINST_CAPACITY + AGAINST_THE_CLAIM + LETTING_GO + MOVES


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_slot_race_ends_as_declared(race: Race, order: str, tables: None) -> None:
    race.play(order)
