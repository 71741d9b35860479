"""The outbox hands each operation to one worker, scale requests are deduplicated, and a reader of
the event log misses no event.
"""

from collections.abc import Iterator

import pytest

from project.kernel.events import log
from tests.database import helpers
from tests.database import race_actors as p
from tests.database.helpers import Connection, run, value
from tests.database.race import is_blocked


@pytest.fixture
def c(tables: None) -> Iterator[Connection]:
    helpers.load(slots=20, pools=2, claims=20, per_member=5, queue="local")
    with helpers.connect() as connection:
        yield connection


@pytest.fixture
def d(tables: None) -> Iterator[Connection]:
    with helpers.connect() as connection:
        yield connection


def take(c: Connection) -> list[tuple[int, int]]:
    return sorted(
        (r.id, r.attempts) for r in run(c, "take", 10, lane="member:0", queue="local", lease=60.0)
    )


def settle(c: Connection, taken: list[tuple[int, int]]) -> int:
    return len(run(c, "settle_done", ids=[t[0] for t in taken], attempts=[t[1] for t in taken]))


def expire_leases(c: Connection) -> None:
    c.execute("UPDATE kernel_operation SET due_at = now()")


# -- the outbox ------------------------------------------------------------------------------------
def test_handover_and_its_operation_commit_together(c: Connection, d: Connection) -> None:
    with c.transaction(force_rollback=True):
        p.hand(c)
        assert take(d) == [], "not before the commit"
    assert value(c, "SELECT count(*) FROM kernel_operation") == 0, "and never without it"


def test_operation_is_taken_once(c: Connection, d: Connection) -> None:
    p.release(c, p.hand(c))
    with d.transaction():
        assert len(take(d)) == 2
        assert take(c) == [], "passed over while the other has not committed"
    assert take(c) == [], "nor while its lease runs"


def test_operation_taken_after_its_lease_is_settled_by_the_new_holder_only(
    c: Connection, d: Connection
) -> None:
    p.hand(c)
    first = take(d)
    expire_leases(c)
    second = take(c)
    assert [t[0] for t in first] == [t[0] for t in second]
    assert settle(d, first) == 0
    assert not run(
        d,
        "settle_failed",
        operation=first[0][0],
        attempt=first[0][1],
        error="late",
        code="unavailable",
        delay=1.0,
    )
    assert not run(d, "renew", ids=[first[0][0]], attempts=[first[0][1]], lease=60.0)
    assert settle(c, second) == 1
    assert settle(c, second) == 0, "once"


def test_two_concurrent_takers_get_different_operations(c: Connection, d: Connection) -> None:
    for claim in (0, 2, 4):
        p.hand(c, claim, (claim // 2,))
    c.execute("BEGIN")
    d.execute("BEGIN")
    mine = {r.id for r in run(c, "take", 2, lane="member:0", queue="local", lease=60.0)}
    others = {r.id for r in run(d, "take", 2, lane="member:0", queue="local", lease=60.0)}
    c.execute("COMMIT")
    d.execute("COMMIT")
    assert (len(mine), len(others), mine & others) == (2, 1, set())


def test_permanent_error_stays_until_a_person_retries_it(c: Connection) -> None:
    p.hand(c)
    [(operation, attempt)] = take(c)
    run(
        c,
        "settle_failed",
        operation=operation,
        attempt=attempt,
        error="no such listener",
        code="permanent",
        delay=3650 * 86400.0,
    )
    assert take(c) == []
    assert run(c, "retry_operation", operation=operation)
    assert take(c) == [(operation, attempt + 1)]


# -- asking for capacity ---------------------------------------------------------------------------
def ask(c: Connection) -> list[bool]:
    return [r.won for r in run(c, "request_scale", pool=0)]


def test_thousand_failures_make_one_scale_request(c: Connection) -> None:
    assert [won for _ in range(1000) for won in ask(c)] == [True]


def test_first_request_after_a_completion_is_absorbed_and_the_next_passes(
    c: Connection,
) -> None:
    c.execute(
        "UPDATE pools_pool SET scale_requested_at = NULL, absorb_until = now() + interval '1 "
        "min' WHERE id = 0"
    )
    assert [ask(c) for _ in range(3)] == [[False], [True], []]


def test_unused_absorb_mark_expires(c: Connection) -> None:
    c.execute(
        "UPDATE pools_pool SET scale_requested_at = NULL, absorb_until = now() - interval '1 "
        "s' WHERE id = 0"
    )
    assert ask(c) == [True]


# -- the log ---------------------------------------------------------------------------------------
ADD = "INSERT INTO kernel_event (verb, actor) VALUES (%s, '')"


def read(c: Connection, after: log.Position) -> list[log.EventRow]:
    rows = c.execute(log.READ_EVENTS.format(limit=100), {"tx": str(after.tx), "id": after.id})  # type: ignore[arg-type]
    return [log.row_of(r) for r in rows]


def test_event_of_a_late_commit_is_not_skipped(c: Connection, d: Connection) -> None:
    start = log.Position(value(c, log.NOW_POSITION), 0)
    d.execute("BEGIN")
    d.execute(ADD, ["late"])
    c.execute(ADD, ["early"])
    seen = read(c, start)
    assert seen == [], "held up: an event below may still appear"
    d.execute("COMMIT")
    seen = read(c, start)
    assert [e.verb for e in seen] == ["late", "early"]
    assert read(c, seen[-1].position) == []


def test_ids_out_of_commit_order_lose_no_event(c: Connection, d: Connection) -> None:
    """The later transaction draws the lower id: a reader that remembers only ids loses it."""
    position = log.Position(value(c, log.NOW_POSITION), 0)
    d.execute("BEGIN")
    d.execute("SELECT pg_current_xact_id()")  # d is the older transaction
    with c.transaction():
        c.execute(ADD, ["first id"])
        d.execute(ADD, ["second id"])
        d.execute("COMMIT")
        seen = read(d, position)
        position = seen[-1].position if seen else position
    seen += read(c, position)
    assert sorted(e.verb for e in seen) == ["first id", "second id"]
    assert [e.position for e in seen] == sorted(e.position for e in seen)


def test_reader_is_not_delayed_by_a_read_only_transaction(c: Connection, d: Connection) -> None:
    start = log.Position(value(c, log.NOW_POSITION), 0)
    d.execute("BEGIN")
    d.execute("SELECT count(*) FROM kernel_event")
    c.execute(ADD, ["one"])
    assert [e.verb for e in read(c, start)] == ["one"]
    d.execute("COMMIT")


def test_handover_never_waits_for_a_reader(c: Connection, d: Connection) -> None:
    d.execute("BEGIN")
    read(d, log.START)
    p.hand(c)
    assert not is_blocked(d, c)
    d.execute("COMMIT")
