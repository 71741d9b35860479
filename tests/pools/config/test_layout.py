"""Layouts: which slots a member offers and for which claims, as tables and as properties."""

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pools.config.layout import (
    Layout,
    OwnSlots,
    Ports,
    as_config,
    default_kind,
    kinds,
    lanes,
    lanes_for,
    node,
    numbers_for,
    plain,
    port_lanes,
    segments_of,
    slot_classes,
    slots_of,
    tasks,
)
from pools.config.layout_spec import LayoutType, read_own_slots
from pools.config.parsing import Faults
from pools.config.placement import ranks_of
from pools.config.spec import OptionReader, read_pool

APC = tasks(["any", "plan", "plan"])
PORTS = Ports(30000, 30009)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (plain(3), [("slot", 0), ("slot", 1), ("slot", 2)]),
        (APC, [("any", 0), ("plan", 1), ("plan", 2)]),
        (
            tasks(["any", "plan", "plan", "plan"]),
            [("any", 0), ("plan", 1), ("plan", 2), ("plan", 3)],
        ),
        (node(), [("node", 0)]),
        (
            slot_classes([("gpu", 1, ("train",)), ("cpu", 2, ("train", "build"))]),
            [("gpu", 0), ("cpu", 1), ("cpu", 2)],
        ),
        (
            port_lanes(Ports(30000, 30002), None),
            [("port", 30000), ("port", 30001), ("port", 30002)],
        ),
        (port_lanes(Ports(1, 2), ["tcp", "udp"]), [("tcp", 1), ("udp", 1), ("tcp", 2), ("udp", 2)]),
        (port_lanes(Ports(30000, 30009, segment=4), None), [("port", 30000), ("port", 30004)]),
        (port_lanes(Ports(30000, 30009, quota=2), None), [("port", 30000), ("port", 30001)]),
        (port_lanes(Ports(1, 9, quota=3), ["tcp", "udp"]), [("tcp", 1), ("udp", 1), ("tcp", 2)]),
        (
            port_lanes(Ports(1, 9, quota=3, foreign=frozenset({1})), None),
            [("port", 2), ("port", 3)],
        ),
        (
            port_lanes(Ports(1, 9, segment=3, foreign=frozenset({5})), None),
            [("port", 1), ("port", 7)],
        ),
        (port_lanes(Ports(1, 9, quota=3, foreign=frozenset({80, 443})), None), [("port", 1)]),
        (
            port_lanes(Ports(1, 9, precreated=(("tcp", 2), ("udp", 1))), None),
            [("tcp", 1), ("udp", 1), ("tcp", 2)],
        ),
        (
            port_lanes(Ports(1, 9, precreated=(("tcp", 2), ("udp", 1)), is_shared=True), None),
            [("tcp", 1), ("tcp", 2), ("udp", 3)],
        ),
        (
            port_lanes(
                Ports(1, 9, foreign=frozenset({2}), precreated=(("tcp", 2),), is_shared=True), None
            ),
            [("tcp", 1), ("tcp", 3)],
        ),
    ],
)
def test_layout_gives_the_slots_of_a_member(
    layout: Layout, expected: list[tuple[str, int]]
) -> None:
    assert slots_of(layout) == expected


@pytest.mark.parametrize(
    ("layout", "own", "expected"),
    [
        (plain(3), OwnSlots(runs=(("slot", 1),)), [("slot", 0)]),
        (APC, OwnSlots(runs=(("any", 2),)), [("any", 0), ("any", 1)]),
        (
            port_lanes(PORTS, None),
            OwnSlots(first=30008, last=30009),
            [("port", 30008), ("port", 30009)],
        ),
        (
            port_lanes(Ports(1, 4), None),
            OwnSlots(foreign=frozenset({1, 3})),
            [("port", 2), ("port", 4)],
        ),
    ],
)
def test_member_overrides_change_its_slots(
    layout: Layout, own: OwnSlots, expected: list[tuple[str, int]]
) -> None:
    assert slots_of(layout, own) == expected


@pytest.mark.parametrize(
    ("layout", "kind", "expected"),
    [
        (APC, "plan", ["plan", "any"]),
        (APC, "plan_and_apply", ["any"]),
        (APC, "train", []),
        (tasks(["plan"]), "plan_and_apply", []),
        (plain(3), "slot", ["slot"]),
        (node(), "node", ["node"]),
        (port_lanes(PORTS, None), "tcp", ["port"]),
        (port_lanes(PORTS, None), "tcpudp", ["port"]),
        (port_lanes(PORTS, ["tcp", "udp"]), "quic", ["udp"]),
        (port_lanes(PORTS, ["tcp", "udp"]), "tcp_ssl", ["tcp"]),
        (port_lanes(PORTS, ["tcp"]), "udp", []),
        (
            slot_classes([("all", 1, ("a", "b", "c")), ("one", 1, ("a",)), ("two", 1, ("b", "a"))]),
            "a",
            ["one", "two", "all"],
        ),
    ],
)
def test_most_specific_lane_is_tried_first(layout: Layout, kind: str, expected: list[str]) -> None:
    assert lanes_for(layout, kind) == expected


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (plain(3), "slot"),
        (node(), "node"),
        (APC, None),
        (port_lanes(PORTS, None), "port"),
        (port_lanes(PORTS, ["udp"]), "udp"),
        (port_lanes(PORTS, ["tcp", "udp"]), None),
        (slot_classes([("gpu", 1, ("train",))]), "train"),
        (slot_classes([("a", 1, ("x",)), ("b", 1, ("y",))]), None),
    ],
)
def test_layout_decides_the_default_kind_of_a_claim(layout: Layout, expected: str | None) -> None:
    assert default_kind(layout) == expected


