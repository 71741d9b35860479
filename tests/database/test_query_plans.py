"""Generic plans made on empty tables never scan a table that grows.

Every named statement is planned as a prepared statement is, on an empty database, on a connection
as the product opens it.
"""

import re
from collections.abc import Iterator

import pytest
from django.conf import settings

from project.kernel.db.sql import Statements
from project.kernel.events import log
from tests.database import helpers
from tests.database.helpers import Connection, value

NOT_HOT = {
    "pools/access/permissions.sql": "small tables",
    "claims/checks/repairs.sql": "the doctor takes its time",
}
FILES = {
    str(path.relative_to(helpers.ROOT)): Statements(path)
    for app in ("pools", "slots", "claims", "project/kernel")
    for path in sorted((helpers.ROOT / app).rglob("*.sql"))
    if str(path.relative_to(helpers.ROOT)) not in NOT_HOT
}
HOT = [(file, name) for file, statements in FILES.items() for name in statements.texts]
GROWS = ("slots_slot", "claims_claim", "kernel_event", "kernel_operation")
SCAN = re.compile(rf"Seq Scan on ({'|'.join(GROWS)})\b")
WALK = re.compile(
    rf"^( *)(?:->  )?Index (?:Only )?Scan (?:Backward )?using (\S+) on (?:{'|'.join(GROWS)})\b.*\n"
    r"((?:\1 +(?!->).*\n)*)",
    re.M,
)

# Walking an index from end to end is a scan by another name. Allowed where the index holds only
# what waits, and the walk hops or stops.
WALKS = {
    ("claims/statements.sql", "queues_with_work"): "hops from queue to queue",
    ("claims/statements.sql", "queue_blocked"): "for a page: what is blocked, in its order",
    (
        "claims/statements.sql",
        "live_of_pool",
    ): "a pool is deleted: what is blocked may wait for it beside another",
    ("claims/statements.sql", "count_live"): "the same, counted",
    ("project/kernel/outbox/statements.sql", "leased_lanes"): "once, as a worker starts",
    (
        "claims/lifecycle/tasks.sql",
        "queued_applies",
    ): "only what is approved and waits, in its order",
    (
        "claims/lifecycle/tasks.sql",
        "seekers",
    ): "only what looks for a slot again, in its order",
    ("claims/scaling/scaling.sql", "wanted_lines"): "hops from line to line",
    ("claims/scaling/scaling.sql", "count_blocked"): "only what is blocked, once for all pools",
    ("project/kernel/outbox/statements.sql", "queues_due"): "hops from queue to queue",
}


@pytest.fixture(scope="module")
def unknown(django_db_setup: None) -> None:
    """New files and no statistics: rows that other tests wrote and rolled back leave pages and
    histograms, and with them plans that no new installation starts with.
    """
    with helpers.connect() as c, c.transaction():
        c.execute("SET LOCAL session_replication_role = replica")
        c.execute(f"TRUNCATE {helpers.TABLES} CASCADE")  # type: ignore[arg-type]
        c.execute("""
            SELECT pg_clear_attribute_stats(n.nspname, t.relname, a.attname, false),
              pg_clear_relation_stats(n.nspname, t.relname)
            FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
              JOIN pg_attribute a ON a.attrelid = t.oid
            WHERE n.nspname = 'public' AND t.relkind = 'r' AND a.attnum > 0
              AND NOT a.attisdropped""")


@pytest.fixture
def c(unknown: None, tables: None) -> Iterator[Connection]:
    with helpers.connect() as connection:
        yield connection


def plan(c: Connection, text: str) -> str:
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match.group(1) not in names:
            names.append(match.group(1))
        return f"${names.index(match.group(1)) + 1}"

    numbered = re.sub(r"%\((\w+)\)s", number, text).replace("%%", "%")
    with c.cursor() as cursor:
        rows = cursor.execute("EXPLAIN (GENERIC_PLAN) " + numbered, prepare=False).fetchall()  # type: ignore[arg-type]
    return "\n".join(row[0] for row in rows)


def scans(text: str) -> list[str]:
    return sorted(set(SCAN.findall(text)))


def walks(text: str) -> list[str]:
    return [index for _, index, below in WALK.findall(text + "\n") if "Index Cond:" not in below]


@pytest.mark.parametrize("file", FILES)
def test_hot_statement_never_scans(file: str, c: Connection) -> None:
    plans = {name: plan(c, FILES[file].text(name, 50)) for name in FILES[file].texts}
    assert {name: found for name, found in plans.items() if scans(found)} == {}
    assert {
        name: found for name, found in plans.items() if walks(found) and (file, name) not in WALKS
    } == {}


@pytest.fixture
def all_ended(c: Connection) -> Iterator[Connection]:
    """Statistics gathered while no claim held a slot, as after a quiet night. The indexes of claims
    that have not ended then seem to be empty.
    """
    with c.transaction(force_rollback=True):
        c.execute("SET LOCAL session_replication_role = replica")
        c.execute("""
            INSERT INTO claims_claim (shape_id, owner, requested_by, key, state, outcome)
            SELECT 1, '', '', g::text, 'ended', 'released' FROM generate_series(1, 2000) g""")
        c.execute("ANALYZE claims_claim")
        yield c


@pytest.mark.parametrize(
    "name",
    [
        "create_and_bind",
        "create_batch",
        "create_gathered",
        "hand_over",
        "give_back",
        "release_batch",
    ],
)
def test_binds_and_releases_read_no_live_claims_although_there_seem_to_be_none(
    name: str, all_ended: Connection
) -> None:
    assert walks(plan(all_ended, helpers.CLAIMS.text(name, 50))) == []


def test_log_reader_walks_its_index(c: Connection) -> None:
    found = plan(c, log.READ_EVENTS.format(limit=100))
    assert scans(found) == []
    assert "event_position" in found


def test_bind_batch_reads_queue_and_free_slots_in_index_order(c: Connection) -> None:
    found = plan(c, helpers.CLAIMS.text("bind_batch", 100))
    assert "claim_line" in found
    assert "slot_free" in found


@pytest.mark.parametrize(
    "name", ["create_and_bind", "create_and_bind_here", "create_batch", "overtaken", "rivals"]
)
def test_rivals_are_found_by_waiting_claims_not_by_all_queues(name: str, c: Connection) -> None:
    found = plan(c, helpers.CLAIMS.text(name))
    assert "claim_rivals" in found
    assert "shape_pools_behind" in found
    assert not re.search(r"on shape_pools\b", found)


def test_hot_statements_would_scan_where_scans_are_allowed(c: Connection) -> None:
    """Proves that the option is needed and that the test above can fail."""
    c.execute("SET enable_seqscan = on")
    assert any(scans(plan(c, FILES[file].text(name, 50))) for file, name in HOT)


def test_no_scan_option_is_set_on_every_connection(c: Connection) -> None:
    assert value(c, "SELECT current_setting('enable_seqscan')") == "off"
    assert "enable_seqscan=off" in str(settings.DATABASES["default"]["OPTIONS"]["options"]).replace(
        " ", ""
    )


def test_limit_is_never_a_parameter() -> None:
    """The planner would guess a tenth of the table for a parameter."""
    for file, name in HOT:
        assert not re.search(r"LIMIT\s+%\(", FILES[file].texts[name]), f"{file}: {name}"
