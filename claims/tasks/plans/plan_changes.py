"""The changes, groups and lines of a plan for people, read from its outline.

Values that the plan marks as sensitive are never shown.
"""

import json
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from claims.tasks.plans.plan_outline import (
    ACTION_NAMES,
    LEFT_OUT,
    PARTS,
    NotAPlan,
    is_path,
    natural,
    read_parts,
)
from claims.tasks.plans.value_diff import DiffLine, diff_values
from slots.agent.common.json_types import as_list

__all__ = ["NotAPlan"]  # raised by the functions of this module

# Sign, CSS class and text of each action.
ACTIONS: Mapping[str, tuple[str, str, str]] = {
    "delete": ("-", "del", "destroy"),
    "replace": ("-/+", "rep", "replace"),
    "forget": (".", "chg", "forget, the resource stays outside"),
    "update": ("~", "chg", "update in place"),
    "create": ("+", "add", "create"),
    "read": ("<=", "z", "read during apply"),
}
assert tuple(ACTIONS) == ACTION_NAMES
RISKY = ("delete", "replace", "forget")
ROW_BYTES = 700  # memory of a change


class Bodies:
    """The attributes of a plan's changes, in compressed blocks. The last block stays
    decompressed.
    """

    def __init__(self, data: bytes, sizes: Sequence[int]) -> None:
        self._data, self._sizes = data, sizes
        self._last: tuple[int, bytes] = (LEFT_OUT, b"")
        self._lock = threading.Lock()

    def read(self, block: int, start: int, end: int) -> bytes:
        with self._lock:
            if self._last[0] != block:
                at = sum(self._sizes[:block])
                self._last = block, zlib.decompress(self._data[at : at + self._sizes[block]])
            return self._last[1][start:end]


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """The change of one resource or output. Its attributes are read when a user opens it."""

    number: int  # the stable position in the plan
    address: str
    module: str  # "": the root
    type: str
    action: str
    why: str
    previous: str  # the address before a move
    is_imported: bool
    counted: str  # add, change, destroy or replace, as agents count; empty: not counted
    block: int
    start: int
    end: int
    bodies: Bodies = field(repr=False)

    @property
    def body(self) -> bytes | None:
        """The attributes as JSON. None: they are too large to be shown."""
        return (
            None if self.block == LEFT_OUT else self.bodies.read(self.block, self.start, self.end)
        )

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def sign(self) -> str:
        return ACTIONS[self.action][0]

    @property
    def css(self) -> str:
        return ACTIONS[self.action][1]

    @property
    def is_risky(self) -> bool:
        return self.action in RISKY

    @property
    def local(self) -> str:
        """The address inside the module."""
        return (
            self.address[len(self.module) + 1 :]
            if self.module and self.address.startswith(f"{self.module}.")
            else self.address
        )

    @property
    def description(self) -> str:
        parts = [ACTIONS[self.action][2] + (f", {self.why}" if self.why else "")]
        if self.previous:
            parts.append(f"moved from {self.previous}")
        if self.is_imported:
            parts.append("imported")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts as agents count (`slots.agent.executors.plan_summary`). A replacement counts once."""

    add: int = 0
    change: int = 0
    destroy: int = 0
    replace: int = 0

    @property
    def destroys(self) -> bool:
        return bool(self.destroy or self.replace)


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources of one type in one module."""

    module: str
    type: str
    counts: Counts
    size: int

    @property
    def key(self) -> str:
        return f"{self.module}|{self.type}"

    @property
    def name(self) -> str:
        return f"{self.module}.{self.type}" if self.module else self.type


@dataclass(frozen=True, slots=True)
class PlanTree:
    changes: tuple[ResourceChange, ...]  # the riskiest first, then by address
    drift: tuple[ResourceChange, ...]
    outputs: tuple[ResourceChange, ...]
    version: str = ""
    size: int = 0  # bytes of the JSON
    memory: int = 0  # approximate bytes of this object

    @property
    def counts(self) -> Counts:
        return count_changes(self.changes)

    @property
    def risky(self) -> list[ResourceChange]:
        return [change for change in self.changes if change.is_risky]

    @property
    def others(self) -> list[ResourceChange]:
        return [change for change in self.changes if not change.is_risky]

    def find(self, number: int) -> ResourceChange | None:
        return next(
            (c for c in (*self.changes, *self.drift, *self.outputs) if c.number == number), None
        )


def read_outline(outline: bytes) -> PlanTree:
    first, packed, blocks = read_parts(outline)
    head, index = json.loads(first), json.loads(zlib.decompress(packed))
    shared, bodies = index["shared"], Bodies(blocks, index["blocks"])
    changes, drift, outputs = (
        tuple(_change_of(row, shared, bodies) for row in index["rows"][part]) for part in PARTS
    )
    memory = len(outline) + ROW_BYTES * (len(changes) + len(drift) + len(outputs))
    return PlanTree(changes, drift, outputs, head["version"], head["size"], memory)


def _change_of(row: Sequence[Any], shared: Sequence[str], bodies: Bodies) -> ResourceChange:
    number, address, module, kind, action, why, previous, is_imported, counted, *place = row
    block, start, end = place
    return ResourceChange(
        number, address, shared[module], shared[kind], action, shared[why], previous,
        bool(is_imported), counted, block, start, end, bodies,
    )  # fmt: skip


def count_changes(changes: Iterable[ResourceChange]) -> Counts:
    found = Counter(change.counted for change in changes)
    return Counts(found["add"], found["change"], found["destroy"], found["replace"])


def groups_of(changes: Sequence[ResourceChange]) -> list[ResourceGroup]:
    """Groups sorted by module, then type."""
    found: dict[tuple[str, str], list[ResourceChange]] = {}
    for change in changes:
        found.setdefault((change.module, change.type), []).append(change)
    keys = sorted(found, key=lambda key: (natural(key[0]), key[1]))
    return [
        ResourceGroup(module, kind, count_changes(found[module, kind]), len(found[module, kind]))
        for module, kind in keys
    ]


def in_group(changes: Sequence[ResourceChange], key: str) -> list[ResourceChange]:
    return [change for change in changes if f"{change.module}|{change.type}" == key]


def matching(changes: Sequence[ResourceChange], text: str) -> list[ResourceChange]:
    """The changes whose address or action contains each word of the text."""
    words = text.lower().split()
    return [
        change
        for change in changes
        if all(word in f"{change.address.lower()} {change.action} {change.sign}" for word in words)
    ]


def lines_of(change: ResourceChange) -> list[DiffLine]:
    """The attributes as lines, with marks for changes and for forced replacements."""
    body = change.body
    if body is None:
        text = f"# {change.size:,} bytes are too many to be shown; see the raw plan"
        return [DiffLine(" ", 0, text)]
    try:
        values = json.loads(body)
        return diff_values(
            values.get("before"),
            values.get("after"),
            unknown=values.get("after_unknown"),
            hidden_before=values.get("before_sensitive"),
            hidden_after=values.get("after_sensitive"),
            forces=[tuple(path) for path in as_list(values.get("replace_paths")) if is_path(path)],
        )
    except RecursionError:
        return [DiffLine(" ", 0, "# nested too deeply to be shown; see the raw plan")]
