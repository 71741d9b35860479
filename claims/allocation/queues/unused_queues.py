"""Deletes queues without claims. Without this chore, each distinct request would leave a row."""

import time
from dataclasses import dataclass, field

from django.db import IntegrityError

from claims.allocation.queues import unused_queues_sql
from project.kernel.controllers.periodic import chore

CLAIMS_AT_ONCE = 5_000  # claims that one step reads, in a few milliseconds
MAX_QUEUES_PER_WALK = 10_000  # queues that one walk deletes
# Seconds that one step spends on deletes. Each delete scans the table of claims, because the
# foreign key of claims has no index.
MAX_WALK_SECONDS = 0.2
REST = 3600.0  # seconds between two walks


@dataclass
class UnusedQueueCursor:
    """Progress of the walk of this process. Walks of several processes may overlap."""

    after: int = 0
    newest: int | None = None  # None: no walk is under way
    met: set[int] = field(default_factory=set)
    unused: list[int] = field(default_factory=list)
    rests_until: float = 0.0

    def step(self) -> int:
        """Reads some claims or deletes some queues. Returns the number of deleted queues."""
        if self.unused:
            return self._delete()
        if self.newest is None:
            if time.monotonic() < self.rests_until:
                return 0
            self.after, self.met, self.newest = 0, set(), unused_queues_sql.newest_queue()
            if self.newest is None:
                return 0
        row = unused_queues_sql.queues_of_claims(CLAIMS_AT_ONCE, after=self.after)
        if row.last is not None:
            self.after = row.last
            self.met.update(row.queues or ())
        else:
            rows = unused_queues_sql.unused_queues(
                MAX_QUEUES_PER_WALK, newest=self.newest, met=list(self.met)
            )
            self.unused = [row.id for row in rows]
            self.newest, self.rests_until = None, time.monotonic() + REST
            self.met.clear()
        return 0

    def _delete(self) -> int:
        count, began = 0, time.monotonic()
        while self.unused and time.monotonic() - began < MAX_WALK_SECONDS:
            try:
                count += len(unused_queues_sql.delete_queue(queue=self.unused.pop()))
            except IntegrityError:
                continue  # a claim has entered the queue since the walk
        return count


_cursor = UnusedQueueCursor()


@chore("unused queues", every=10.0)
def delete_unused_queues() -> bool:
    _cursor.step()
    return False
