"""The field `ports` of a new claim: forms, and every fault at its field."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims.allocation.requests.claim_request import ClaimRequest, read_claim
from claims.ports.port_list import PROTOCOLS, PortList, PortRequest


def read(**body: Any) -> tuple[ClaimRequest | None, list[tuple[str, str]]]:
    request, faults = read_claim({"pool": "lab", **body}, requested_by="ana")
    return request, [(fault.field, fault.message) for fault in faults]


def ports_of(**body: Any) -> list[PortRequest]:
    request, faults = read(**body)
    assert faults == [] and request is not None
    assert isinstance(request.work, PortList)
    return list(request.work.ports)


def test_text_and_list_name_the_same_ports() -> None:
    text = ports_of(ports="80/TCP, 9999/udp,7777/TCPUDP")
    objects = ports_of(
        ports=[
            {"port": 80, "protocol": "TCP"},
            {"port": 9999, "protocol": "UDP"},
            {"port": 7777, "protocol": "tcpudp"},
        ]
    )
    assert text == objects
    assert [(each.port, each.kind) for each in text] == [
        (80, "tcp"),
        (9999, "udp"),
        (7777, "tcp_udp"),
    ]


def test_claim_of_several_ports_has_a_part_for_each() -> None:
    request, _ = read(ports="80/TCP,81/TCP,53/UDP", selector={"zone": "eu"})
    assert request is not None
    assert (request.kind, request.size, request.total) == ("parts", 3, 3)
    assert request.terms == {
        "selector": {"zone": "eu"},
        "parts": [
            {"kind": "tcp", "pools": ["lab"], "size": 2},
            {"kind": "udp", "pools": ["lab"]},
        ],
    }


def test_claim_of_one_port_asks_for_the_same_as_a_claim_without_parts() -> None:
    request, _ = read(ports="80/TCP")
    plain, _ = read(kind="tcp")
    assert request is not None and plain is not None
    for name in ("pools", "kind", "size", "terms", "total", "is_simple"):
        assert getattr(request, name) == getattr(plain, name)


def test_ports_that_all_name_their_pools_need_no_pool_of_the_claim() -> None:
    port = {"port": 80, "protocol": "TCP", "pools": ["eu", "us"], "same_number": True}
    request, faults = read_claim({"ports": [port]}, requested_by="ana")
    assert faults == [] and request is not None
    assert (request.pools, request.same_number) == (("eu", "us"), True)
    request, faults = read_claim(
        {"ports": [port, {"port": 81, "protocol": "TCP"}]}, requested_by="ana"
    )
    assert [fault.field for fault in faults] == ["pool"]


@pytest.mark.parametrize(
    ("ports", "fields"),
    [
        ("80/TCPX", ["ports[0]"]),
        ("0/TCP", ["ports[0]"]),
        ("65536/TCP", ["ports[0]"]),
        ("80/TCP,80/TCP", ["ports[1]"]),
        ("80/TCP,80/TCPUDP", ["ports[1]"]),
        ("80", ["ports[0]"]),
        ("80/TCP,", ["ports[1]"]),
        ("-1/TCP", ["ports[0]"]),
        ("٨٠/TCP", ["ports[0]"]),
        ("", ["ports"]),
        ([], ["ports"]),
        (80, ["ports"]),
        ([80], ["ports[0]"]),
        ([{"port": 80}], ["ports[0].protocol"]),
        ([{"protocol": "TCP"}], ["ports[0].port"]),
        ([{"port": 0, "protocol": "TCP"}], ["ports[0].port"]),
        ([{"port": 80, "protocol": "SCTP"}], ["ports[0].protocol"]),
        ([{"port": 80, "protocol": 6}], ["ports[0].protocol"]),
        ([{"port": 80, "protocol": "TCP", "wish": 1}], ["ports[0].wish"]),
        ([{"port": 80, "protocol": "TCP", "certificate": "c"}], ["ports[0].certificate"]),
        ([{"port": 80, "protocol": "TCP", "same_number": True}], ["ports[0].same_number"]),
        ([{"port": 80, "protocol": "TCP", "pools": []}], ["ports[0].pools"]),
        ([{"port": 80, "protocol": "TCP", "pools": ["A!"]}], ["ports[0].pools[0]"]),
        ([{"port": 80, "protocol": "TCP", "pools": ["a", "a"]}], ["ports[0].pools[1]"]),
        (",".join(f"{n}/TCP" for n in range(1, 202)), ["ports"]),
    ],
)
def test_wrong_ports_are_faults_at_their_fields(ports: Any, fields: list[str]) -> None:
    request, faults = read(ports=ports)
    assert request is None
    assert [field for field, _ in faults] == fields


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kind": "tcp"}, "kind"),
        ({"size": 2}, "size"),
        ({"contiguous": True}, "contiguous"),
        ({"on_one_member": True}, "on_one_member"),
        ({"workspace": "net"}, "workspace"),
        ({"task": "plan"}, "kind"),
    ],
)
def test_ports_exclude_the_fields_that_they_replace(body: dict[str, Any], field: str) -> None:
    request, faults = read(ports="80/TCP,81/TCP", **body)
    assert request is None
    assert faults[0][0] == field


def test_the_same_port_may_be_reached_in_two_pools() -> None:
    ports = [{"port": 80, "protocol": "TCP", "pools": [pool]} for pool in ("eu", "us")]
    assert [each.pools for each in ports_of(ports=ports)] == [("eu",), ("us",)]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=30) | st.floats(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["port", "protocol", "pools", "same_number", "certificate"]), inner
            )
        ),
        max_leaves=12,
    )
)
def test_any_value_is_read_or_is_a_fault_below_ports(value: Any) -> None:
    request, faults = read(ports=value)
    assert (request is None) == bool(faults)
    assert all(field.startswith("ports") for field, _ in faults)
    if request is not None and request.work is not None:
        assert isinstance(request.work, PortList)
        assert all(each.protocol in PROTOCOLS for each in request.work.ports)


def test_ports_have_at_most_16_different_lists_of_pools() -> None:
    lists = [list(order) for order in permutations(["a", "b", "c", "d"])][:17]
    ports = [{"port": i, "protocol": "TCP", "pools": of} for i, of in enumerate(lists, start=1)]
    again = {"port": 99, "protocol": "UDP", "pools": lists[0]}
    request, faults = read_claim({"ports": [*ports[:16], again]}, requested_by="test")
    assert request is not None and faults == []
    _, faults = read_claim({"ports": [*ports[:16], again, ports[16]]}, requested_by="test")
    (fault,) = faults
    assert fault.field == "ports[17]" and "17 different lists of pools" in fault.message
