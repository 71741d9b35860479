"""The plan of a forwarder: JSON from outside either is a whole plan or is refused."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pools.providers.forwarder.busy_ports import read_table
from pools.providers.forwarder.process.plan import (
    ForwardOptions,
    ForwardPlan,
    ForwardTarget,
    HealthPlan,
    InvalidPlan,
    ListenerPlan,
    find_loops,
    read_plan,
    write_plan,
)
from pools.providers.forwarder.process.proxy_header import write_header
from tests.random_steps import examples

seconds = st.floats(0, 1e6)
places = st.tuples(st.sampled_from(["tcp", "udp"]), st.integers(1, 65535))
generations = st.integers(0, 2**62)
ips = st.one_of(
    st.ip_addresses(v=4).filter(lambda ip: not (ip.is_multicast or ip.is_unspecified)),
    st.ip_addresses(v=6).filter(lambda ip: not (ip.is_multicast or ip.is_unspecified)),
).map(str)
options = st.builds(
    ForwardOptions,
    drain=seconds,
    connect=seconds,
    tcp_idle=st.none() | seconds,
    udp_idle=seconds,
    connections=st.integers(1, 9),
    flows=st.integers(1, 9),
    total=st.integers(1, 9),
    is_proxy=st.booleans(),
    health=st.none() | st.builds(HealthPlan, seconds, seconds, st.integers(1, 9)),
)


@st.composite
def listeners(draw: Any) -> tuple[ListenerPlan, ...]:
    """Segments beside each other, without overlaps."""
    count = draw(st.integers(1, 40))
    numbers = draw(st.sets(st.integers(1, 65535 // count - 1), max_size=6))
    return tuple(
        ListenerPlan(
            lane=draw(st.sampled_from(["tcp", "udp"])),
            number=number * count,
            count=count,
            target=draw(
                st.none() | st.builds(ForwardTarget, ips, st.integers(1, 65535 - count + 1))
            ),
            generation=draw(generations),
            fault=draw(st.text(max_size=5)),
        )
        for number in sorted(numbers)
    )


plans = st.builds(
    ForwardPlan,
    incarnation=st.integers(0, 99),
    bind=st.lists(ips, min_size=1, max_size=3).map(tuple),
    options=options,
    listeners=listeners(),
    kept=st.dictionaries(places, generations, max_size=3),
    released=st.dictionaries(places, generations, max_size=3),
    ended=st.frozensets(places, max_size=3),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)


@settings(max_examples=examples(60))
@given(plans)
def test_plan_survives_its_way_through_json(plan: ForwardPlan) -> None:
    assert read_plan(json.loads(json.dumps(write_plan(plan)))) == plan


@settings(max_examples=examples(150))
@given(plans, st.data())
def test_damaged_plan_is_refused_or_read_as_a_whole(plan: ForwardPlan, data: Any) -> None:
    written: Any = json.loads(json.dumps(write_plan(plan)))
    field = data.draw(st.sampled_from(sorted(written)))
    inner = written[field]
    if isinstance(inner, dict) and data.draw(st.booleans()):
        inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(anything)
    elif isinstance(inner, list) and inner and data.draw(st.booleans()):
        if isinstance(inner[0], dict):
            inner[0][data.draw(st.sampled_from(sorted(inner[0])))] = data.draw(anything)
        else:
            inner[0] = data.draw(anything)
    else:
        written[field] = data.draw(anything)
    try:
        read = read_plan(written)
    except InvalidPlan:
        return
    assert read_plan(json.loads(json.dumps(write_plan(read)))) == read


def plan_with(*found: ListenerPlan) -> ForwardPlan:
    return ForwardPlan(1, ("127.0.0.1",), listeners=found)


def test_port_in_two_listeners_of_a_lane_is_refused() -> None:
    one, two = ListenerPlan("tcp", 100, 10), ListenerPlan("tcp", 109)
    with pytest.raises(InvalidPlan, match="tcp 109"):
        read_plan(write_plan(plan_with(one, two)))
    read_plan(write_plan(plan_with(one, ListenerPlan("udp", 109), ListenerPlan("tcp", 110))))


def test_plan_of_an_earlier_version_gets_the_defaults_of_newer_options() -> None:
    written = write_plan(plan_with()) | {"options": {"drain": 3.0, "health": {"threshold": 9}}}
    assert read_plan(written).options == ForwardOptions(drain=3.0, health=HealthPlan(threshold=9))


@pytest.mark.parametrize("bind", [[], ["0.0.0.0"], ["::"], ["localhost"], ["fe80::1%lo"]])
def test_listeners_need_addresses_of_one_machine(bind: list[str]) -> None:
    with pytest.raises(InvalidPlan, match="bind"):
        read_plan(write_plan(plan_with()) | {"bind": bind})


@pytest.mark.parametrize(
    ("target", "count", "is_loop"),
    [
        (("127.0.0.1", 100), 1, True),
        (("127.0.0.1", 200), 1, True),
        (("127.0.0.1", 199), 1, False),
        (("127.0.0.1", 199), 2, True),
        (("127.0.0.2", 100), 1, False),
    ],
)
def test_loop_is_a_target_among_the_own_ports_of_the_lane(
    target: tuple[str, int], count: int, is_loop: bool
) -> None:
    first = ListenerPlan("tcp", 100, count, ForwardTarget(*target))
    other = ListenerPlan("tcp", 200)
    assert find_loops(plan_with(first, other)) == ({first.place} if is_loop else set())
    datagrams = ListenerPlan("udp", 100, count, ForwardTarget("127.0.0.1", 200))
    assert find_loops(plan_with(datagrams, other)) == set()


def test_target_among_the_ports_of_another_forwarder_is_a_loop() -> None:
    mine = ListenerPlan("tcp", 30000, 2, ForwardTarget("127.0.0.1", 30009))
    for lane, port, is_loop in (
        ("tcp", 30009, True),
        ("tcp", 30010, True),
        ("tcp", 30011, False),
        ("udp", 30009, False),
    ):
        found = find_loops(plan_with(mine), {(lane, "127.0.0.1", port)})
        assert found == ({mine.place} if is_loop else set())
    assert find_loops(plan_with(mine), {("tcp", "127.0.0.2", 30009)}) == set()


def test_proxy_header_has_the_bytes_of_the_specification() -> None:
    assert write_header(("192.0.2.1", 1), ("198.51.100.2", 515)) == bytes.fromhex(
        "0d0a0d0a000d0a515549540a2111000cc0000201c633640200010203"
    )
    assert write_header(("2001:db8::1", 1), ("2001:db8::2", 2)) == bytes.fromhex(
        "0d0a0d0a000d0a515549540a" "21210024"
        "20010db8000000000000000000000001" "20010db8000000000000000000000002" "0001" "0002"
    )  # fmt: skip


def test_tables_of_the_kernel_are_read() -> None:
    text = """  sl  local_address rem_address   st tx_queue
   0: 0100007F:7530 00000000:0000 0A 00000000:00000000
   1: 0100007F:7531 0100007F:1F90 01 00000000:00000000
   2: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0:0
"""
    assert list(read_table(text, "0A")) == [("127.0.0.1", 30000), ("::1", 80)]
