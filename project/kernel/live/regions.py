"""Regions: parts of a page that the server renders with the page and again after each event about
their subjects.

An app registers an opener for each region. The opener returns None if the reader may not see the
region, else the region's subjects and how to render it. Readers with the same permission share the
region's key, so the hub renders it once for all of them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

# As events name them: ("pool", 12), ("member", 5), ("claim", 88), ("slot", 7).
Subject = tuple[str, int]
ANY: Subject = ("any", 0)  # the subject of every event
Viewer = Any  # the reader's identity, of a type of the apps above


@dataclass(frozen=True, slots=True)
class OpenedRegion:
    name: str  # name and argument: "pool.head:tf-prod"
    key: str  # the name and the permission on which its content depends
    subjects: frozenset[Subject]
    render: Callable[[], str] | None  # None: the cells of a pool's slots
    every: float = 0.5  # the fewest seconds between two frames
    pool_id: int | None = None
    view: str = ""  # of cells: which classes the slots have, as the cell reader names them


Opener = Callable[[Viewer, str], OpenedRegion | None]  # and the argument
# {(pool, view): {class: [slot, ...]}}
Cells = dict[tuple[int, str], dict[str, list[int]]]
# connection, slots, members, pools
CellReader = Callable[[Any, set[int], set[int], set[int]], Awaitable[Cells]]

_openers: dict[str, Opener] = {}
read_cells: CellReader | None = None


def region(name: str) -> Callable[[Opener], Opener]:
    def register(opener: Opener) -> Opener:
        if name in _openers:
            raise ValueError(f"region {name} is registered twice")
        _openers[name] = opener
        return opener

    return register


def open_region(identity: Viewer, full_name: str) -> OpenedRegion | None:
    """None for an unknown region, and for one that this identity may not see."""
    name, _, argument = full_name.partition(":")
    opener = _openers.get(name)
    return opener(identity, argument) if opener else None


def reads_cells(reader: CellReader) -> CellReader:
    global read_cells
    read_cells = reader
    return reader
