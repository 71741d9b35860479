"""State machines, declared once. Field, CHECK constraint, diagram and the test of states and edges
derive from the declaration.

Named SQL statements and services move rows. A machine declares the legal moves. A trigger of the
table rejects every other move: a migration holds its text, with a copy of the moves, and
`tests/database/test_transitions.py` compares it with the declaration.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from django.db import models


@dataclass(frozen=True)
class Edge:
    source: str
    target: str
    by: str
    when: str = ""


@dataclass(frozen=True)
class StateMachine:
    """The states of the rows of a table, and all legal moves with their actors."""

    name: str
    table: str
    states: Mapping[str, str]  # state -> its meaning in a few words
    edges: tuple[Edge, ...]
    initial: str
    insert_states: tuple[str, ...] = ()  # further states of inserted rows
    moves: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        known = set(self.states)
        named = {self.initial, *self.insert_states} | {
            s for e in self.edges for s in (e.source, e.target)
        }
        if named - known:
            raise ValueError(f"{self.name}: undeclared states {sorted(named - known)}")
        moves = [f"{e.source}>{e.target}" for e in self.edges]
        if len(moves) != len(set(moves)):
            raise ValueError(f"{self.name}: a move is declared twice")
        object.__setattr__(self, "moves", frozenset(moves))

    def may(self, before: str, after: str) -> bool:
        return before == after or f"{before}>{after}" in self.moves

    def field(self, **options: object) -> "models.CharField[str, str]":
        return models.CharField(
            max_length=16,
            choices=[(s, s) for s in self.states],
            default=self.initial,
            db_default=self.initial,
            **options,  # type: ignore[arg-type]
        )

    def check(self) -> models.CheckConstraint:
        return models.CheckConstraint(
            name=f"{self.name}_state_known",
            condition=models.Q(state__in=sorted(self.states)),
        )


def edges(rows: Iterable[str]) -> tuple[Edge, ...]:
    """Parses lines like 'idle, reserved > held: allocate, API | only if open'."""
    found = []
    for row in rows:
        move, _, rest = row.partition(":")
        by, _, when = rest.partition("|")
        sources, _, targets = move.partition(">")
        found += [
            Edge(source.strip(), target.strip(), by.strip(), when.strip())
            for source in sources.split(",")
            for target in targets.split(",")
        ]
    return tuple(found)
