"""Lines in which nobody stands, nor did in any claim that is kept, go: otherwise each distinct
request would leave a row for ever.
"""

import time
from dataclasses import dataclass, field

from django.db import IntegrityError

from claims import lines_sql
from project.kernel.controllers.periodic import chore

CLAIMS_AT_ONCE = 5_000  # looked at in one step: some milliseconds
MOST = 10_000  # lines of one walk
# Seconds of deleting in one step: each delete reads the claims' table, as its foreign key
# has no index.
LONGEST = 0.2
REST = 3600.0  # seconds between two walks


@dataclass
class UnusedQueueCursor:
    """How far this process has come; another one begins anew, and both do no harm."""

    after: int = 0
    newest: int | None = None  # None: no walk is under way
    met: set[int] = field(default_factory=set)
    unused: list[int] = field(default_factory=list)
    rests_until: float = 0.0

    def step(self) -> int:
        """How many lines went."""
        if self.unused:
            return self._delete()
        if self.newest is None:
            if time.monotonic() < self.rests_until:
                return 0
            self.after, self.met, self.newest = 0, set(), lines_sql.newest_line()
            if self.newest is None:
                return 0
        row = lines_sql.lines_of_claims(CLAIMS_AT_ONCE, after=self.after)
        if row is not None and row.last is not None:
            self.after = row.last
            self.met.update(row.lines or ())
        else:
            self.unused = [
                line.id
                for line in lines_sql.unused_lines(MOST, newest=self.newest, met=list(self.met))
            ]
            self.newest, self.rests_until = None, time.monotonic() + REST
            self.met.clear()
        return 0

    def _delete(self) -> int:
        count, began = 0, time.monotonic()
        while self.unused and time.monotonic() - began < LONGEST:
            try:
                count += len(lines_sql.delete_line(line=self.unused.pop()))
            except IntegrityError:
                continue  # somebody stands in it again
        return count


_walk = UnusedQueueCursor()


@chore("unused lines", every=10.0)
def delete_unused_queues() -> bool:
    _walk.step()
    return False
