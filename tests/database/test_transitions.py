"""The database refuses every undeclared transition and every partial handover."""

from collections.abc import Iterator

import psycopg
import pytest
from django.apps import apps
from django.db.models import CheckConstraint, Index, UniqueConstraint

from claims.checks.holding import RULES
from claims.states import CLAIM, CLAIM_SET
from pools.states import MEMBER, POOL
from project.kernel.db.row_constraint import RowConstraint
from project.kernel.db.state_machine import StateMachine
from slots.states import SLOT
from tests.database import helpers
from tests.database.helpers import Connection, value

MACHINES = [POOL, MEMBER, SLOT, CLAIM, CLAIM_SET]

# A row of each table that may stand in the state {0} as far as its own CHECKs go, and what must
# change with the state for their sake.
ROWS = {
    "pools_pool": (
        "INSERT INTO pools_pool (name, spec, lanes, state) VALUES ('x', '{{}}', '{{}}', "
        "'{0}') RETURNING id"
    ),
    "pools_member": (
        "INSERT INTO pools_member (pool_id, name, state) VALUES (0, 'x', '{0}') RETURNING id"
    ),
    "slots_slot": """INSERT INTO slots_slot (pool_id, member_id, lane, number, state, drain_until,
        claim_id, ordinal)
        SELECT 0, 0, 'x', 1, '{0}', now(), h, h
          FROM (SELECT CASE WHEN '{0}' IN ('held', 'reserved') THEN 0 END) x (h) RETURNING id""",
    "claims_claim": """INSERT INTO claims_claim (shape_id, state, expires_at, outcome)
        VALUES (0, '{0}', now(), CASE WHEN '{0}' = 'ended' THEN 'released' ELSE '' END)
          RETURNING id""",
    "claims_claimset": (
        "INSERT INTO claims_claimset (name, shape_id, replicas, state) "
        "VALUES ('x', 0, 1, '{0}') RETURNING id"
    ),
}
MORE = {
    "slots_slot": """, claim_id = CASE WHEN '{0}' IN ('held', 'reserved') THEN 0 END,
        ordinal = CASE WHEN '{0}' IN ('held', 'reserved') THEN 0 END""",
    "claims_claim": ", outcome = CASE WHEN '{0}' = 'ended' THEN 'released' ELSE '' END",
}


NEW_SLOT = (
    "INSERT INTO slots_slot (pool_id, member_id, lane, number, {0}) VALUES (0, 0, 'x', 1, {1})"
)
NEW_CLAIM = "INSERT INTO claims_claim (shape_id, {0}) VALUES (0, {1})"
BROKEN = {
    "slot_state_known": NEW_SLOT.format("state", "'elsewhere'"),
    "slot_holder": NEW_SLOT.format("state", "'held'"),
    "slot_drain": NEW_SLOT.format("state", "'draining'"),
    "claim_state_known": NEW_CLAIM.format("state", "'elsewhere'"),
    "claim_size": NEW_CLAIM.format("size", "0"),
    "claim_outcome": NEW_CLAIM.format("outcome", "'released'"),
    "claim_deadline": NEW_CLAIM.format("state", "'parked'"),
    "claim_named": NEW_CLAIM.format("generation", "7"),
    "claim_apply_approved": NEW_CLAIM.format("step", "'apply'"),
}


@pytest.fixture
def c(tables: None) -> Iterator[Connection]:
    helpers.load(slots=20, pools=2, claims=20, per_member=5)
    with helpers.connect() as connection:
        yield connection


def only(c: Connection, machine: StateMachine) -> None:
    """Its move trigger alone is on: the rules about what goes with a move are tested
    by themselves.
    """
    c.execute(f"ALTER TABLE {machine.table} DISABLE TRIGGER USER")  # type: ignore[arg-type]
    c.execute(f"ALTER TABLE {machine.table} ENABLE TRIGGER {machine.name}_move")  # type: ignore[arg-type]


def insert(c: Connection, machine: StateMachine, state: str) -> int:
    return int(value(c, ROWS[machine.table].format(state)))


