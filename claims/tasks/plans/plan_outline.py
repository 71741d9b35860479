"""The outline of a plan: what its pages need of its JSON, a fraction of its size. Made once, when
the plan comes in.

`answer_outline` runs in a child process with limits, because JSON takes many times its size to be
built. It never holds more of it than one resource. What an agent sends is not believed: every level
is looked at before it is used, and what does not fit is left out.

An outline is MAGIC, its head (version, size, counts), its index (a row for each change, sorted),
and blocks of the changes' bodies: each of head and index with its length before it, index and
blocks deflated.
"""

import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from claims.tasks.plans.json_scan import Scan
from project.kernel.errors import Invalid
from slots.agent.executors.plan_summary import KINDS, name_actions
from slots.agent.executors.redaction import as_list

MAGIC = b"BPO1"
LENGTH = struct.Struct(">I")
ACTION_NAMES = ("delete", "replace", "forget", "update", "create", "read")  # the riskiest first
ORDER = {name: place for place, name in enumerate(ACTION_NAMES)}
REASONS = {
    "replace_because_tainted": "it is tainted",
    "replace_because_cannot_update": "it can’t be updated in place",
    "replace_by_request": "asked for",
    "replace_by_triggers": "a trigger changed",
    "delete_because_no_resource_config": "not in the configuration any more",
    "delete_because_no_module": "its module is not there any more",
    "delete_because_count_index": "beyond its count",
    "delete_because_each_key": "its key is not there any more",
    "delete_because_wrong_repetition": "count or for_each changed",
    "delete_because_no_move_target": "it was moved to nothing",
    "read_because_config_unknown": "its configuration is not known yet",
    "read_because_dependency_pending": "something it depends on changes",
    "read_because_check_nested": "part of a check",
}
NUMBERS = re.compile(r"(\d+)")
MOST_RESOURCES = 200_000  # that a plan names
MOST_LISTED = 50_000  # that its pages list
# Bytes of a resource or output that is not built as a whole, and whose attributes are not shown.
LARGE = 1_000_000
SHORT = 64_000  # bytes of what is read of a large one
BLOCK = 256_000  # bytes of bodies that are deflated together
MOST_BODIES = 16_000_000  # bytes of all blocks
# In the place of a block: the body is not kept, its size stands in the place of its end.
LEFT_OUT = -1
PARTS = ("resource_changes", "resource_drift", "output_changes")
OUTPUT_PARTS = ("before", "after", "after_unknown", "before_sensitive", "after_sensitive")


class NotAPlan(Invalid):
    """This is not Terraform's JSON of a plan, or not one that can be listed; says what is wrong."""

    code = "not_json"

    def __init__(self, detail: str = "", *, code: str = "", way_out: str = "") -> None:
        super().__init__(
            detail, code=code, way_out=way_out or "Send what `terraform show -json` writes."
        )


def answer_outline(data: bytes) -> bytes:
    """In the child: the outline of a plan's JSON."""
    try:
        return Outliner(Scan(data), len(data)).make()
    except (ValueError, RecursionError) as error:
        raise NotAPlan(f"This is not JSON: {str(error)[:200]}") from None


