"""The slots of a pool's members (`slots:`), and the slots, ports and foreign listeners of a single
member. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pools.config.fields import Fields, Object, Option, option
from pools.config.layout import (
    DEFAULT_QUOTA,
    LAST_PORT,
    NODE,
    PROTOCOLS,
    TASKS,
    Layout,
    OwnSlots,
    Ports,
    as_config,
    node,
    plain,
    port_lanes,
    runs_of,
    segments_of,
    slot_classes,
    tasks,
)
from pools.config.parsing import (
    Choice,
    Described,
    Faults,
    Flag,
    Integer,
    ListOf,
    Pattern,
    Schema,
    ValueType,
    field_path,
    show_value,
)

MOST_SLOTS = 65536  # of one member
LANE = re.compile(r"[a-z][a-z0-9_-]{0,15}")
KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
LANE_RULE = "Up to 16 small letters, digits, dashes and underscores; a letter first."
KIND_RULE = "Up to 32 small letters, digits, dashes and underscores; a letter first."
RANGE = re.compile(r"\s*(\d{1,9})\s*-\s*(\d{1,9})\s*", re.ASCII)
FORMS = (
    'Write a number of slots, a list like [any, plan, plan], node, or {ports: "30000-30049", '
    "shared: true}."
)


class PortRange(ValueType[tuple[int, int]]):
    def read(self, value: object, where: str, faults: Faults) -> tuple[int, int] | None:
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
        elif last <= first:
            faults.add(
                where,
                "The end of the range is not above its start.",
                'Write it like "30000-30049".',
            )
        else:
            return first, last
        return None

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{RANGE.pattern}$"}

    def write(self, value: tuple[int, int]) -> object:
        return f"{value[0]}-{value[1]}"

    @property
    def hint(self) -> str:
        return 'Like "30000-30049".'


@dataclass(frozen=True, slots=True)
class Precreated:
    """Numbers of listeners that exist before a claim holds them."""

    tcp: int = option(Integer(0, LAST_PORT), 0, "Listeners of TCP.")
    udp: int = option(Integer(0, LAST_PORT), 0, "Listeners of UDP.")

    def counts(self) -> tuple[tuple[str, int], ...]:
        return tuple((lane, n) for lane, n in (("tcp", self.tcp), ("udp", self.udp)) if n)


COUNT = Integer(1, MOST_SLOTS)
FOREIGN = ListOf(Integer(1, LAST_PORT), "port numbers", LAST_PORT, "[30001, 30007]")
PORT_FIELDS = Fields(
    {
        "ports": Option(PortRange(), "First and last port.", is_required=True),
        "protocols": Option(
            ListOf(
                Choice(tuple(PROTOCOLS), "a protocol here"), "protocols", 2, "[tcp, udp]", least=1
            ),
            "One listener per number and protocol.",
        ),
        "shared": Option(Flag(), "One listener per number serves every protocol."),
        "segment": Option(Integer(1, LAST_PORT), "Ports allocated together.", 1),
        "quota": Option(Integer(1, 2 * LAST_PORT), "Maximum listeners per member.", DEFAULT_QUOTA),
        "precreate": Option(
            Object(Precreated),
            "Listeners that exist before a claim holds them. Other protocols are not served.",
        ),
        "foreign": Option(
            FOREIGN, "Ports that others use on every member. They count against the quota."
        ),
    }
)
CLASS_FIELDS = Fields(
    {
        "class": Option(
            Pattern(LANE, LANE_RULE, "a name for a class"), "Name of the class.", is_required=True
        ),
        "count": Option(COUNT, "Slots of the class.", 1),
        "accepts": Option(
            ListOf(
                Pattern(KIND, KIND_RULE, "a name for a kind"),
                "kinds of claims",
                MOST_SLOTS,
                "[train]",
                least=1,
            ),
            "Kinds of claims that the slots serve.",
            is_required=True,
        ),
    }
)
OWN_FIELDS = Fields(
    {
        "slots": Option(
            Described(
                {
                    "anyOf": [
                        COUNT.schema(),
                        {"type": "array", "minItems": 1, "items": {"type": "string"}},
                    ]
                }
            ),
            "Slots of this member, if it has others than the pool's members.",
        ),
        "ports": Option(
            Described(PortRange().schema()), "Ports of this member, within those of the pool."
        ),
        "foreign": Option(Described(FOREIGN.schema()), "Ports that others use on this member."),
    }
)


class LayoutType(ValueType[Layout]):
    def read(self, value: object, where: str, faults: Faults) -> Layout | None:
        if isinstance(value, int) and not isinstance(value, bool):
            count = COUNT.read(value, where, faults)
            return None if count is None else plain(count)
        if value == NODE:
            return node()
        if isinstance(value, Mapping):
            return _read_ports(value, where, faults)
        if isinstance(value, list) and value:
            if any(isinstance(item, Mapping) for item in value):
                return _read_classes(value, where, faults)
            before = faults.count
            names = _task_names(TASKS).read(value, where, faults)
            return None if names is None or faults.count > before else tasks(names)
        if value is None or value == []:
            faults.add(where, "The layout is missing.", FORMS)
        else:
            faults.add(where, f"{show_value(value)} is not a layout.", FORMS)
        return None

    def write(self, value: Layout) -> object:
        return as_config(value)

    def schema(self) -> Schema:
        classes = {"type": "array", "minItems": 1, "items": CLASS_FIELDS.schema()}
        whole = {"type": "string", "enum": [NODE]}
        forms = [COUNT.schema(), whole, _task_names(TASKS).schema(), classes, PORT_FIELDS.schema()]
        return {"anyOf": forms}


def _task_names(known: Mapping[str, object] | tuple[str, ...]) -> ListOf[str]:
    item = Choice(tuple(known), "a slot class here")
    return ListOf(item, "slot classes", MOST_SLOTS, "[any, plan, plan]", least=1)


def _read_ports(value: Mapping[str, object], where: str, faults: Faults) -> Layout | None:
    before = faults.count
    given = PORT_FIELDS.read(value, where, faults)
    segment, quota = given.get("segment", 1), given.get("quota", DEFAULT_QUOTA)
    foreign = frozenset(given.get("foreign", ()))
    protocols: tuple[str, ...] | None = given.get("protocols")
    place, is_shared = field_path(where, "protocols"), bool(given.get("shared"))
    if is_shared and protocols is not None:
        faults.add(
            place,
            "Shared listeners serve every protocol.",
            "Leave out either shared or protocols.",
        )
    elif value.get("protocols") is None and not is_shared and value.get("precreate") is None:
        faults.add(
            place,
            "The protocols of the ports are missing.",
            "Add protocols: [tcp, udp], or shared: true.",
        )
    for i, name in enumerate(protocols or ()):
        if name in (protocols or ())[:i]:
            faults.add(f"{place}[{i}]", f"{name} is there twice.", "Name each once.")
    if "ports" in given:
        length = given["ports"][1] - given["ports"][0] + 1
        if segment > length:
            faults.add(
                field_path(where, "segment"),
                f"A segment of {segment} does not fit into {length} ports.",
                f"Use {length} at most.",
            )
    precreate: Precreated | None = given.get("precreate")
    if precreate is not None and "ports" in given:
        first, last = given["ports"]
        room = len(segments_of(first, last, segment))
        _check_precreate(
            precreate, protocols, room, quota, is_shared, field_path(where, "precreate"), faults
        )
    if quota <= len(foreign):
        faults.add(
            field_path(where, "quota"),
            f"{len(foreign)} foreign listeners use up the quota of {quota}.",
            "Raise it.",
        )
    if faults.count > before:
        return None
    counts = () if precreate is None else precreate.counts()
    first, last = given["ports"]
    ports = Ports(first, last, segment, quota, foreign, counts, bool(counts) and is_shared)
    return port_lanes(ports, protocols)


def _check_precreate(
    precreate: Precreated,
    protocols: tuple[str, ...] | None,
    room: int,
    quota: int,
    is_shared: bool,
    where: str,
    faults: Faults,
) -> None:
    """Every listener that is created in advance needs a number and a place in the quota."""
    counts = precreate.counts()
    if not counts:
        faults.add(where, "No listener is created in advance.", "Name a number, or leave it out.")
    for name, _ in counts:
        if protocols is not None and name not in protocols:
            fault = f"{name} is not one of the protocols of these ports."
            faults.add(field_path(where, name), fault, "Leave it out, or add it to protocols.")
    total = sum(count for _, count in counts)
    if total > quota:
        fault = f"{total} listeners are more than the quota of {quota}."
        faults.add(where, fault, "Lower the numbers, or raise the quota.")
    needed = total if is_shared else max((count for _, count in counts), default=0)
    if needed > room:
        each = " of all protocols together" if is_shared and len(counts) > 1 else ""
        fault = f"{needed} listeners{each} do not fit into {room} numbers."
        faults.add(where, fault, "Lower the numbers, or make the range longer.")


def _read_classes(value: list[object], where: str, faults: Faults) -> Layout | None:
    before = faults.count
    found: list[tuple[str, int, tuple[str, ...]]] = []
    for i, item in enumerate(value):
        place = f"{where}[{i}]"
        given = CLASS_FIELDS.read(item, place, faults)
        lane = given.get("class", "")
        if lane and lane in [f[0] for f in found]:
            faults.add(field_path(place, "class"), f"{lane} is there twice.", "Add up its counts.")
        accepts = tuple(dict.fromkeys(given.get("accepts", ())))
        found.append((lane, given.get("count", 1), accepts))
    total = sum(count for _, count, _ in found)
    if total > MOST_SLOTS:
        faults.add(
            where, f"{total} slots are too many for one member.", f"Use {MOST_SLOTS} at most."
        )
    return None if faults.count > before else slot_classes(found)


def read_own_slots(
    member: Mapping[str, object], where: str, layout: Layout, faults: Faults
) -> OwnSlots:
    """The slots, ports and foreign listeners that a member declares for itself."""
    runs = _read_own_runs(member.get("slots"), field_path(where, "slots"), layout, faults)
    first = last = None
    foreign: tuple[int, ...] = ()
    for name in ("ports", "foreign"):
        value, place = member.get(name), field_path(where, name)
        if value is None:
            continue
        if layout.ports is None:
            faults.add(place, "The slots of this pool are no ports.", "Leave it out.")
        elif name == "ports":
            first, last = _read_own_ports(value, place, layout.ports, faults) or (None, None)
        else:
            foreign = FOREIGN.read(value, place, faults) or ()
    return OwnSlots(runs=runs, first=first, last=last, foreign=frozenset(foreign))


def _read_own_runs(
    value: object, where: str, layout: Layout, faults: Faults
) -> tuple[tuple[str, int], ...] | None:
    if value is None:
        return None
    if layout.form == "plain":
        count = COUNT.read(value, where, faults)
        return None if count is None else ((layout.classes[0].lane, count),)
    if layout.form == "tasks":
        names = _task_names(tuple(c.lane for c in layout.classes)).read(value, where, faults)
        return None if names is None else runs_of(names)
    way_out = (
        "Leave it out, or give the member ports of its own." if layout.ports else "Leave it out."
    )
    faults.add(where, "Members of this pool all have the same slots.", way_out)
    return None


def _read_own_ports(
    value: object, where: str, ports: Ports, faults: Faults
) -> tuple[int, int] | None:
    found = PortRange().read(value, where, faults)
    if found is None:
        return None
    first, last = found
    if first < ports.first or last > ports.last:
        inside = f"{ports.first}-{ports.last}"
        faults.add(where, f"{first}-{last} leaves the ports of the pool.", f"Stay within {inside}.")
    elif (first - ports.first) % ports.segment:
        starts = f"Segments are {ports.segment} long, from {ports.first}."
        faults.add(where, f"{first} is not the start of a segment.", starts)
    elif last - first + 1 < ports.segment:
        faults.add(where, f"No segment of {ports.segment} ports fits.", "Make the range longer.")
    else:
        return found
    return None