def attempt(c: Connection, machine: StateMachine, before: str, after: str) -> str:
    with c.transaction(force_rollback=True):
        row = insert(c, machine, before)
        try:
            c.execute(
                f"UPDATE {machine.table} SET state = "
                f"'{after}'{MORE.get(machine.table, '').format(after)} "
                f"WHERE id = {row}"
            )  # type: ignore[arg-type]
        except psycopg.Error as error:
            return f"{error.sqlstate} {error.diag.constraint_name}"
    return "allowed"


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_exactly_the_declared_transitions_are_allowed(machine: StateMachine, c: Connection) -> None:
    with c.transaction(force_rollback=True):
        only(c, machine)
        pairs = [
            (before, after)
            for before in machine.states
            for after in machine.states
            if before != after
        ]
        answers = {
            f"{before}>{after}": attempt(c, machine, before, after) for before, after in pairs
        }
    assert {move for move, answer in answers.items() if answer == "allowed"} == machine.moves
    assert set(answers.values()) <= {"allowed", f"BR001 {machine.name}_move"}


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_unknown_state_is_refused(machine: StateMachine, c: Connection) -> None:
    with c.transaction(force_rollback=True):
        only(c, machine)
        with pytest.raises(
            psycopg.errors.CheckViolation, match=f"{machine.name}_state_known|slot_holder"
        ):
            insert(c, machine, "elsewhere")


def move_trigger(machine: StateMachine) -> str:
    """The trigger that rejects undeclared moves. Its WHEN clause contains the rule, so a legal
    update calls no function.
    """
    moves = ",".join(sorted(machine.moves))
    return (
        f"CREATE TRIGGER {machine.name}_move BEFORE UPDATE ON {machine.table} FOR EACH ROW\n"
        "  WHEN (OLD.state <> NEW.state "
        f"AND OLD.state || '>' || NEW.state <> ALL ('{{{moves}}}'))\n"
        "  EXECUTE FUNCTION refuse('no such move');"
    )


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_database_trigger_matches_the_declared_machine(
    machine: StateMachine, c: Connection
) -> None:
    """The migration keeps its own copy of the text; this is what makes a changed declaration
    fail until a migration follows it.
    """
    name = f"{machine.name}_move"
    query = (
        "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = %s AND tgrelid = %s::regclass"
    )
    there = value(c, query, name, machine.table)
    with c.transaction(force_rollback=True):
        c.execute(f"DROP TRIGGER {name} ON {machine.table}")  # type: ignore[arg-type]
        c.execute(move_trigger(machine))  # type: ignore[arg-type]
        assert there == value(c, query, name, machine.table)
    assert value(c, "SELECT tgenabled FROM pg_trigger WHERE tgname = %s", name) in ("O", b"O")


@pytest.mark.parametrize("sound", helpers.SOUND, ids=lambda sound: sound.name)
def test_check_function_matches_its_declaration(sound: RowConstraint, c: Connection) -> None:
    assert helpers.body_of(c, sound) == sound.body()
    assert [rule for rule in sound.rules if not helpers.exists(c, rule)] == []


@pytest.mark.parametrize("rule", [rule for sound in helpers.SOUND for rule in sound.rules])
def test_broken_row_rule_is_named_in_the_error(rule: str, c: Connection) -> None:
    """The error names this rule only: no two rules refuse the same row."""
    with (
        c.transaction(force_rollback=True),
        pytest.raises(psycopg.errors.CheckViolation) as refused,
    ):
        c.execute(BROKEN[rule])  # type: ignore[arg-type]
    assert (refused.value.diag.constraint_name, refused.value.diag.table_name) == (
        rule,
        helpers.table_of(rule),
    )
    with helpers.without(rule):
        with helpers.connect() as other, other.transaction(force_rollback=True):
            other.execute("SET LOCAL session_replication_role = replica")
            other.execute(BROKEN[rule])  # type: ignore[arg-type]


def test_every_declared_constraint_and_index_exists(c: Connection) -> None:
    missing = []
    for model in apps.get_models():
        if model._meta.app_label not in ("pools", "slots", "claims", "kernel"):
            continue
        for rule in [*model._meta.constraints, *model._meta.indexes]:
            assert (
                isinstance(rule, (CheckConstraint, UniqueConstraint, Index))
                or rule.name == "member_ports_apart"
            )
            if not helpers.exists(c, str(rule.name)):
                missing.append(f"{model._meta.label} {rule.name}")
    assert missing == []


def test_doctor_knows_every_rule(c: Connection) -> None:
    """I6 looks for rules that no model declares, because Django knows no triggers."""
    rows = c.execute(
        "SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE NOT tgisinternal "
        "AND tgenabled = 'O'"
    ).fetchall()
    assert set(rows) == {(table, name) for table, names in RULES.items() for name in names}


def test_rule_functions_disable_sequential_scans(c: Connection) -> None:
    """A session makes their plans once, perhaps on empty tables and under any setting of the
    connection.
    """
    query = (
        "SELECT proname, proconfig FROM pg_proc WHERE proname IN ('slots_agree', 'claims_agree', "
        "'member_is_empty')"
    )
    found = dict(c.execute(query).fetchall())
    assert list(found.values()) == [["enable_seqscan=off"]] * 3
