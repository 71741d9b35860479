"""Claims that are asked for at the same moment are made together.

Whoever comes while nothing is under way in this process is made at once, by itself. Whoever comes
meanwhile waits for the end of that statement; then one of them makes them all, in one statement
with one commit. So a claim costs a commit of its own only while there is time for it, and a busy
server does the work of a hand-over once for many. Nobody waits for company, and not for long for a
statement that is held up.

Each stands on its own all the same. A claim that the common statement leaves out (its key exists,
its pool has changed or is locked) is made by itself, and if the statement fails each is, so that
one that can't be made takes no other along.
"""

import json
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from django.db import DatabaseError, connection

from claims import claims_sql
from claims.allocation.requests.resolve import Route
from pools.access.tokens import CachedToken
from project.kernel.controllers.periodic import is_unavailable

MOST = 16  # in one statement: more than the threads of a web process
# Statements under way in this process: while one waits for its commit, the next ones are made.
AT_ONCE = 2
PATIENCE = 0.03  # seconds to wait for one; it is held up by a lock then, and the others go on

Row = Any


class QueuedCreate:
    """One claim to be made."""

    __slots__ = ("batch", "error", "is_left", "proof", "route", "row", "turn", "values")

    def __init__(
        self, route: Route, values: Mapping[str, Any], proof: CachedToken | None = None
    ) -> None:
        self.route, self.values, self.proof = route, values, proof
        self.turn: threading.Lock | None = None  # held as long as it waits for others
        self.batch: list[QueuedCreate] = []  # those it makes when its turn has come
        self.row: Row | None = None
        self.error: DatabaseError | None = None  # nobody knows whether it was made
        self.is_left = False  # the common statement did not make it: it is made by itself

    @property
    def line(self) -> tuple[Any, ...]:
        return self.route.shape, self.values["rank"]


class ThreadBatcher:
    """Who makes whom. Holds no lock while a statement runs."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self.at_once = at_once
        self._change = threading.Lock()
        self._waiting: list[QueuedCreate] = []
        self._under_way = 0

    def enter(self, wish: QueuedCreate) -> list[QueuedCreate]:
        """Those the caller makes now, itself among them, and then it calls `leave`; nobody:
        another one has made it.
        """
        with self._change:
            if self._under_way < self.at_once:
                self._under_way += 1
                return [wish]
            wish.turn = threading.Lock()
            wish.turn.acquire()
            self._waiting.append(wish)
        # Let go of by whoever made it, or passes the turn to it.
        while not wish.turn.acquire(timeout=PATIENCE):
            with self._change:
                if wish in self._waiting:
                    self._under_way += 1
                    self._waiting.remove(wish)
                    self._waiting.insert(0, wish)
                    return self._take()
        return wish.batch

    def leave(self, made: list[QueuedCreate]) -> None:
        """The next ones begin first, then those that were made go on."""
        with self._change:
            following = self._take()
            if following:
                following[0].batch = following
            else:
                self._under_way -= 1
        if following:
            _wake(following[0])
        for wish in made[1:]:
            _wake(wish)

    def _take(self) -> list[QueuedCreate]:
        taken, self._waiting = split_batch(self._waiting)
        return taken


def split_batch(waiting: Iterable[QueuedCreate]) -> tuple[list[QueuedCreate], list[QueuedCreate]]:
    """Those for one statement, and the others: in the order they came, of each pool one line,
    since two would look for the same slots.
    """
    lines: dict[int, tuple[Any, ...]] = {}
    taken, left = list[QueuedCreate](), list[QueuedCreate]()
    for wish in waiting:
        if len(taken) < MOST and lines.setdefault(wish.values["pool"], wish.line) == wish.line:
            taken.append(wish)
        else:
            left.append(wish)
    return taken, left


def create_batched(
    route: Route, values: Mapping[str, Any], proof: CachedToken | None = None
) -> Row | None:
    """A simple claim, bound or waiting; None: its key exists, or what we remember of its pool, or
    of the caller (proof), is old. Outside of a transaction block a claim may have company: its
    answer comes after the commit all the same."""
    if connection.in_atomic_block:
        return create_alone(route, values, proof)
    wish = QueuedCreate(route, values, proof)
    batch = _gatherer.enter(wish)
    if batch:
        try:
            create_batch(batch)
        finally:
            _gatherer.leave(batch)
    if wish.error is not None:
        raise wish.error
    return create_alone(route, values, proof) if wish.is_left else wish.row


def create_alone(
    route: Route, values: Mapping[str, Any], proof: CachedToken | None = None
) -> Row | None:
    pool = route.pools[0]
    assert pool is not None
    given: dict[str, Any] = {
        "revision": pool.revision,
        "lanes": route.lanes,
        "pool_name": pool.name,
        "line": route.digest,
        "token": None if proof is None else proof.hash,
        "told": None if proof is None else proof.told,
    }
    if pool.queue:
        return claims_sql.create_and_bind(queue=pool.queue, **given, **values)
    return claims_sql.create_and_bind_here(**given, **values)


def create_batch(batch: list[QueuedCreate]) -> None:
    """In one statement. One by itself raises what the database says of it."""
    if len(batch) == 1:
        batch[0].row = create_alone(batch[0].route, batch[0].values, batch[0].proof)
        return
    for wish in batch:
        wish.is_left = True
    try:
        for row in _make_all(batch):
            batch[row.n].row, batch[row.n].is_left = row, False
    except DatabaseError as error:  # whose fault it was each finds out by itself
        # The connection broke, perhaps after the commit: to make it again is safe only under a key.
        if is_unavailable(error):
            for wish in batch:
                wish.error = error if wish.values["key"] is None else None


def _make_all(batch: list[QueuedCreate]) -> list[Row]:
    lines: dict[int, dict[str, Any]] = {}
    callers: dict[CachedToken | None, int] = {}
    claims = []
    for n, wish in enumerate(batch):
        pool, values = wish.route.pools[0], wish.values
        assert pool is not None
        line = lines.get(pool.id)
        if line is None:
            line = lines[pool.id] = {
                "n": pool.id, "pool": pool.id, "revision": pool.revision, "name": pool.name,
                "queue": pool.queue, "rank": values["rank"], "shape": wish.route.shape,
                "line": _hex(wish.route.digest), "lanes": wish.route.lanes, "count": 0,
            }  # fmt: skip
        line["count"] += 1
        claim = {
            name: values[name] for name in ("owner", "requested_by", "key", "spec", "step", "actor")
        }
        caller = callers.setdefault(wish.proof, len(callers))
        claims.append(
            {"n": n, "of": pool.id, "caller": caller, "digest": _hex(values["digest"]), **claim}
        )
    in_order = [lines[pool] for pool in sorted(lines)]
    known = [
        {"n": n} if proof is None else {"n": n, "token": proof.hash, "told": proof.told}
        for proof, n in callers.items()
    ]
    return claims_sql.create_gathered(
        MOST,
        lines=json.dumps(in_order),
        callers=json.dumps(known),
        claims=json.dumps(claims),
    )


def _hex(value: bytes | None) -> str | None:
    return None if value is None else f"\\x{value.hex()}"


def _wake(wish: QueuedCreate) -> None:
    assert wish.turn is not None
    wish.turn.release()


_gatherer = ThreadBatcher()


def _start_anew() -> None:
    """In a forked child: whoever was making claims stayed behind."""
    global _gatherer
    _gatherer = ThreadBatcher()


os.register_at_fork(after_in_child=_start_anew)
