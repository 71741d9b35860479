"""Counts the changes of a plan from its JSON."""

from __future__ import annotations

from ..common.json_types import Json, as_dict, as_list

KINDS = ("add", "change", "destroy", "replace")


def summarize_plan(plan: Json) -> dict[str, int]:
    """Resources by kind of change. A replacement is its own kind."""
    counts = dict.fromkeys(KINDS, 0)
    for entry in as_list(plan.get("resource_changes")):
        actions = as_list(as_dict(as_dict(entry).get("change")).get("actions"))
        kind = name_actions(actions)
        if kind:
            counts[kind] += 1
    return counts


def name_actions(actions: list[object]) -> str:
    found = set(map(str, actions))
    if {"create", "delete"} <= found or {"create", "forget"} <= found:
        return "replace"
    if "create" in found:
        return "add"
    if "delete" in found or "forget" in found:
        return "destroy"
    return "change" if "update" in found else ""


def count_drift(plan: Json) -> int:
    entries = map(as_dict, as_list(plan.get("resource_drift")))
    return sum(has_action(entry.get("change")) for entry in entries)


def has_changes(plan: Json) -> bool:
    """Whether resources or outputs change."""
    outputs = as_dict(plan.get("output_changes")).values()
    return any(summarize_plan(plan).values()) or any(map(has_action, outputs))


def has_action(change: object) -> bool:
    return any(action != "no-op" for action in as_list(as_dict(change).get("actions")))
