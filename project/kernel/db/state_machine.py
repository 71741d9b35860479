"""State machines, declared once. Field, CHECK constraint, trigger, diagram and the test of states
and edges derive from the declaration.

Named SQL statements and services move rows. A machine declares the legal moves, and the database
rejects every other move (`move_trigger`).
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
    born: tuple[str, ...] = ()  # further states of inserted rows
    column: str = "state"
    moves: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        known = set(self.states)
        named = {self.initial, *self.born} | {s for e in self.edges for s in (e.source, e.target)}
        if named - known:
            raise ValueError(f"{self.name}: undeclared states {sorted(named - known)}")
        moves = [f"{e.source}>{e.target}" for e in self.edges]
        if len(moves) != len(set(moves)):
            raise ValueError(f"{self.name}: a move is declared twice")
        object.__setattr__(self, "moves", frozenset(moves))

    @property
    def terminal(self) -> frozenset[str]:
        return frozenset(self.states) - {e.source for e in self.edges}

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
            condition=models.Q(**{f"{self.column}__in": sorted(self.states)}),
        )

    def move_trigger(self) -> str:
        """The trigger that rejects undeclared moves. Its WHEN clause contains the rule, so a legal
        update calls no function.
        """
        moves = ",".join(sorted(self.moves))
        old, new = f"OLD.{self.column}", f"NEW.{self.column}"
        return (
            f"CREATE TRIGGER {self.name}_move BEFORE UPDATE ON {self.table} FOR EACH ROW\n"
            f"  WHEN ({old} <> {new} AND {old} || '>' || {new} <> ALL ('{{{moves}}}'))\n"
            f"  EXECUTE FUNCTION refuse('no such move');"
        )

    def diagram(self) -> str:
        """Mermaid, for docs/."""
        lines = [
            "stateDiagram-v2",
            f"    [*] --> {self.initial}",
            *(f"    [*] --> {s}" for s in self.born),
        ]
        lines += [
            f"    {e.source} --> {e.target}: {e.by}" + (f" ({e.when})" if e.when else "")
            for e in self.edges
        ]
        return "\n".join([*lines, *(f"    {s} --> [*]" for s in sorted(self.terminal))])


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
