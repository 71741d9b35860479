"""Reading a layout, and what a single member declares about its own slots, from a
configuration. Pure.
"""

import re
from collections.abc import Mapping
from typing import Any

from pools.config.layout import (
    DEFAULT_QUOTA,
    LAST_PORT,
    NODE,
    PROTOCOLS,
    TASKS,
    Layout,
    OwnSlots,
    Ports,
    node,
    plain,
    port_lanes,
    runs_of,
    slot_classes,
    tasks,
)
from pools.config.parsing import (
    Faults,
    field_path,
    kind_of,
    read_flag,
    read_integer,
    read_mapping,
    read_number,
    show_value,
    suggest_names,
)

MOST_SLOTS = 65536  # of one member
LANE = re.compile(r"[a-z][a-z0-9_-]{0,15}")
KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
LANE_RULE = "Up to 16 small letters, digits, dashes and underscores; a letter first."
KIND_RULE = "Up to 32 small letters, digits, dashes and underscores; a letter first."
RANGE = re.compile(r"\s*(\d{1,9})\s*-\s*(\d{1,9})\s*", re.ASCII)
PORT_FIELDS = ("ports", "protocols", "shared", "segment", "quota", "foreign")
FORMS = (
    'Write a number of slots, a list like [any, plan, plan], node, or {ports: "30000-30049", '
    "shared: true}."
)


def read_layout(value: Any, where: str, faults: Faults) -> Layout | None:
    """None: there was a fault, which is noted."""
    if isinstance(value, int) and not isinstance(value, bool):
        count = read_number(value, where, faults, 1, MOST_SLOTS)
        return None if count is None else plain(count)
    if value == NODE:
        return node()
    if isinstance(value, Mapping):
        return _read_ports(value, where, faults)
    if isinstance(value, list) and value:
        if len(value) > MOST_SLOTS:
            faults.add(where, f"{len(value)} slots are too many.", f"Use {MOST_SLOTS} at most.")
            return None
        if any(isinstance(item, Mapping) for item in value):
            return _read_classes(value, where, faults)
        names = _read_task_names(value, where, faults, tuple(TASKS))
        return None if names is None else tasks(names)
    if value is None or value == []:
        faults.add(where, "The layout is missing.", FORMS)
    else:
        faults.add(where, f"{show_value(value)} is not a layout.", FORMS)
    return None


def read_range(value: Any, where: str, faults: Faults) -> tuple[int, int] | None:
    found = RANGE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        faults.add(
            where,
            f"{show_value(value)} is not a range of ports.",
            'Write it like "30000-30049", in quotes.',
        )
        return None
    first, last = int(found[1]), int(found[2])
    if not 1 <= first <= LAST_PORT or not 1 <= last <= LAST_PORT:
        faults.add(
            where,
            f"{show_value(value)} leaves the ports that exist.",
            f"Stay within 1-{LAST_PORT}.",
        )
        return None
    if last <= first:
        faults.add(
            where,
            "The range ends before it goes on: its end must be above its start.",
            'Write it like "30000-30049".',
        )
        return None
    return first, last


def read_foreign(value: Any, where: str, faults: Faults) -> frozenset[int]:
    """Port numbers that others have: skipped, and counted against the quota."""
    if value is None:
        return frozenset()
    if not isinstance(value, list) or len(value) > LAST_PORT:
        faults.add(
            where,
            f"This is {kind_of(value)}; it must be a list of port numbers.",
            "Write it like [30001, 30007].",
        )
        return frozenset()
    numbers = [
        read_number(item, f"{where}[{i}]", faults, 1, LAST_PORT) for i, item in enumerate(value)
    ]
    return frozenset(n for n in numbers if n is not None)


def read_own_slots(
    member: Mapping[str, Any], where: str, layout: Layout, faults: Faults
) -> OwnSlots:
    """What a member has of its own: another number of slots, fewer ports, foreign listeners."""
    runs = _read_own_runs(member.get("slots"), field_path(where, "slots"), layout, faults)
    first = last = None
    if member.get("ports") is not None:
        first, last = _read_own_ports(
            member["ports"], field_path(where, "ports"), layout, faults
        ) or (
            None,
            None,
        )
    foreign: frozenset[int] = frozenset()
    if member.get("foreign") is not None:
        if layout.ports is None:
            faults.add(
                field_path(where, "foreign"),
                "The slots of this pool are no ports.",
                "Leave it out.",
            )
        else:
            foreign = read_foreign(member["foreign"], field_path(where, "foreign"), faults)
    return OwnSlots(runs=runs, first=first, last=last, foreign=foreign)


def _read_own_runs(
    value: Any, where: str, layout: Layout, faults: Faults
) -> tuple[tuple[str, int], ...] | None:
    if value is None:
        return None
    if layout.form == "plain":
        count = read_number(value, where, faults, 1, MOST_SLOTS)
        return None if count is None else ((layout.classes[0].lane, count),)
    if layout.form == "tasks":
        if not isinstance(value, list) or not value:
            faults.add(
                where,
                f"This is {kind_of(value)}; it must be a list of slot classes.",
                "Write it like [any, plan, plan].",
            )
            return None
        names = _read_task_names(value, where, faults, tuple(c.lane for c in layout.classes))
        return None if names is None else runs_of(names)
    way_out = (
        "Leave it out, or give the member ports of its own." if layout.ports else "Leave it out."
    )
    faults.add(where, "Members of this pool all have the same slots.", way_out)
    return None


