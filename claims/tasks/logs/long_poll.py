"""Long polls for logs (`?wait=`): while requests wait, one query of the process looks for growth of
all their logs, four times a second.
"""

from collections.abc import Iterable

from claims.tasks.logs import logs_sql
from project.kernel.http.long_poll import Connection, Watches

POLL = 0.25  # seconds: chunks of a log write no hints
Followed = tuple[int, int, int]  # claim, generation, number of the next chunk


async def find_changed(connection: Connection, waiting: Iterable[Followed]) -> Iterable[Followed]:
    """The logs that have grown or ended."""
    known = list(waiting)
    values = {
        "claims": [f[0] for f in known],
        "generations": [f[1] for f in known],
        "nexts": [f[2] for f in known],
    }
    cursor = await connection.execute(logs_sql.statements.texts["grown"], values, prepare=True)
    return [(row[0], row[1], row[2]) for row in await cursor.fetchall()]


watches = Watches("logs", find_changed, POLL)


async def wait_for_log(claim_id: int, generation: int, following: int, seconds: float) -> None:
    await watches.here().wait_for((claim_id, generation, following), seconds)