def test_shipped_layouts_offer_one_plan_and_apply_per_member() -> None:
    for names in (["any", "plan", "plan"], ["any", "plan", "plan", "plan"]):
        assert sum(map(len, numbers_for(tasks(names), "plan_and_apply").values())) == 1
        assert sum(map(len, numbers_for(tasks(names), "plan").values())) == len(names)


def test_segments_end_inside_the_range_and_never_wrap() -> None:
    """A6: 30000.., length 1001: exactly 35 fit."""
    segments = segments_of(30000, 65535, 1001)
    assert len(segments) == 35
    assert segments[-1] + 1001 - 1 <= 65535 < segments[-1] + 2 * 1001 - 1
    layout = port_lanes(Ports(30000, 65535, segment=1001), None)
    assert len(slots_of(layout)) == 35
    assert list(segments_of(65535, 65535, 1)) == [65535]
    assert list(segments_of(1, 10, 11)) == []


def test_last_port_is_65535() -> None:
    """A range may end there, and no slot or segment goes beyond it."""
    last = port_lanes(Ports(65533, 65535), None)
    assert slots_of(last) == [("port", 65533), ("port", 65534), ("port", 65535)]
    pairs = port_lanes(Ports(65532, 65535, segment=2), None)
    assert slots_of(pairs) == [("port", 65532), ("port", 65534)]
    assert slots_of(port_lanes(Ports(65534, 65535, segment=3), None)) == []
    for ports in ("65530-65536", "0-10"):
        faults = Faults()
        assert LayoutType().read({"ports": ports, "shared": True}, "slots", faults) is None
        assert [fault.field for fault in faults.found] == ["slots.ports"]


def test_foreign_listeners_that_are_seen_leave_less_room() -> None:
    layout = port_lanes(Ports(1, 9, quota=3), None)
    assert slots_of(layout, seen=[("port", 1)]) == [("port", 2), ("port", 3)]
    assert slots_of(layout, seen=[("port", 80)]) == [("port", 1), ("port", 2)]
    occupied = [("port", 2), ("port", 3)]
    assert slots_of(layout, seen=[("port", 80)], occupied=occupied) == occupied
    assert slots_of(layout, seen=[("port", 3)], occupied=occupied) == [("port", 1), *occupied], (
        "the quota counts an occupied place once"
    )
    segments = port_lanes(Ports(1, 9, segment=3), ["tcp", "udp"])
    assert ("tcp", 4) not in slots_of(segments, seen=[("tcp", 6)])
    assert ("udp", 4) in slots_of(segments, seen=[("tcp", 6)])
    advance = port_lanes(Ports(1, 9, precreated=(("tcp", 2), ("udp", 2))), None)
    assert slots_of(advance, seen=[("tcp", 1)]) == [("udp", 1), ("tcp", 2), ("udp", 2), ("tcp", 3)]


@pytest.mark.parametrize(
    ("layout", "field"),
    [
        ({"precreate": {}}, "slots.precreate"),
        ({"precreate": {"tcp": 11}}, "slots.precreate"),
        ({"precreate": {"tcp": 6, "udp": 5}, "shared": True}, "slots.precreate"),
        ({"precreate": {"tcp": 9}, "quota": 8}, "slots.precreate"),
        ({"precreate": {"udp": 1}, "protocols": ["tcp"]}, "slots.precreate.udp"),
        ({"precreate": {"sctp": 1}}, "slots.precreate.sctp"),
        ({"precreate": {"tcp": -1}}, "slots.precreate.tcp"),
    ],
)
def test_precreated_listeners_without_room_are_a_fault(layout: Any, field: str) -> None:
    faults = Faults()
    assert LayoutType().read({"ports": "30000-30009", **layout}, "slots", faults) is None
    assert [fault.field for fault in faults.found] == [field]