def _read_own_ports(
    value: Any, where: str, layout: Layout, faults: Faults
) -> tuple[int, int] | None:
    if layout.ports is None:
        faults.add(where, "The slots of this pool are no ports.", "Leave it out.")
        return None
    found = read_range(value, where, faults)
    if found is None:
        return None
    first, last = found
    if first < layout.ports.first or last > layout.ports.last:
        inside = f"{layout.ports.first}-{layout.ports.last}"
        faults.add(where, f"{first}-{last} leaves the ports of the pool.", f"Stay within {inside}.")
        return None
    if (first - layout.ports.first) % layout.ports.segment:
        starts = f"Segments are {layout.ports.segment} long, from {layout.ports.first}."
        faults.add(where, f"{first} is not the start of a segment.", starts)
        return None
    if last - first + 1 < layout.ports.segment:
        faults.add(
            where, f"No segment of {layout.ports.segment} ports fits.", "Make the range longer."
        )
        return None
    return found


def _read_task_names(
    value: list[Any], where: str, faults: Faults, known: tuple[str, ...]
) -> list[str] | None:
    before = faults.count
    for i, name in enumerate(value):
        if not isinstance(name, str) or name not in known:
            faults.add(
                f"{where}[{i}]",
                f"{show_value(name)} is not a slot class here.",
                suggest_names(name, known),
            )
    return None if faults.count > before else list(value)


def _read_ports(value: Mapping[str, Any], where: str, faults: Faults) -> Layout | None:
    before = faults.count
    given = read_mapping(value, where, PORT_FIELDS, faults, required=("ports",))
    span = (
        read_range(given["ports"], field_path(where, "ports"), faults)
        if given.get("ports") is not None
        else None
    )
    protocols = _read_protocols(given, where, faults)
    segment = read_integer(given, where, "segment", faults, 1, LAST_PORT, 1)
    quota = read_integer(given, where, "quota", faults, 1, 2 * LAST_PORT, DEFAULT_QUOTA)
    foreign = read_foreign(given.get("foreign"), field_path(where, "foreign"), faults)
    if span is not None and segment > span[1] - span[0] + 1:
        length = span[1] - span[0] + 1
        faults.add(
            field_path(where, "segment"),
            f"A segment of {segment} does not fit into {length} ports.",
            f"Use {length} at most.",
        )
    if quota <= len(foreign):
        faults.add(
            field_path(where, "quota"),
            f"{len(foreign)} foreign listeners use up the quota of {quota}.",
            "Raise it.",
        )
    if span is None or faults.count > before:
        return None
    return port_lanes(Ports(span[0], span[1], segment, quota, foreign), protocols)


def _read_protocols(given: Mapping[str, Any], where: str, faults: Faults) -> list[str] | None:
    """None: shared, one listener a number serves every protocol."""
    is_shared = read_flag(given, where, "shared", faults)
    protocols = given.get("protocols")
    if is_shared and protocols is not None:
        faults.add(
            field_path(where, "protocols"),
            "Shared listeners serve every protocol.",
            "Leave out either shared or protocols.",
        )
    if protocols is None:
        if not is_shared:
            faults.add(
                field_path(where, "protocols"),
                "It is not said what the ports serve.",
                "Add protocols: [tcp, udp], or shared: true.",
            )
        return None
    if not isinstance(protocols, list) or not protocols:
        faults.add(
            field_path(where, "protocols"),
            f"This is {kind_of(protocols)}; it must be a list.",
            "Write it like [tcp, udp].",
        )
        return None
    for i, name in enumerate(protocols):
        if not isinstance(name, str) or name not in PROTOCOLS:
            faults.add(
                f"{where}.protocols[{i}]",
                f"{show_value(name)} is not a protocol here.",
                suggest_names(name, PROTOCOLS),
            )
        elif name in protocols[:i]:
            faults.add(f"{where}.protocols[{i}]", f"{name} is there twice.", "Name each once.")
    return [p for p in protocols if isinstance(p, str)]


def _read_classes(value: list[Any], where: str, faults: Faults) -> Layout | None:
    before = faults.count
    found: list[tuple[str, int, tuple[str, ...]]] = []
    for i, item in enumerate(value):
        place = f"{where}[{i}]"
        given = read_mapping(
            item, place, ("class", "count", "accepts"), faults, required=("class", "accepts")
        )
        if not given:
            continue
        lane = given.get("class")
        if lane is not None and (not isinstance(lane, str) or not LANE.fullmatch(lane)):
            faults.add(
                field_path(place, "class"),
                f"{show_value(lane)} is not a name for a class.",
                LANE_RULE,
            )
        elif lane in [f[0] for f in found]:
            faults.add(field_path(place, "class"), f"{lane} is there twice.", "Add up its counts.")
        count = read_integer(given, place, "count", faults, 1, MOST_SLOTS, 1)
        found.append(
            (
                str(lane),
                count,
                _read_kinds(given.get("accepts"), field_path(place, "accepts"), faults),
            )
        )
    total = sum(count for _, count, _ in found)
    if total > MOST_SLOTS:
        faults.add(
            where, f"{total} slots are too many for one member.", f"Use {MOST_SLOTS} at most."
        )
    return None if faults.count > before else slot_classes(found)


def _read_kinds(value: Any, where: str, faults: Faults) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not value:
        faults.add(
            where,
            f"This is {kind_of(value)}; it must be a list of kinds of claims.",
            "Write it like [train].",
        )
        return ()
    for i, kind in enumerate(value):
        if not isinstance(kind, str) or not KIND.fullmatch(kind):
            faults.add(f"{where}[{i}]", f"{show_value(kind)} is not a name for a kind.", KIND_RULE)
    return tuple(dict.fromkeys(k for k in value if isinstance(k, str)))
