"""How much a plan changes, counted from its JSON."""

from __future__ import annotations

from typing import Any

from .redaction import as_dict, as_list

KINDS = ("add", "change", "destroy", "replace")


def summarize_plan(plan: dict[str, Any]) -> dict[str, int]:
    """A replacement counts as such, not as one more to add and one more to destroy."""
    counts = dict.fromkeys(KINDS, 0)
    for entry in as_list(plan.get("resource_changes")):
        actions = as_list(as_dict(as_dict(entry).get("change")).get("actions"))
        kind = name_actions(actions)
        if kind:
            counts[kind] += 1
    return counts


def name_actions(actions: list[Any]) -> str:
    found = set(map(str, actions))
    if {"create", "delete"} <= found or {"create", "forget"} <= found:
        return "replace"
    if "create" in found:
        return "add"
    if "delete" in found or "forget" in found:
        return "destroy"
    return "change" if "update" in found else ""


def count_drift(plan: dict[str, Any]) -> int:
    return sum(1 for entry in as_list(plan.get("resource_drift")) if name_drift(as_dict(entry)))


def name_drift(entry: dict[str, Any]) -> bool:
    return any(action != "no-op" for action in as_list(as_dict(entry.get("change")).get("actions")))


def changes_anything(plan: dict[str, Any]) -> bool:
    """Also true where only outputs change."""
    if any(summarize_plan(plan).values()):
        return True
    outputs = as_dict(plan.get("output_changes")).values()
    return any(
        action != "no-op"
        for output in outputs
        for action in as_list(as_dict(output).get("actions"))
    )