class Outliner:
    def __init__(self, scan: Scan, size: int) -> None:
        self.scan, self.size = scan, size
        self.version = ""
        self.resources = 0
        self.counts = dict.fromkeys(KINDS, 0)
        self.shared: dict[str, int] = {}  # texts that many rows have, with their numbers
        self.rows: dict[str, list[list[Any]]] = {part: [] for part in PARTS}
        self.number = 0
        self.blocks: list[bytes] = []
        self.block = bytearray()

    def make(self) -> bytes:
        start = self.scan.begin()
        if not self.scan.is_object(start):
            self.scan.check_end(start)
            raise NotAPlan("This is JSON, but not of a plan.")
        found: set[str] = set()
        for key, at in self.scan.members(start):
            if key in PARTS and key in found:
                raise NotAPlan(f"This JSON names {key} twice.")
            found.add(key)
            self.read_part(key, at)
        self.scan.check_end(start)
        return self.write()

    def read_part(self, key: str, at: int) -> None:
        if key == "terraform_version" and self.scan.size(at) < SHORT:
            version = self.scan.read(at)
            self.version = version[:400] if isinstance(version, str) else ""
        elif key == "resource_changes":
            if not self.scan.is_list(at) and self.scan.read(at) is not None:
                raise NotAPlan("This is JSON, but not of a plan.")
            self.read_resources(key, at)
        elif key == "resource_drift":
            self.read_resources(key, at)
        elif key == "output_changes" and self.scan.is_object(at):
            for name, place in self.scan.members(at):
                self.add_row(key, place, partial(describe_output, name))

    def read_resources(self, part: str, at: int) -> None:
        for place in self.scan.items(at) if self.scan.is_list(at) else ():
            if part == "resource_changes":
                self.resources += 1
                if self.resources > MOST_RESOURCES:
                    raise NotAPlan(f"This plan names more than {MOST_RESOURCES:,} resources.")
            self.add_row(part, place, describe_resource)

    def add_row(
        self, part: str, at: int, describe: Callable[[Mapping[str, Any]], list[Any] | None]
    ) -> None:
        entry = self.scan.read(at) if self.scan.size(at) <= LARGE else self.read_large(at)
        self.number += 1
        if not isinstance(entry, dict):
            return
        if part == "resource_changes":
            kind = count_entry(entry)
            if kind:
                self.counts[kind] += 1
        row = describe(entry)
        if row is None:
            return
        if sum(map(len, self.rows.values())) >= MOST_LISTED:
            raise NotAPlan(
                f"This plan changes more than {MOST_LISTED:,} resources.", code="plan_too_large"
            )
        body = row.pop()
        where = (
            (LEFT_OUT, 0, self.scan.size(at))
            if self.scan.size(at) > LARGE
            else self.add_body(json.dumps(body, separators=(",", ":")).encode())
        )
        self.rows[part].append([self.number - 1, *row, *where])

    def read_large(self, start: int) -> Any:
        """What is short in it, and in its `change`. Measured first: a walk goes on behind what
        was measured.
        """
        if not self.scan.is_object(start):
            return None
        entry: dict[str, Any] = {}
        for key, at in self.scan.members(start):
            if key == "change" and self.scan.is_object(at):
                entry[key] = {
                    name: self.scan.read(place)
                    for name, place in self.scan.members(at)
                    if self.scan.size(place) <= SHORT
                }
            elif self.scan.size(at) <= SHORT:
                entry[key] = self.scan.read(at)
        return entry

    def add_body(self, body: bytes) -> tuple[int, int, int]:
        if sum(map(len, self.blocks)) > MOST_BODIES:
            return LEFT_OUT, 0, len(body)
        start = len(self.block)
        self.block += body
        where = len(self.blocks), start, len(self.block)
        if len(self.block) >= BLOCK:
            self.close_block()
        return where

    def close_block(self) -> None:
        self.blocks.append(zlib.compress(bytes(self.block), 1))
        self.block.clear()

    def share(self, text: str) -> int:
        return self.shared.setdefault(text, len(self.shared))

    def write(self) -> bytes:
        self.close_block()
        head = {
            "version": self.version,
            "size": self.size,
            "resources": self.resources,
            "counts": self.counts,
        }
        rows = {
            part: [self.pack_row(row) for row in sorted(found, key=place_of)]
            for part, found in self.rows.items()
        }
        index = {"rows": rows, "shared": list(self.shared), "blocks": list(map(len, self.blocks))}
        packed = [json.dumps(head).encode(), zlib.compress(json.dumps(index).encode(), 3)]
        return b"".join([MAGIC, *(LENGTH.pack(len(part)) + part for part in packed), *self.blocks])

    def pack_row(self, row: Sequence[Any]) -> list[Any]:
        number, address, module, kind, action, why, *rest = row
        return [
            number,
            address,
            self.share(module),
            self.share(kind),
            action,
            self.share(why),
            *rest,
        ]


