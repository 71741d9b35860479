"""Regions: parts of a page that are rendered by the server, at first with the page and again
whenever what they show was touched.

An app registers how a region is opened for somebody: nothing, if they may not see it; else what
touches it and how it is rendered. Who has the same permission shares the region's key, so it is
rendered once for all of them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

# ("pool", 12), ("member", 5), ("claim", 88), ("slot", 7): as events name them.
Subject = tuple[str, int]
ANY: Subject = ("any", 0)  # touched by every event


@dataclass(frozen=True, slots=True)
class OpenedRegion:
    name: str  # what the page calls it: "pool.head:tf-prod"
    key: str  # the name, and the permission that its content depends on
    subjects: frozenset[Subject]
    render: Callable[[], str] | None  # None: the cells of a pool's slots
    every: float = 0.5  # seconds between two frames, at least
    pool_id: int | None = None


Opener = Callable[[Any, str], OpenedRegion | None]  # identity, argument
# connection, slots, members, pools -> {pool: {class: [slot, ...]}}
CellReader = Callable[
    [Any, set[int], set[int], set[int]], Awaitable[dict[int, dict[str, list[int]]]]
]

_openers: dict[str, Opener] = {}
read_cells: CellReader | None = None


def region(name: str) -> Callable[[Opener], Opener]:
    def register(opener: Opener) -> Opener:
        if name in _openers:
            raise ValueError(f"region {name} is registered twice")
        _openers[name] = opener
        return opener

    return register


def open_region(identity: Any, full_name: str) -> OpenedRegion | None:
    """None: no such region, or not for this identity. The answer doesn't tell which."""
    name, _, argument = full_name.partition(":")
    opener = _openers.get(name)
    return opener(identity, argument) if opener else None


def reads_cells(reader: CellReader) -> CellReader:
    global read_cells
    read_cells = reader
    return reader
