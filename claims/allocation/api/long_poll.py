"""Requests of this process that wait for claims (`?wait=`). This module reads only the states; the
request then reads the claim itself, with the permissions of its caller.
"""

from collections.abc import Iterable

from project.kernel.http.long_poll import Connection, Watch, Watches

STATES = "SELECT id, state FROM claims_claim WHERE id = ANY (%s::bigint[])"
Wanted = tuple[int, frozenset[str]]  # a claim, and the states for which the request waits


async def find_changed(connection: Connection, waiting: Iterable[Wanted]) -> Iterable[Wanted]:
    """The claims that are in a wanted state, have ended or do not exist."""
    known = list(waiting)
    cursor = await connection.execute(
        STATES, [list({claim_id for claim_id, _ in known})], prepare=True
    )
    states = dict(await cursor.fetchall())
    return [
        (claim, wanted)
        for claim, wanted in known
        if states.get(claim, "ended") == "ended" or states[claim] in wanted
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
