"""Races about plans, approvals, deadlines and the serial claims of a workspace, in both orders."""

from typing import Any

import pytest

from tests.database import helpers
from tests.database import race_actors as p
from tests.database.helpers import Connection, value
from tests.database.race import ORDERS, Act, Outcome, Race, one_wins


def reject(c: Connection, generation: int) -> bool:
    return bool(p.give_back(c, generation, outcome="rejected", verb="reject"))


def expire_parked(c: Connection, _: Any) -> bool:
    """The finalizer's side: locks, looks again, then ends it."""
    is_due = value(
        c,
        "SELECT state = 'parked' AND expires_at <= now() FROM claims_claim "
        "WHERE id = 0 FOR NO KEY UPDATE",
    )
    return bool(is_due and p.cancel(c, None, outcome="expired"))


def one_slot_free(c: Connection) -> int:
    """A parked claim, and one slot left in its pool."""
    generation = p.parked(c)
    c.execute("UPDATE slots_slot SET is_open = false WHERE pool_id = 0 AND id <> 0")
    return generation


def workspace(c: Connection) -> None:
    c.execute("INSERT INTO claims_workspace (id, name) VALUES (1, 'prod')")


def create_serial(claim: int) -> Act:
    """Blocked if the workspace is locked or has a live claim."""

    def act(c: Connection, _: Any) -> str:
        is_locked = helpers.run(c, "lock_workspace", workspace=1)[0].is_locked
        state = "blocked" if is_locked or serial_live(c) else "waiting"
        c.execute(
            "INSERT INTO claims_claim (id, shape_id, workspace_id, is_serial, state) "
            "VALUES (%s, 0, 1, true, %s)",
            [claim, state],
        )
        return state

    return act


def lock_workspace(c: Connection, _: Any) -> None:
    helpers.run(c, "lock_workspace", workspace=1)
    c.execute("UPDATE claims_workspace SET locked_at = now(), locked_by = 'ann' WHERE id = 1")
    c.execute(
        "UPDATE claims_claim SET state = 'blocked' WHERE workspace_id = 1 AND state = 'waiting'"
    )


def two_blocked(c: Connection) -> None:
    """The serial claim of a workspace has ended; two wait to be promoted."""
    workspace(c)
    c.execute("UPDATE claims_claim SET workspace_id = 1, is_serial = true WHERE id = 0")
    c.execute(
        "UPDATE claims_claim SET workspace_id = 1, is_serial = true, state = 'blocked' "
        "WHERE id IN (2, 4)"
    )
    p.release(c, p.hand(c))


def promote(c: Connection, _: Any) -> list[Any]:
    helpers.run(c, "lock_workspace", workspace=1)
    return helpers.run(c, "promote", workspace=1, actor="t")


def serial_live(c: Connection) -> int:
    return int(
        value(
            c,
            "SELECT count(*) FROM claims_claim WHERE workspace_id = 1 "
            "AND state IN ('waiting', 'bound', 'reserved', 'parked')",
        )
    )


def first_in_time(o: Outcome) -> bool:
    return bool(o.one) and not o.two and p.claim_row(o.c)[1] == "apply"


def too_late(o: Outcome) -> bool:
    return not o.one and bool(o.two) and p.claim_row(o.c)[2] == "expired"


def one_goes(o: Outcome) -> bool:
    return serial_live(o.c) == 1 and "23505" not in o.answers


APPROVALS = [
    Race("approve, expire: in time", p.approve, p.expire, first_in_time, p.reserved),
    Race("approve, expire: too late", p.approve, p.expire, too_late, p.overdue),
    Race("approve twice", p.approve, p.approve, one_wins, p.reserved),
    Race("approve, reject", p.approve, reject, one_wins, p.reserved),
    Race("approve, park", p.approve, p.park, one_wins, p.reserved),
    Race(
        "reserve, scale-in",
        p.reserve,
        p.remove_if_empty,
        lambda o: o.one and o.two == "spared",
        p.planned,
    ),
    Race("reserve, release", p.reserve, p.release, one_wins, p.planned),
    Race("reserve twice", p.reserve, p.reserve, one_wins, p.planned),
]
PARKED = [
    Race("approve, expire while parked: in time", p.unpark, expire_parked, first_in_time, p.parked),
    Race(
        "approve, expire while parked: too late",
        p.unpark,
        expire_parked,
        too_late,
        p.parked_overdue,
    ),
    Race("approve, reserve again", p.unpark, p.reserve_again, one_wins, p.parked),
    Race("reserve again twice", p.reserve_again, p.reserve_again, one_wins, p.parked),
    Race("reserve again, cancel", p.reserve_again, p.cancel, one_wins, p.parked),
    Race(
        "reserve again, bind: one slot",
        p.reserve_again,
        p.bind_first,
        lambda o: one_wins(o) and p.held(o.c) == 1,
        one_slot_free,
    ),
]
WORKSPACES = [
    Race(
        "create, lock",
        create_serial(100),
        lock_workspace,
        lambda o: p.claim_row(o.c, 100)[0] == "blocked",
        workspace,
    ),
    Race(
        "create, create",
        create_serial(100),
        create_serial(101),
        lambda o: o.answers == {"waiting", "blocked"},
        workspace,
    ),
    Race("promote twice", promote, promote, one_goes, two_blocked),
    Race("promote, create", promote, create_serial(100), one_goes, two_blocked),
    Race(
        "promote, cancel",
        promote,
        lambda c, _: p.cancel(c, _, 2),
        lambda o: o.two and serial_live(o.c) <= 1,
        two_blocked,
    ),
    Race("promote, lock", promote, lock_workspace, lambda o: serial_live(o.c) == 0, two_blocked),
]
RACES = APPROVALS + PARKED + WORKSPACES


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_task_race_ends_as_declared(race: Race, order: str, tables: None) -> None:
    race.play(order)
