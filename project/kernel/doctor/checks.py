"""Doctor checks of operations (I18), events (I22), old transactions (I23) and proxies (I38)."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

from django.utils import timezone

from project.kernel.actor import acting_as
from project.kernel.db.sql import run
from project.kernel.events.log import FUTURE, first_id_at, renumber_future_events
from project.kernel.outbox.operations import retry_operation
from project.kernel.security.client_address import UNTRUSTED_PROXY

from .registry import Finding, check

OPERATION_LIMIT = 600.0  # seconds; a pool's own limit comes from `operation_limits`
TRANSACTION_LIMIT = 10.0
SNAPSHOT_LIMIT = 60.0

# Functions that return, by pool id, the seconds that an operation may stay open. `pools` adds one.
operation_limits: list[Callable[[], dict[int, float]]] = []

OLD_OPERATIONS = """
SELECT id, lane, kind, attempts, error, error_code, pool_id,
  extract(epoch FROM clock_timestamp() - created_at)::float8 AS age
FROM kernel_operation WHERE done_at IS NULL AND error_code <> 'permanent'
  AND created_at < clock_timestamp() - make_interval(secs => %(shortest)s)
ORDER BY id LIMIT 1000"""

UNSEEN = """
SELECT id, lane, kind, error FROM kernel_operation
WHERE done_at IS NULL AND error_code = 'permanent' AND seen_by = '' ORDER BY id LIMIT 1000"""

UNTRUSTED_PROXIES = """
SELECT data ->> 'peer' AS peer, max(at) AS at FROM kernel_event
WHERE id >= %(first)s AND verb = %(verb)s AND at > clock_timestamp() - interval '1 day'
  GROUP BY 1 ORDER BY 1 LIMIT 100"""

OLD_TRANSACTIONS = """
SELECT pid, datname, usename, application_name, state,
  extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age,
  left(query, 120) AS query
FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
  AND xact_start < clock_timestamp() - make_interval(secs => %(limit)s)
ORDER BY xact_start"""

OLD_SNAPSHOTS = """
SELECT 'process ' || pid || ' (' || coalesce(datname, '-') || ', ' || coalesce(application_name,
  '') || ')' AS who,
  extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age, pid
FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND backend_xmin IS NOT NULL
  AND backend_type NOT IN ('autovacuum worker', 'walsender')
  AND xact_start < clock_timestamp() - make_interval(secs => %(limit)s)
UNION ALL
SELECT 'prepared transaction ' || gid || ' (' || database || ')',
  extract(epoch FROM clock_timestamp() - prepared)::float8, NULL
FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - make_interval(secs => %(limit)s)"""


@check(
    "I18a",
    "No open operation is older than its pool's limit",
    "Outside systems differ from the rows until the operation succeeds.",
)
def find_old_operations() -> Iterator[Finding]:
    limits = {
        pool: seconds for function in operation_limits for pool, seconds in function().items()
    }
    for row in run(OLD_OPERATIONS, {"shortest": min([OPERATION_LIMIT, *limits.values()])}):
        if row.age > limits.get(row.pool_id, OPERATION_LIMIT):
            cause = (
                f" Last error: {row.error[:200]}"
                if row.error
                else " No worker performs its queue, or an older operation blocks its lane."
            )
            yield Finding(
                f"operation {row.id}",
                (
                    f"{row.kind} on {row.lane} has been open for {row.age:.0f} s, {row.attempts} "
                    f"attempts.{cause}"
                ),
                "Fix the cause; --repair makes the operation due at once."
                if row.error
                else "Check that a worker runs and listens to the queue.",
                partial(retry_operation, row.id, "doctor") if row.error else None,
            )


@check(
    "I18b",
    "No permanent error is unseen",
    "Berth does not retry the operation, and everything that waits for it keeps waiting.",
)
def find_unseen_errors() -> Iterator[Finding]:
    for row in run(UNSEEN):
        detail = f"{row.kind} on {row.lane} failed permanently: {row.error[:300]}"
        yield Finding(
            f"operation {row.id}",
            detail,
            "Fix the cause; --repair tries again.",
            partial(retry_operation, row.id, "doctor"),
        )


@check(
    "I22",
    "No event comes from the future",
    (
        "After a restore from a dump the log's transaction ids are ahead of the server's: readers "
        "of the log wait for these ids, and pages are not updated."
    ),
)
def find_future_events() -> Iterator[Finding]:
    row = run(FUTURE)[0]
    if row.n:
        detail = f"{row.n} events have a transaction id that this server has not reached."
        yield Finding(
            f"events {row.first} to {row.last}",
            detail,
            "--repair renumbers them; each start of the controllers does so too.",
            _renumber,
        )


@check(
    "I23a",
    "No transaction is older than 10 s",
    (
        "The transaction holds row locks, and readers of the log wait for its end, also if it runs "
        "in another database of this server."
    ),
)
def find_old_transactions() -> Iterator[Finding]:
    for row in run(OLD_TRANSACTIONS, {"limit": TRANSACTION_LIMIT}):
        yield Finding(
            f"process {row.pid}",
            (
                f"{row.usename}@{row.datname} ({row.application_name}) has been in a transaction "
                f"for {row.age:.0f} s, {row.state}: {row.query}"
            ),
            "End the transaction in its program; --repair ends its connection.",
            partial(_terminate, row.pid),
        )


@check(
    "I23b",
    "No snapshot is older than 1 min",
    "VACUUM cannot remove rows that died since then: binding gets 2 to 5 times slower.",
)
def find_old_snapshots() -> Iterator[Finding]:
    for row in run(OLD_SNAPSHOTS, {"limit": SNAPSHOT_LIMIT}):
        fix = None if row.pid is None else partial(_terminate, row.pid)
        way = (
            "ROLLBACK PREPARED, or COMMIT PREPARED."
            if row.pid is None
            else "End the transaction in its program; --repair ends its connection."
        )
        yield Finding(row.who, f"has kept a snapshot for {row.age:.0f} s.", way, fix)


@check(
    "I38",
    "Every proxy in front of Berth is trusted",
    (
        "All clients of an untrusted proxy share its address: a client that guesses passwords "
        "slows the sign-in of all clients."
    ),
)
def find_untrusted_proxies() -> Iterator[Finding]:
    first = first_id_at(timezone.now() - timedelta(days=1))
    for row in run(UNTRUSTED_PROXIES, {"first": first, "verb": UNTRUSTED_PROXY}, prepare=False):
        detail = (
            f"{row.peer} sent X-Forwarded-For (last recorded {row.at:%Y-%m-%d %H:%M} UTC) and is "
            "not trusted, so the header is ignored."
        )
        way_out = (
            "If the peer is your proxy, add it to BERTH_TRUSTED_PROXIES. Otherwise a client forges "
            "the header."
        )
        yield Finding(f"peer {row.peer}", detail, way_out)


def _renumber() -> None:
    with acting_as("doctor"):
        renumber_future_events()


def _terminate(pid: int) -> None:
    run("SELECT pg_terminate_backend(%(pid)s)", {"pid": pid})
