"""Requests of this process that wait for claims (`?wait=`). This module reads only the states; the
request then reads the claim itself, with the permissions of its caller.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable

from project.kernel.http.long_poll import Connection, Watch, Watches

READY = "ready"  # beside the states: all ports of the claim are ready
READY_CLAIMS = """
SELECT c.id FROM claims_claim c
WHERE c.id = ANY (%s::bigint[]) AND c.state = 'bound' AND c.backend IS NOT NULL
  AND NOT EXISTS (SELECT FROM slots_slot s WHERE s.claim_id = c.id AND NOT coalesce(
    (s.observed->>'claim')::bigint = s.claim_id
    AND s.observed->>'presence' = 'present' AND coalesce(s.observed->>'problem', '') = ''
    AND s.observed->>'changed' IS NULL
    AND s.observed->>'target' = c.backend->'targets'->>s.ordinal::int
    AND s.observed->>'health' IN ('healthy', 'unchecked'), false))"""
STATES = "SELECT id, state FROM claims_claim WHERE id = ANY (%s::bigint[])"
Wanted = tuple[int, frozenset[str]]  # a claim, and the states for which the request waits
# Those of the claims that are not ready for a reason that READY_CLAIMS does not see.
ReadyCheck = Callable[[Connection, Collection[int]], Awaitable[Collection[int]]]

_ready_checks: list[ReadyCheck] = []


def register_ready_check(check: ReadyCheck) -> ReadyCheck:
    _ready_checks.append(check)
    return check


async def find_changed(connection: Connection, waiting: Iterable[Wanted]) -> Iterable[Wanted]:
    """The claims that are in a wanted state or ready, have ended or do not exist."""
    known = list(waiting)
    cursor = await connection.execute(
        STATES, [list({claim_id for claim_id, _ in known})], prepare=True
    )
    states = dict(await cursor.fetchall())
    ready = set[int]()
    if awaited := list({claim_id for claim_id, wanted in known if READY in wanted}):
        cursor = await connection.execute(READY_CLAIMS, [awaited], prepare=True)
        ready = {row[0] for row in await cursor.fetchall()}
    for check in _ready_checks if ready else ():
        ready -= set(await check(connection, ready))
    return [
        (claim, wanted)
        for claim, wanted in known
        if states.get(claim, "ended") == "ended"
        or states[claim] in wanted
        or (READY in wanted and claim in ready)
    ]


_watches = Watches("long-polls", find_changed)


def watch() -> Watch[Wanted]:
    """The watch of this event loop."""
    return _watches.here()


async def wait_for_claim(claim_id: int, states: frozenset[str], seconds: float) -> None:
    """Returns when the claim is in one of these states, when it has ended, or when the time is
    over. The caller reads the claim.
    """
    await watch().wait_for((claim_id, states), seconds)
