"""A race of two transactions, played in both orders: one side has acted but not committed when
the other side starts.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.database import helpers
from tests.database import race_actors as p
from tests.database.helpers import Connection, value

Act = Callable[[Connection, Any], Any]
ORDERS = ("first leads", "second leads")


@dataclass(frozen=True)
class Outcome:
    """What the two sides were answered (an error: its code), and the database afterwards."""

    one: Any
    two: Any
    c: Connection

    @property
    def wins(self) -> int:
        return bool(self.one) + bool(self.two)

    @property
    def answers(self) -> set[str]:
        return {str(self.one), str(self.two)}


@dataclass(frozen=True)
class Race:
    name: str
    one: Act
    two: Act
    judge: Callable[[Outcome], bool]
    setup: Callable[[Connection], Any] = lambda c: None
    queue: str = ""  # of the pools: with one, slots drain

    def play(self, order: str) -> None:
        helpers.load(slots=20, pools=2, claims=20, per_member=5, queue=self.queue)
        with helpers.connect() as a, helpers.connect() as b, helpers.connect() as look:
            state = self.setup(a)
            answers: dict[int, Any] = {}
            sides = [(0, self.one, a), (1, self.two, b)]
            leader, follower = sides if order == ORDERS[0] else reversed(sides)

            def act(side: tuple[int, Act, Connection]) -> None:
                number, play, connection = side
                try:
                    connection.execute("BEGIN")
                    answers[number] = play(connection, state)
                except psycopg.Error as error:
                    if helpers.sqlstate(error)[:2] not in ("BR", "23", "40"):
                        raise
                    answers[number] = helpers.sqlstate(error)

            act(leader)
            other = threading.Thread(target=act, args=(follower,))
            other.start()
            while other.is_alive() and not is_blocked(look, follower[2]):
                other.join(0.01)
            leader[2].execute("COMMIT")
            other.join()
            follower[2].execute("COMMIT")
            outcome = Outcome(answers[0], answers[1], look)
            assert self.judge(outcome), f"{outcome.one} / {outcome.two}"
            assert helpers.violations(look) == {}


def is_blocked(look: Connection, other: Connection) -> bool:
    return bool(value(look, "SELECT cardinality(pg_blocking_pids(%s)) > 0", other.info.backend_pid))


def one_wins(o: Outcome) -> bool:
    return o.wins == 1


def no_holder_leaves(o: Outcome) -> bool:
    """The second side has removed a member, or has spared it because a claim is there."""
    return p.on_leaving_member(o.c) == 0 and o.two in ("spared", "removed")