# -- one entry -------------------------------------------------------------------------------------


def count_entry(entry: Mapping[str, Any]) -> str:
    """As agents count (`slots.agent.executors.plan_summary`)."""
    change = entry.get("change")
    return name_actions(as_list(change.get("actions"))) if isinstance(change, dict) else ""


def describe_resource(entry: Mapping[str, Any]) -> list[Any] | None:
    """Address, module, type, action, why, address before, whether it is imported, as what it
    counts, body. None: nothing happens to it.
    """
    change = entry.get("change")
    if not isinstance(change, dict):
        return None
    previous = cut(entry.get("previous_address"))
    address = cut(entry.get("address")) or "unnamed"
    action = name_action(change.get("actions"))
    is_imported = isinstance(change.get("importing"), dict)
    if action is None:
        if (not previous or previous == address) and not is_imported:
            return None
        action = "update"
    deposed = cut(entry.get("deposed"))
    return [
        f"{address} (deposed {deposed})" if deposed else address,
        cut(entry.get("module_address")),
        cut(entry.get("type")) or "unknown",
        action,
        explain_change(entry, change, action),
        previous if previous != address else "",
        int(is_imported),
        count_entry(entry),
        change,
    ]


def describe_output(name: str, entry: Mapping[str, Any]) -> list[Any] | None:
    action = name_action(entry.get("actions"))
    if action is None:
        return None
    body = {key: {"value": entry[key]} for key in OUTPUT_PARTS if key in entry}
    return [f"output.{cut(name)}", "", "output", action, "", "", 0, "", body]


def name_action(told: Any) -> str | None:
    """None: nothing is to be done."""
    actions = [a for a in told if isinstance(a, str)] if isinstance(told, list) else []
    if "create" in actions and ("delete" in actions or "forget" in actions):
        return "replace"
    return next(
        (name for name in ("delete", "create", "update", "forget", "read") if name in actions), None
    )


def explain_change(entry: Mapping[str, Any], change: Mapping[str, Any], action: str) -> str:
    if action == "replace":
        paths = change.get("replace_paths")
        names = (
            [write_path(path) for path in paths if path and is_path(path)]
            if isinstance(paths, list)
            else []
        )
        if names:
            return (
                f"forced by {', '.join(dict.fromkeys(names[:3]))}"
                f"{' and more' if len(names) > 3 else ''}"
            )
    return REASONS.get(cut(entry.get("action_reason")), "")


def is_path(told: Any) -> bool:
    return isinstance(told, list) and all(isinstance(part, str | int) for part in told)


def write_path(path: Sequence[Any]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(
        "."
    )[:80]


def cut(told: Any) -> str:
    return told[:400] if isinstance(told, str) else ""


def place_of(row: Sequence[Any]) -> tuple[int, list[Any]]:
    return ORDER[row[4]], natural(row[1])


def natural(text: str) -> list[Any]:
    """tf-2 before tf-10."""
    return [
        (1, int(part), "") if part.isdecimal() and len(part) < 19 else (0, 0, part)
        for part in NUMBERS.split(text)
    ]


# -- reading one -----------------------------------------------------------------------------------


def read_head(outline: bytes) -> dict[str, Any]:
    return dict(json.loads(next(read_parts(outline))))


def read_parts(outline: bytes) -> Iterator[bytes]:
    """Its head, its index, and its blocks as one."""
    if not outline.startswith(MAGIC):
        raise NotAPlan("Its outline is of another form.")
    at = len(MAGIC)
    for _ in range(2):
        (size,) = LENGTH.unpack_from(outline, at)
        at += LENGTH.size + size
        yield outline[at - size : at]
    yield outline[at:]
