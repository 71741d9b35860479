"""The database refuses statements that no service makes: partial handovers, theft of slots, ends
without an outcome.
"""

from collections.abc import Iterator

import psycopg
import pytest

from tests.database import helpers
from tests.database import race_actors as p
from tests.database.helpers import Connection


@pytest.fixture
def c(tables: None) -> Iterator[Connection]:
    helpers.load(slots=20, pools=2, claims=20, per_member=5)
    with helpers.connect() as connection:
        yield connection


HALF = (
    "UPDATE slots_slot SET state = 'held', claim_id = 2, ordinal = 0, generation = "
    "nextval('generation') WHERE id = 1"
)
UNNAMED = """WITH x AS (UPDATE claims_claim SET state = 'ended', outcome = 'released' WHERE id = 0)
             UPDATE slots_slot SET state = 'idle', claim_id = NULL, ordinal = NULL WHERE id = 0"""
STOLEN = """WITH x AS (UPDATE claims_claim SET state = 'bound',
            generation = currval('generation') + 1 WHERE id = 2)
            UPDATE slots_slot SET claim_id = 2, generation = nextval('generation') WHERE id = 0"""
AGAIN = """WITH x AS (UPDATE claims_claim SET state = 'bound', generation = {g} WHERE id = 2)
           UPDATE slots_slot SET state = 'held', claim_id = 2, ordinal = 0, generation = {g}
             WHERE id = 3"""
REFUSED = [
    ("half a bind, the slot", HALF, "BR002"),
    (
        "half a bind, the claim",
        "UPDATE claims_claim SET state = 'bound', generation = nextval('generation') WHERE id = 2",
        "BR002",
    ),
    (
        "half a release, the slot",
        "UPDATE slots_slot SET state = 'idle', claim_id = NULL, ordinal = NULL WHERE id = 0",
        "BR002",
    ),
    (
        "half a release, the claim",
        (
            "UPDATE claims_claim SET state = 'ended', outcome = 'x', named_generation = "
            "{g} WHERE id = 0"
        ),
        "BR002",
    ),
    ("half a reservation", "UPDATE slots_slot SET state = 'reserved' WHERE id = 0", "BR002"),
    ("a slot taken from its holder", STOLEN, "BR001"),
    ("a slot handed over by the generation it had", AGAIN, "BR001"),
    (
        "a generation that falls",
        "UPDATE claims_claim SET generation = generation - 1 WHERE id = 0",
        "BR001",
    ),
    ("a release that names no generation", UNNAMED, "23514"),
    ("a held slot deleted", "DELETE FROM slots_slot WHERE id = 0", "BR001"),
    ("a holding claim deleted", "DELETE FROM claims_claim WHERE id = 0", "BR001"),
    (
        "a slot born held",
        (
            "INSERT INTO slots_slot (pool_id, member_id, lane, number, state, claim_id, ordinal) "
            "VALUES (0, 0, 'any', 99, 'held', 0, 1)"
        ),
        "BR001",
    ),
    (
        "a claim born bound",
        "INSERT INTO claims_claim (shape_id, state, generation) VALUES (0, 'bound', 9)",
        "BR002",
    ),
    (
        "a closed slot handed over",
        f"UPDATE slots_slot SET is_open = false WHERE id = 1; {HALF}",
        "BR001",
    ),
    ("a held slot that names nobody", "UPDATE slots_slot SET state = 'held' WHERE id = 1", "23514"),
    (
        "a slot that drains without a deadline",
        "UPDATE slots_slot SET state = 'draining', drain_until = NULL WHERE id = 3",
        "23514",
    ),
    (
        "a member deleted with open slots",
        "UPDATE pools_member SET state = 'deleting' WHERE id = 1",
        "BR001",
    ),
    (
        "a member deleted under its claim",
        (
            "UPDATE slots_slot SET is_open = false WHERE member_id = 0; UPDATE pools_member "
            "SET state = 'deleting' WHERE id = 0"
        ),
        "BR001",
    ),
    (
        "a slot that drains for another",
        (
            "UPDATE slots_slot SET state = 'held', claim_id = 4, ordinal = 0, generation = "
            "nextval('generation') WHERE id = 3"
        ),
        "BR001",
    ),
    ("a bigger size without a slot", "UPDATE claims_claim SET size = 2 WHERE id = 0", "BR002"),
    ("no size", "UPDATE claims_claim SET size = 0 WHERE id = 2", "23514"),
    ("apply without approval", "UPDATE claims_claim SET step = 'apply' WHERE id = 2", "23514"),
    ("an end without an outcome", "UPDATE claims_claim SET state = 'ended' WHERE id = 2", "23514"),
    (
        "an outcome without an end",
        "UPDATE claims_claim SET outcome = 'released' WHERE id = 2",
        "23514",
    ),
    (
        "parked without a deadline",
        "INSERT INTO claims_claim (shape_id, state) VALUES (0, 'parked')",
        "23514",
    ),
    (
        "a key twice",
        "INSERT INTO claims_claim (shape_id, requested_by, key) VALUES (0, 'test', md5('0'))",
        "23505",
    ),
    (
        "a number twice",
        "INSERT INTO slots_slot (pool_id, member_id, lane, number) VALUES (0, 0, 'any', 1)",
        "23505",
    ),
    (
        "an ended claim revived",
        "UPDATE claims_claim SET state = 'waiting', outcome = '' WHERE id = 6",
        "BR001",
    ),
    (
        "fewer members than the least",
        "UPDATE pools_pool SET min_members = 11, max_members = 10 WHERE id = 0",
        "23514",
    ),
    (
        "a pool's name twice",
        "INSERT INTO pools_pool (name, spec, lanes) VALUES ('p0', '{{}}', '{{}}')",
        "23505",
    ),
    (
        "one load balancer in two pools with common ports",
        "UPDATE pools_member SET external_id = 'arn:1', ports = '[30000,30100)' WHERE id IN (0, 1)",
        "23P01",
    ),
    ("an event changed", "UPDATE kernel_event SET actor = 'nobody'", "BR001"),
    ("an event deleted", "DELETE FROM kernel_event", "BR001"),
]


def refusal(c: Connection, statements: str) -> str | None:
    try:
        with c.transaction():
            for statement in statements.split(";"):
                c.execute(statement)  # type: ignore[arg-type]
    except psycopg.Error as error:
        return error.sqlstate
    return None


@pytest.mark.parametrize(
    ("statements", "code"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_forbidden_statement_is_refused_with_its_code(
    statements: str, code: str, c: Connection
) -> None:
    """Claim 0 holds slot 0; slot 3 drains for claim 6, which has ended."""
    c.execute("UPDATE pools_pool SET queue = 'local'")
    generation = p.hand(c)
    p.give_back(c, p.hand(c, 6, (3,)), 6)
    assert refusal(c, statements.format(g=generation)) == code
    assert helpers.violations(c) == {}


def test_late_release_by_an_old_generation_does_nothing(c: Connection) -> None:
    generation = p.hand(c)
    assert not p.give_back(c, generation - 1)
    assert p.slot_row(c) == ("held", 0)
