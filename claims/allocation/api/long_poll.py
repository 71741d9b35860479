"""Claims that requests of this process wait for (`?wait=`). It knows states only: the request looks
at the claim itself, with its permissions."""

from collections.abc import Iterable

from project.kernel.http.long_poll import Connection, Watch, Watches

STATES = "SELECT id, state FROM claims_claim WHERE id = ANY (%s::bigint[])"
Wanted = tuple[int, frozenset[str]]  # a claim, and the states that are waited for


async def find_changed(connection: Connection, waiting: Iterable[Wanted]) -> Iterable[Wanted]:
    """A claim that is not there, or has ended, will never be anything else."""
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
    """That of this event loop."""
    return _watches.here()


async def wait_for_claim(claim_id: int, states: frozenset[str], seconds: float) -> None:
    """Until it is in one of these states, has ended, or the time is over: the caller looks
    what it is.
    """
    await watch().wait_for((claim_id, states), seconds)
