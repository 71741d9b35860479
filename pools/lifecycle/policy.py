"""Decisions about pools. Pure: plain values in, a verdict with its reason out."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FixedField:
    """A field that may not change now."""

    field: str
    reason: str
    way_out: str


@dataclass(frozen=True, slots=True)
class FieldChange:
    field: str
    before: Any
    after: Any


# What a slot is follows from these, and claims hold slots.
FIXED_WITH_MEMBERS = {
    "provider": "another pool under the other provider",
    "slots": "another pool with the new layout",
}
# A free number is withdrawn or offered again; one that is held refuses by itself.
MAY_CHANGE = ("slots.foreign",)
PORT_WORDS = {
    "ports": "the port range",
    "segment": "the length of segments",
    "quota": "the quota of listeners",
}


def list_fixed(
    before: Mapping[str, Any], after: Mapping[str, Any], members: int, rolled: Collection[str] = ()
) -> list[FixedField]:
    """Changes of a stored configuration that would move existing claims, while the pool has
    members. Nothing moves without a word.

    `rolled`: options of the provider that a member is made from. They may change: who is there is
    renewed once it is idle.
    """
    if not members:
        return []
    there = f"{members} member{'s are' if members > 1 else ' is'} there"
    found = []
    for name, instead in FIXED_WITH_MEMBERS.items():
        for change in diff_values(before.get(name), after.get(name), name):
            option = (
                change.field.removeprefix("provider.").partition(".")[0]
                if name == "provider"
                else ""
            )
            if change.field in MAY_CHANGE or option in rolled:
                continue
            last = change.field.rpartition(".")[2]
            what = PORT_WORDS.get(last, change.field) if name == "slots" else change.field
            found.append(
                FixedField(
                    change.field,
                    f"{what} is fixed while {there}: changing it would move existing claims.",
                    (
                        f"Remove the members first, or make {instead} and let the claims move "
                        "over as they end."
                    ),
                )
            )
    return found


def diff_values(before: Any, after: Any, where: str = "") -> list[FieldChange]:
    """Field by field, down to what is no mapping. Equal values are no change, however they
    were written.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        found = []
        for name in [*before, *(n for n in after if n not in before)]:
            place = f"{where}.{name}" if where else str(name)
            found += diff_values(before.get(name), after.get(name), place)
        return found
    return [] if before == after else [FieldChange(where, before, after)]


def offers_slots(
    *, pool_state: str, is_paused: bool, member_state: str, is_cordoned: bool, is_leaving: bool
) -> bool:
    """Whether the slots of a member are handed out: what `slot.is_open` says of every slot that
    is not retired (I8).
    """
    return (
        pool_state == "active"
        and not is_paused
        and member_state == "ready"
        and not is_cordoned
        and not is_leaving
    )