def test_provider_refuses_parts_of_a_layout_at_their_fields() -> None:
    def refuse_segments(layout: Layout, faults: Faults) -> None:
        if layout.ports is not None and layout.ports.segment > 1:
            faults.add("slots.segment", "Its listeners have one port.", "Leave it out.")

    readers = {"lb": OptionReader(check_layout=refuse_segments)}
    config = {"name": "lab", "provider": "lb", "slots": {"ports": "1-9", "shared": True}}
    assert read_pool(config, readers)[1] == []
    config["slots"] = {"ports": "1-9", "shared": True, "segment": 3}
    assert [fault.field for fault in read_pool(config, readers)[1]] == ["slots.segment"]


layouts = st.one_of(
    st.integers(1, 50).map(plain),
    st.lists(st.sampled_from(["any", "plan"]), min_size=1, max_size=12).map(tasks),
    st.just(node()),
    st.builds(
        port_lanes,
        st.builds(
            lambda first, length, segment, quota, foreign: Ports(
                first,
                min(first + length, 65535),
                min(segment, length),
                quota + len(foreign),
                foreign,
            ),
            st.integers(1, 65000),
            st.integers(1, 400),
            st.integers(1, 50),
            st.integers(1, 500),
            st.frozensets(st.integers(1, 65535), max_size=8),
        ),
        st.sampled_from([None, ["tcp"], ["udp", "tcp"]]),
    ),
    st.builds(
        lambda tcp, udp, is_shared: port_lanes(
            Ports(
                30000,
                30999,
                quota=100,
                precreated=tuple((lane, n) for lane, n in (("tcp", tcp), ("udp", udp)) if n),
                is_shared=is_shared,
            ),
            None,
        ),
        st.integers(1, 50),
        st.integers(0, 50),
        st.booleans(),
    ),
)


@given(layouts)
def test_slots_of_any_layout_are_unique_and_have_known_lanes(layout: Layout) -> None:
    offered = slots_of(layout)
    assert len(offered) == len(set(offered))
    assert {lane for lane, _ in offered} <= set(lanes(layout))
    for kind in kinds(layout):
        assert lanes_for(layout, kind)


@given(layouts)
def test_ports_stay_in_range_skip_foreign_ports_and_keep_the_quota(layout: Layout) -> None:
    if layout.ports is None:
        return
    ports = layout.ports
    offered = slots_of(layout)
    taken = [n for lane, first in offered for n in range(first, first + ports.segment)]
    assert all(ports.first <= n <= ports.last <= 65535 for n in taken)
    assert not set(taken) & ports.foreign
    assert len(offered) + len(ports.foreign) <= ports.quota
    by_lane = [first for lane, first in offered if lane == lanes(layout)[0]]
    assert all(b - a >= ports.segment for a, b in pairwise(by_lane))


@given(layouts)
def test_layout_round_trips_through_its_configuration(layout: Layout) -> None:
    faults = Faults()
    assert LayoutType().read(as_config(layout), "slots", faults) == layout
    assert faults.found == []


@given(layouts, st.integers(0, 1000))
def test_spread_ranks_the_slots_of_each_lane_consecutively(layout: Layout, position: int) -> None:
    offered = slots_of(layout)
    spread = ranks_of("spread", position, offered, lambda: 0)
    for lane in lanes(layout):
        in_lane = [rank for (each, _), rank in zip(offered, spread, strict=True) if each == lane]
        assert in_lane == list(range(len(in_lane)))
    chance = random.Random(1)
    assert len(ranks_of("random", position, offered, lambda: chance.randint(0, 9))) == len(offered)


@pytest.mark.parametrize(
    ("layout", "given_own", "fields"),
    [
        (plain(3), {"slots": 0}, ["m.slots"]),
        (plain(3), {"slots": [1]}, ["m.slots"]),
        (plain(3), {"ports": "1-2"}, ["m.ports"]),
        (plain(3), {"foreign": [1]}, ["m.foreign"]),
        (APC, {"slots": 3}, ["m.slots"]),
        (tasks(["plan"]), {"slots": ["any"]}, ["m.slots[0]"]),
        (node(), {"slots": 2}, ["m.slots"]),
        (port_lanes(PORTS, None), {"slots": 2}, ["m.slots"]),
        (port_lanes(PORTS, None), {"ports": "29999-30001"}, ["m.ports"]),
        (port_lanes(PORTS, None), {"ports": "30005"}, ["m.ports"]),
        (port_lanes(Ports(1, 9, segment=3), None), {"ports": "2-9"}, ["m.ports"]),
        (port_lanes(Ports(1, 9, segment=3), None), {"ports": "4-5"}, ["m.ports"]),
        (
            port_lanes(PORTS, None),
            {"foreign": [0, 70000, "x"]},
            ["m.foreign[0]", "m.foreign[1]", "m.foreign[2]"],
        ),
    ],
)
def test_invalid_member_override_is_refused_by_field(
    layout: Layout, given_own: dict[str, Any], fields: list[str]
) -> None:
    faults = Faults()
    read_own_slots(given_own, "m", layout, faults)
    assert [f.field for f in faults.found] == fields
    assert all(f.message and f.way_out for f in faults.found)
