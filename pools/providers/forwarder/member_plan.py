"""The plan of a member's forwarder, from the rows of the member; and the state of its slots, from
the forwarder's answer. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from pools.config.layout import segments_of
from pools.providers.base import MemberSnapshot, PoolSnapshot, SeenSlot, SlotSnapshot
from pools.providers.forwarder.options import forward_options
from pools.providers.forwarder.process.plan import (
    LANES,
    ForwardPlan,
    InvalidPlan,
    Lane,
    ListenerPlan,
    Place,
    read_target,
)

SERVED = ("tcp", "udp", "tcp_udp")  # of a pair, each lane serves its own protocol
Answer = Mapping[str, Any]


def plan_member(pool: PoolSnapshot, member: MemberSnapshot, bind: Sequence[str]) -> ForwardPlan:
    """All listeners of a member. A slot whose use is not known yet keeps what it has."""
    listeners, kept, released, ended = [], {}, {}, set()
    for slot in member.slots:
        place = (slot.lane, slot.number)
        if slot.lane not in LANES:
            continue
        if slot.state in ("held", "reserved"):
            if slot.use is None:
                kept[place] = slot.generation
            else:
                listeners.append(_plan_slot(pool, slot))
            continue
        released[place] = slot.generation
        if slot.is_overdue:
            ended.add(place)
        if pool.is_precreated and slot.state != "retired" and member.state != "deleting":
            listeners.append(
                ListenerPlan(
                    lane=slot.lane,
                    number=slot.number,
                    count=pool.segment,
                    generation=slot.generation,
                )
            )
    return ForwardPlan(
        incarnation=member.incarnation,
        bind=tuple(bind),
        options=forward_options(pool.options),
        listeners=tuple(listeners),
        kept=kept,
        released=released,
        ended=frozenset(ended),
    )


def _plan_slot(pool: PoolSnapshot, slot: SlotSnapshot) -> ListenerPlan:
    assert slot.use is not None
    target, fault = None, ""
    if slot.use.protocol not in SERVED:
        fault = (
            f"A forwarder does not serve {slot.use.protocol}, because it ends no TLS. Claim tcp or "
            "udp, and let the target end TLS."
        )
    elif slot.use.target is not None:
        try:
            target = read_target(slot.use.target.ip, slot.use.target.port, pool.segment)
        except InvalidPlan as error:
            fault = f"The target cannot be used: {error}."
    return ListenerPlan(
        lane=cast(Lane, slot.lane),
        number=slot.number,
        count=pool.segment,
        target=target,
        generation=slot.generation,
        fault=fault,
    )


def list_clean(answer: Answer, member: MemberSnapshot) -> frozenset[int]:
    """Ids of draining slots at whose ports no connection of the released claim is left."""
    busy = {_place(each) for each in answer["leaving"]}
    busy |= {
        _place(each)
        for each in answer["listeners"]
        if each.get("leaving") or each.get("target") is not None
    }
    return frozenset(
        slot.id
        for slot in member.slots
        if slot.state == "draining" and (slot.lane, slot.number) not in busy
    )


def describe_slots(name: str, answer: Answer) -> list[SeenSlot]:
    """The listeners of a forwarder, and those that still drain."""
    found = {_place(each): _describe(name, each) for each in answer["listeners"]}
    for each in answer["leaving"]:
        attributes = _identity(name, each) | {"health": "draining"}
        found.setdefault(_place(each), SeenSlot(each["lane"], each["number"], attributes))
    return list(found.values())


def add_foreign(
    slots: Iterable[SeenSlot],
    pool: PoolSnapshot,
    member: MemberSnapshot,
    busy: Mapping[tuple[str, int], str],
) -> tuple[SeenSlot, ...]:
    """The slots, and those of the member's range whose ports other programs use. `busy`: lane and
    port with the address, of all programs.
    """
    found = {(slot.lane, slot.number): slot for slot in slots}
    ports = member.ports or pool.ports
    numbers = segments_of(*ports, pool.segment) if ports else range(0)
    for (lane, port), address in sorted(busy.items()):
        if not numbers or not numbers[0] <= port < numbers[-1] + pool.segment:
            continue
        number = port - (port - numbers[0]) % pool.segment
        problem = f"Another program uses {lane} {address}."
        found.setdefault((lane, number), SeenSlot(lane, number, {"problem": problem}, True))
    return tuple(found[place] for place in sorted(found))


def _describe(name: str, each: Answer) -> SeenSlot:
    attributes = _identity(name, each)
    for key in ("target", "health", "problem"):
        if each.get(key):
            attributes[key] = each[key]
    return SeenSlot(each["lane"], each["number"], attributes, bool(each.get("is_taken")))


def _identity(name: str, each: Answer) -> dict[str, object]:
    found: dict[str, object] = {
        "id": f"{name}/{each['lane']}/{each['number']}",
        "protocol": each["lane"],
    }
    return found | ({"end": each["end"]} if each["end"] != each["number"] else {})


def _place(each: Answer) -> Place:
    return each["lane"], each["number"]
