"""The outline of a plan: the small part of its JSON that its pages need. Berth makes it once, when
the agent uploads the plan.

`answer_outline` runs in a limited child process, because parsed JSON takes many times its size. It
never holds more than one resource in memory. The JSON is untrusted: the code checks every level
and leaves out values of unexpected types.

An outline consists of MAGIC, a head (version, size, counts), an index (a sorted row for each
change), and blocks of the changes' bodies. Head and index follow their length; index and blocks are
compressed.
"""

import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeGuard

from claims.tasks.plans.json_scan import Scan
from project.kernel.errors import Invalid
from slots.agent.common.json_types import as_list
from slots.agent.executors.plan_summary import KINDS, name_actions

MAGIC = b"BPO1"
LENGTH = struct.Struct(">I")
ACTION_NAMES = ("delete", "replace", "forget", "update", "create", "read")  # the riskiest first
ORDER = {name: place for place, name in enumerate(ACTION_NAMES)}
REASONS = {
    "replace_because_tainted": "it is tainted",
    "replace_because_cannot_update": "it can’t be updated in place",
    "replace_by_request": "requested",
    "replace_by_triggers": "a trigger changed",
    "delete_because_no_resource_config": "no longer in the configuration",
    "delete_because_no_module": "its module no longer exists",
    "delete_because_count_index": "beyond its count",
    "delete_because_each_key": "its key no longer exists",
    "delete_because_wrong_repetition": "count or for_each changed",
    "delete_because_no_move_target": "its move has no target",
    "read_because_config_unknown": "its configuration is not known yet",
    "read_because_dependency_pending": "a dependency changes",
    "read_because_check_nested": "part of a check",
}
NUMBERS = re.compile(r"(\d+)")
MOST_RESOURCES = 200_000  # resources of a plan
MOST_LISTED = 50_000  # resources that its pages list
LARGE = 1_000_000  # bytes of an entry that is parsed only in part and shown without attributes
SHORT = 64_000  # bytes of a value that is parsed in a large entry
BLOCK = 256_000  # bytes of bodies that are compressed together
MOST_BODIES = 16_000_000  # bytes of all blocks
LEFT_OUT = -1  # instead of a block number: the body is left out, and `end` is its size
Row = list[Any]  # of the index: see `describe_resource`
PARTS = ("resource_changes", "resource_drift", "output_changes")
OUTPUT_PARTS = ("before", "after", "after_unknown", "before_sensitive", "after_sensitive")


class NotAPlan(Invalid):
    """The JSON is not a Terraform plan, or the plan is too large to be listed."""

    code = "not_json"

    def __init__(self, detail: str = "", *, code: str = "", way_out: str = "") -> None:
        super().__init__(
            detail, code=code, way_out=way_out or "Send the output of `terraform show -json`."
        )


def answer_outline(data: bytes) -> bytes:
    """Runs in the child process: the outline of a plan's JSON."""
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
        self.shared: dict[str, int] = {}  # numbers of texts that many rows contain
        self.rows: dict[str, list[Row]] = {part: [] for part in PARTS}
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
        self, part: str, at: int, describe: Callable[[Mapping[str, object]], Row | None]
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

    def read_large(self, start: int) -> dict[str, object] | None:
        """Parses the short values of an entry and of its `change`. `size` must measure a value
        before the walk continues behind it.
        """
        if not self.scan.is_object(start):
            return None
        entry: dict[str, object] = {}
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
            part: [self.pack_row(row) for row in sorted(found, key=rank_of)]
            for part, found in self.rows.items()
        }
        index = {"rows": rows, "shared": list(self.shared), "blocks": list(map(len, self.blocks))}
        packed = [json.dumps(head).encode(), zlib.compress(json.dumps(index).encode(), 3)]
        return b"".join([MAGIC, *(LENGTH.pack(len(part)) + part for part in packed), *self.blocks])

    def pack_row(self, row: Row) -> Row:
        number, address, module, kind, action, why, *rest = row
        module, kind, why = map(self.share, (module, kind, why))
        return [number, address, module, kind, action, why, *rest]


# -- one entry -------------------------------------------------------------------------------------


def count_entry(entry: Mapping[str, object]) -> str:
    """The kind that agents count the entry as (`slots.agent.executors.plan_summary`)."""
    change = entry.get("change")
    return name_actions(as_list(change.get("actions"))) if isinstance(change, dict) else ""


def describe_resource(entry: Mapping[str, object]) -> Row | None:
    """Address, module, type, action, why, previous address, imported (0 or 1), counted kind, body.
    None: the resource does not change.
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


def describe_output(name: str, entry: Mapping[str, object]) -> Row | None:
    action = name_action(entry.get("actions"))
    if action is None:
        return None
    body = {key: {"value": entry[key]} for key in OUTPUT_PARTS if key in entry}
    return [f"output.{cut(name)}", "", "output", action, "", "", 0, "", body]


def name_action(value: object) -> str | None:
    """None: no action."""
    actions = as_list(value)
    if "create" in actions and ("delete" in actions or "forget" in actions):
        return "replace"
    return next(
        (name for name in ("delete", "create", "update", "forget", "read") if name in actions), None
    )


def explain_change(entry: Mapping[str, object], change: Mapping[str, object], action: str) -> str:
    if action == "replace":
        paths = as_list(change.get("replace_paths"))
        if names := [write_path(path) for path in paths if path and is_path(path)]:
            more = " and more" if len(names) > 3 else ""
            return f"forced by {', '.join(dict.fromkeys(names[:3]))}{more}"
    return REASONS.get(cut(entry.get("action_reason")), "")


def is_path(value: object) -> TypeGuard[list[str | int]]:
    return isinstance(value, list) and all(isinstance(part, str | int) for part in value)


def write_path(path: Sequence[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(
        "."
    )[:80]


def cut(value: object) -> str:
    return value[:400] if isinstance(value, str) else ""


def rank_of(row: Row) -> tuple[int, list[tuple[int, int, str]]]:
    """Sorts rows by risk, then by address."""
    return ORDER[row[4]], natural(row[1])


def natural(text: str) -> list[tuple[int, int, str]]:
    """A sort key that puts tf-2 before tf-10."""
    return [
        (1, int(part), "") if part.isdecimal() and len(part) < 19 else (0, 0, part)
        for part in NUMBERS.split(text)
    ]


# -- reading an outline ----------------------------------------------------------------------------


def read_head(outline: bytes) -> dict[str, Any]:
    return dict(json.loads(next(read_parts(outline))))


def read_parts(outline: bytes) -> Iterator[bytes]:
    """The head, the index, and all blocks together."""
    if not outline.startswith(MAGIC):
        raise NotAPlan("The outline has an unknown format.")
    at = len(MAGIC)
    for _ in range(2):
        (size,) = LENGTH.unpack_from(outline, at)
        at += LENGTH.size + size
        yield outline[at - size : at]
    yield outline[at:]
