"""Decisions about pools. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FixedField:
    """A field that may not change now."""

    field: str
    reason: str
    way_out: str


@dataclass(frozen=True, slots=True)
class FieldChange:
    field: str
    before: object
    after: object


# The slots follow from these fields, and claims hold slots.
FIXED_WITH_MEMBERS = {
    "provider": "another pool under the other provider",
    "slots": "another pool with the new layout",
}
# A free port is closed or opened; another check refuses a port that a claim holds.
MAY_CHANGE = ("slots.foreign",)
PORT_WORDS = {
    "ports": "the port range",
    "segment": "the length of segments",
    "quota": "the quota of listeners",
    "tcp": "the number of pre-created listeners",
    "udp": "the number of pre-created listeners",
}


def list_fixed(
    before: Mapping[str, object],
    after: Mapping[str, object],
    members: int,
    free: Collection[str] = (),
) -> list[FixedField]:
    """Changes of a stored configuration that would move existing claims, while the pool has
    members.

    `free`: options of the provider that may change, because members follow them or are renewed.
    """
    if not members:
        return []
    there = f"{members} member{'s are' if members > 1 else ' is'} there"
    found = []
    for name, instead in FIXED_WITH_MEMBERS.items():
        for change in diff_values(before.get(name), after.get(name), name):
            option = change.field.removeprefix("provider.")
            if change.field in MAY_CHANGE or (name == "provider" and is_one_of(option, free)):
                continue
            last = change.field.rpartition(".")[2]
            what = PORT_WORDS.get(last, change.field) if name == "slots" else change.field
            found.append(
                FixedField(
                    change.field,
                    f"{what[:1].upper()}{what[1:]} is fixed while {there}: changing it would move "
                    "existing claims.",
                    f"Remove the members first, or make {instead} and let the claims move over as "
                    "they end.",
                )
            )
    return found


def is_one_of(field: str, options: Iterable[str]) -> bool:
    """Whether a field is one of these options, or a part of one."""
    return any(field == option or field.startswith(f"{option}.") for option in options)


def diff_values(before: object, after: object, where: str = "") -> list[FieldChange]:
    """The changes between two values; mappings are compared field by field."""
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
    """Whether new claims may take the slots of a member: `slot.is_open` of each slot that is not
    retired (I8).
    """
    return (
        pool_state == "active"
        and not is_paused
        and member_state == "ready"
        and not is_cordoned
        and not is_leaving
    )
