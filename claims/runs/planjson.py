"""Terraform's JSON of a plan as people read it. Pure: bytes in; changes, groups and lines out.

What an agent sends is not believed: every level is looked at before it is used, and what does not fit is left out. Values that the plan
calls sensitive are never shown and never compared, whatever stands in their place.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from claims.runs.plandiff import Line, diff_values
from slots.agent.redaction import as_list
from slots.agent.summary import name_actions

# What happens to a resource, the riskiest first: its sign, its class, in words, as one of many.
ACTIONS: Mapping[str, tuple[str, str, str]] = {
    "delete": ("-", "del", "destroy"),
    "replace": ("-/+", "rep", "replace"),
    "forget": (".", "chg", "forget, it stays outside"),
    "update": ("~", "chg", "update in place"),
    "create": ("+", "add", "create"),
    "read": ("<=", "z", "read during apply"),
}
ORDER = {name: place for place, name in enumerate(ACTIONS)}
RISKY = ("delete", "replace", "forget")
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
MOST = 200_000  # resources of one plan


class NotAPlan(ValueError):
    """This is not Terraform's JSON of a plan; says what is wrong."""


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to one resource or output. Its attributes are read when somebody opens it."""

    number: int  # its place in the plan: the same at every reading
    address: str
    module: str  # "": the root
    type: str
    action: str
    why: str
    body: bytes = field(repr=False)
    previous: str = ""  # its address before it was moved
    is_imported: bool = False
    counted: str = ""  # add, change, destroy or replace, as agents count; empty: as none

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
        """Its address inside its module."""
        return self.address[len(self.module) + 1 :] if self.module and self.address.startswith(f"{self.module}.") else self.address

    @property
    def said(self) -> str:
        parts = [ACTIONS[self.action][2] + (f", {self.why}" if self.why else "")]
        if self.previous:
            parts.append(f"moved from {self.previous}")
        if self.is_imported:
            parts.append("imported")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Counts:
    """As agents count (`slots.agent.summary`). A replacement counts once, as one."""

    add: int = 0
    change: int = 0
    destroy: int = 0
    replace: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.add or self.change or self.destroy or self.replace)

    @property
    def destroys(self) -> bool:
        return bool(self.destroy or self.replace)


@dataclass(frozen=True, slots=True)
class Group:
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
    changes: tuple[Change, ...]  # the riskiest first, then by address
    drift: tuple[Change, ...]
    outputs: tuple[Change, ...]
    version: str = ""
    size: int = 0  # bytes

    @property
    def counts(self) -> Counts:
        return count_changes(self.changes)

    @property
    def risky(self) -> list[Change]:
        return [change for change in self.changes if change.is_risky]

    @property
    def others(self) -> list[Change]:
        return [change for change in self.changes if not change.is_risky]

    def find(self, number: int) -> Change | None:
        return next((c for c in (*self.changes, *self.drift, *self.outputs) if c.number == number), None)


def read_plan(data: bytes) -> PlanTree:
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        raise NotAPlan("It is not JSON.") from None
    if not isinstance(told, dict) or not isinstance(told.get("resource_changes", []), list):
        raise NotAPlan("It is JSON, but not of a plan.")
    if len(told.get("resource_changes") or ()) > MOST:
        raise NotAPlan(f"It names more than {MOST:,} resources.")
    numbers = count()
    changes = [c for entry in _entries(told.get("resource_changes")) if (c := _change(entry, next(numbers))) is not None]
    drift = [c for entry in _entries(told.get("resource_drift")) if (c := _change(entry, next(numbers))) is not None]
    outputs = [c for c in (_output(name, entry, next(numbers)) for name, entry in _items(told.get("output_changes"))) if c is not None]
    version = told.get("terraform_version")
    return PlanTree(
        tuple(sorted(changes, key=_place)),
        tuple(sorted(drift, key=_place)),
        tuple(sorted(outputs, key=_place)),
        version if isinstance(version, str) else "",
        len(data),
    )


def count_changes(changes: Iterable[Change]) -> Counts:
    found = Counter(change.counted for change in changes)
    return Counts(found["add"], found["change"], found["destroy"], found["replace"])


def groups_of(changes: Sequence[Change]) -> list[Group]:
    """By module and type, in that order."""
    found: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        found.setdefault((change.module, change.type), []).append(change)
    keys = sorted(found, key=lambda key: (_natural(key[0]), key[1]))
    return [Group(module, kind, count_changes(found[module, kind]), len(found[module, kind])) for module, kind in keys]


def in_group(changes: Sequence[Change], key: str) -> list[Change]:
    return [change for change in changes if f"{change.module}|{change.type}" == key]


def matching(changes: Sequence[Change], text: str) -> list[Change]:
    """Each word stands somewhere in the address or the action."""
    words = text.lower().split()
    return [change for change in changes if all(word in f"{change.address.lower()} {change.action} {change.sign}" for word in words)]


def lines_of(change: Change) -> list[Line]:
    """Its attributes: what is there, what changes, what forces a replacement."""
    told = json.loads(change.body)
    paths = told.get("replace_paths")
    try:
        return diff_values(
            told.get("before"),
            told.get("after"),
            unknown=told.get("after_unknown"),
            hidden_before=told.get("before_sensitive"),
            hidden_after=told.get("after_sensitive"),
            forces=[tuple(path) for path in paths if _is_path(path)] if isinstance(paths, list) else (),
        )
    except RecursionError:
        return [Line(" ", 0, "# nested too deeply to be shown; it stands in the raw plan")]


def _is_path(told: Any) -> bool:
    return isinstance(told, list) and all(isinstance(part, str | int) for part in told)


def _entries(told: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in told if isinstance(entry, dict)] if isinstance(told, list) else []


def _items(told: Any) -> list[tuple[str, Any]]:
    return list(told.items()) if isinstance(told, dict) else []


def _change(entry: Mapping[str, Any], number: int) -> Change | None:
    """None: nothing happens to it."""
    change = entry.get("change")
    if not isinstance(change, dict):
        return None
    previous = _text(entry.get("previous_address"))
    address = _text(entry.get("address")) or "unnamed"
    action = _action(change.get("actions"))
    is_imported = isinstance(change.get("importing"), dict)
    if action is None:
        if (not previous or previous == address) and not is_imported:
            return None
        action = "update"
    deposed = _text(entry.get("deposed"))
    return Change(
        number=number,
        address=f"{address} (deposed {deposed})" if deposed else address,
        module=_text(entry.get("module_address")),
        type=_text(entry.get("type")) or "unknown",
        action=action,
        why=_why(entry, change, action),
        body=json.dumps(change, separators=(",", ":")).encode(),
        previous=previous if previous != address else "",
        is_imported=is_imported,
        counted=name_actions(as_list(change.get("actions"))),
    )


def _output(name: str, told: Any, number: int) -> Change | None:
    if not isinstance(told, dict) or (action := _action(told.get("actions"))) is None:
        return None
    parts = ("before", "after", "after_unknown", "before_sensitive", "after_sensitive")
    change = {key: {"value": told[key]} for key in parts if key in told}
    return Change(number, f"output.{name}", "", "output", action, "", json.dumps(change, separators=(",", ":")).encode())


def _action(told: Any) -> str | None:
    """None: nothing is to be done."""
    actions = [a for a in told if isinstance(a, str)] if isinstance(told, list) else []
    if "create" in actions and ("delete" in actions or "forget" in actions):
        return "replace"
    return next((name for name in ("delete", "create", "update", "forget", "read") if name in actions), None)


def _why(entry: Mapping[str, Any], change: Mapping[str, Any], action: str) -> str:
    if action == "replace":
        paths = change.get("replace_paths")
        names = [_path(path) for path in paths if path and _is_path(path)] if isinstance(paths, list) else []
        if names:
            return f"forced by {', '.join(dict.fromkeys(names[:3]))}{' and more' if len(names) > 3 else ''}"
    return REASONS.get(_text(entry.get("action_reason")), "")


def _path(path: Sequence[Any]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")[:80]


def _text(told: Any) -> str:
    return told[:400] if isinstance(told, str) else ""


def _place(change: Change) -> tuple[int, list[Any]]:
    return ORDER[change.action], _natural(change.address)


def _natural(text: str) -> list[Any]:
    """tf-2 before tf-10."""
    return [(1, int(part), "") if part.isdecimal() and len(part) < 19 else (0, 0, part) for part in NUMBERS.split(text)]
