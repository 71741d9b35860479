"""A7: claims of several ports: all or none, each port with its own protocol and pools."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from claims import claims_sql
from claims.allocation.bulk import create_claims
from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.checks.waiting import find_passed_over
from claims.lifecycle.cancel import cancel_claim
from claims.lifecycle.lost_member import lose_claim
from claims.lifecycle.update import resize_claim
from claims.models import Claim, ClaimPart, Shape
from pools.lifecycle.services import create_pool
from pools.models import Pool
from project.kernel.db import sql as sql_module
from project.kernel.errors import Conflict, Refused
from slots.members.liveness import lose_member
from slots.members.services import add_members
from slots.models import Slot
from tests.claims.helpers import (
    again,
    age,
    ask,
    held,
    is_sound,
    let_go,
    make_pool,
    member,
    places,
    serve,
    sql,
    verbs,
    wish,
)

pytestmark = pytest.mark.usefixtures("tables")
THREE = "80/TCP,9999/UDP,7777/TCPUDP"


def make_clb(
    name: str = "clb", span: str = "30000-30009", members: Any = 1, quota: int = 100, **more: Any
) -> Pool:
    slots = {"ports": span, "protocols": ["tcp", "udp"], "quota": quota}
    return make_pool(name, slots=slots, members=members, **more)


def make_nlb(name: str = "nlb", span: str = "30000-30009", members: Any = 1) -> Pool:
    return make_pool(name, slots={"ports": span, "shared": True}, members=members)


def why(claim: ClaimView) -> tuple[str, str]:
    wait = again(claim, explain=True).wait
    assert wait is not None
    return wait.code, wait.text


def parts_of(claim: ClaimView) -> list[tuple[str, int, int]]:
    rows = ClaimPart.objects.filter(claim_id=claim.id).order_by("index")
    return [(row.kind, row.first, row.count) for row in rows]


def test_each_port_gets_the_lowest_numbers_that_fit_it() -> None:
    make_clb()
    claim = ask("clb", ports=THREE)
    assert (claim.state, claim.size, claim.total) == ("bound", 3, 4)
    assert places(claim) == [
        ("m0", "tcp", 30001),
        ("m0", "udp", 30001),
        ("m0", "tcp", 30000),
        ("m0", "udp", 30000),
    ], "TCP and UDP together have the least choice"
    assert parts_of(claim) == [("tcp", 0, 1), ("udp", 1, 1), ("tcp_udp", 2, 2)]
    assert len(set(Slot.objects.exclude(claim_id=None).values_list("generation", flat=True))) == 1
    assert verbs(claim) == ["create", *["bind"] * 4]
    assert let_go(claim).state == "ended"
    assert held() == 0
    assert is_sound()


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param({"ports": THREE}, id="several parts"),
        pytest.param({"ports": "80/TCP"}, id="one part"),
        pytest.param({"ports": THREE, "selector": {"zone": "eu"}}, id="waiting"),
        pytest.param({"kind": "tcp", "size": 3, "contiguous": True}, id="a run without parts"),
    ],
)
@pytest.mark.parametrize("make", [make_clb, make_nlb], ids=["clb", "nlb"])
def test_a_new_claim_is_shown_as_it_is_read_later(make: Callable[[], Pool], wanted: Any) -> None:
    """The answer to a create is built without reading the claim."""
    claim = ask(make().name, **wanted)
    shown, read = claim.as_dict(), again(claim).as_dict()
    assert shown | {"wait": None} == read
    assert (claim.state == "bound") == ("selector" not in wanted)
    assert len(claim.ports) >= len(claim.slots)
    assert len(claim.conditions) == 3


def test_a_shared_listener_serves_every_port_with_one_number() -> None:
    make_nlb()
    claim = ask("nlb", ports=THREE)
    assert places(claim) == [("m0", "port", n) for n in (30000, 30001, 30002)]
    assert parts_of(claim) == [("tcp", 0, 1), ("udp", 1, 1), ("tcp_udp", 2, 1)]


def test_ports_in_two_lanes_keep_the_order_of_the_request() -> None:
    make_clb()
    claim = ask("clb", ports="80/TCP,53/UDP,81/TCP")
    assert (
        places(claim)
        == places(again(claim))
        == [
            ("m0", "tcp", 30000),
            ("m0", "udp", 30000),
            ("m0", "tcp", 30001),
        ]
    )
    assert parts_of(claim) == [("tcp", 0, 1), ("udp", 1, 1), ("tcp", 2, 1)]
    assert is_sound()


def test_a_claim_holds_nothing_if_one_of_its_lanes_has_too_few_slots() -> None:
    make_clb(quota=4)
    assert ask("clb", kind="udp").state == "bound"
    late = ask("clb", ports="80/TCP,53/UDP,54/UDP")
    assert (late.state, late.slots, held()) == ("waiting", [], 1)
    assert parts_of(late) == [("tcp", 0, 1), ("udp", 1, 1), ("udp", 2, 1)]
    assert verbs(late) == ["create"]
    assert ask("clb", kind="tcp").state == "waiting", "no later claim takes its slots"
    assert is_sound()


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param({"ports": "80/TCP,53/UDP,81/TCP"}, id="several ports"),
        pytest.param({"ports": "80/TCP"}, id="one port"),
        pytest.param({"kind": "tcp", "size": 3}, id="several slots"),
    ],
)
def test_one_statement_creates_and_binds_a_claim_that_needs_no_search(
    wanted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_clb()
    ask("clb", **wanted)  # the route is known from now on
    calls: list[str] = []
    execute = sql_module.execute
    monkeypatch.setattr(
        sql_module, "execute", lambda *args: calls.append(args[1]) or execute(*args)
    )
    claim = ask("clb", **wanted)
    assert (claim.state, len(calls)) == ("bound", 1), calls


def test_two_ports_never_share_a_slot() -> None:
    """Pairs and single numbers share a lane and are searched one after the other. Red without the
    places that earlier searches have taken: both got 30000, and the database refused the claim.
    """
    make_clb(span="30000-30003", certificates=["cert-1"])
    ports = [
        {"port": 80, "protocol": "TCP"},
        {"port": 443, "protocol": "TCP_SSL", "certificate": "cert-1"},
        {"port": 53, "protocol": "TCPUDP"},
        {"port": 81, "protocol": "TCP"},
    ]
    claim = ask("clb", ports=ports)
    assert places(claim) == [
        ("m0", "tcp", 30001),
        ("m0", "tcp", 30002),
        ("m0", "tcp", 30000),
        ("m0", "udp", 30000),
        ("m0", "tcp", 30003),
    ]


def test_a_claim_holds_all_of_its_ports_or_none() -> None:
    make_clb(span="30000-30001")
    first = ask("clb", kind="udp", size=2)
    claim = ask("clb", ports="80/TCP,9999/UDP")
    assert (claim.state, claim.slots) == ("waiting", [])
    assert held() == 2
    assert serve() == 0
    let_go(first)
    assert serve() == 1
    assert [lane for _, lane, _ in places(again(claim))] == ["tcp", "udp"]
    assert is_sound()


def test_the_wait_reason_names_the_port_that_does_not_fit() -> None:
    make_clb(span="30000-30001")
    ask("clb", kind="udp", size=2)
    assert why(ask("clb", ports="80/TCP,9999/UDP")) == (
        "full",
        "9999/UDP: All 2 udp slots are taken: 2 held",
    )
    ask("clb", kind="tcp", priority=1)
    two = ask("clb", ports="80/TCP,81/TCP", priority=2)
    assert why(two) == ("not_enough", "80/TCP, 81/TCP: 1 of 2 tcp slots are open in clb")


def test_ports_that_fit_one_by_one_and_not_together_name_the_lane() -> None:
    make_clb(span="30000-30001")
    ask("clb", kind="tcp")
    claim = ask("clb", ports="80/TCP,53/TCPUDP")
    assert why(claim) == ("not_enough", "80/TCP: 1 of 2 tcp slots are open in clb")


def test_each_port_may_name_its_own_pools() -> None:
    make_clb("eu")
    make_nlb("us")
    claim = ask(
        pools=["eu"],
        ports=[
            {"port": 80, "protocol": "TCP", "pools": ["us"]},
            {"port": 53, "protocol": "UDP"},
            {"port": 90, "protocol": "TCPUDP", "pools": ["us", "eu"]},
        ],
    )
    assert claim.pools == ["us", "eu"]
    assert [(slot.pool, slot.lane, slot.number) for slot in claim.slots] == [
        ("us", "port", 30001),
        ("eu", "udp", 30001),
        ("us", "port", 30000),
        ("eu", "tcp", 30000),
        ("eu", "udp", 30000),
    ]
    assert parts_of(claim) == [("tcp", 0, 1), ("udp", 1, 1), ("tcp_udp", 2, 3)]


def test_a_port_may_have_the_same_number_in_each_of_its_pools() -> None:
    make_clb("eu")
    make_clb("us")
    for number in (0, 1):
        ask("eu", kind="tcp", key=f"{number}")
    ask("us", kind="udp", size=3)
    ports = [
        {"port": 1, "protocol": "TCP", "pools": ["eu"]},
        {"port": 2, "protocol": "TCPUDP", "pools": ["eu", "us"], "same_number": True},
        {"port": 3, "protocol": "TCP", "pools": ["us", "eu"], "same_number": True},
    ]
    claim = create_claim(wish(pools=["eu"], ports=ports))
    numbers = [(slot.pool, slot.lane, slot.number) for slot in claim.slots]
    assert numbers == [
        ("eu", "tcp", 30004),
        ("eu", "tcp", 30003),
        ("eu", "udp", 30003),
        ("us", "tcp", 30003),
        ("us", "udp", 30003),
        ("us", "tcp", 30002),
        ("eu", "tcp", 30002),
    ]
    assert is_sound()


def test_labels_of_the_claim_apply_to_every_port() -> None:
    make_clb(members=[{"name": "a"}, {"name": "b", "labels": {"zone": "eu"}}])
    claim = ask("clb", ports=THREE, selector={"zone": "eu"})
    assert {place[0] for place in places(claim)} == {"b"}
    assert len(claim.slots) == 4


def test_a_claim_of_one_port_waits_in_the_queue_of_claims_without_parts() -> None:
    make_nlb(span="30000-30001")
    ask("nlb", kind="tcp")
    claim = ask("nlb", ports="80/TCP")
    assert (claim.state, claim.kind, places(claim)) == ("bound", "tcp", [("m0", "port", 30001)])
    assert Shape.objects.get(kind="tcp").is_simple
    assert parts_of(claim) == [("tcp", 0, 1)]
    assert ask("nlb", ports="80/TCP").state == "waiting"


def test_members_of_a_pool_are_read_once_for_all_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("a", "b", "c")
    for name in names:
        make_nlb(name, span="30000-30009")
    orders = [list(order) for order in permutations(names)]
    ports = [{"port": 80 + i, "protocol": "TCP", "pools": of} for i, of in enumerate(orders)]
    read, own_specs = list[int](), claims_sql.own_specs

    def count(*, pool: int) -> Any:
        read.append(pool)
        return own_specs(pool=pool)

    monkeypatch.setattr(claims_sql, "own_specs", count)
    assert ask(pools=list(names), ports=ports).state == "bound"
    assert len(read) == len(set(read)) == 3
    read.clear()
    later = ask(pools=list(names), ports=ports)
    assert (later.state, later.wait is not None) == ("waiting", True)
    assert len(read) == len(set(read)) == 3, "for the reason of the wait; the route is cached"


def test_ports_wait_for_a_pool_that_does_not_exist_yet() -> None:
    claim = ask("later", ports=THREE)
    assert (claim.state, claim.total) == ("waiting", 3)
    assert why(claim) == (
        "pool_not_found",
        f"{THREE.replace(',', ', ')[:6]}: Pool later does not exist",
    )
    make_clb("later")
    assert serve() == 1
    claim = again(claim)
    assert (claim.total, len(claim.slots)) == (4, 4)
    assert parts_of(claim) == [("tcp", 0, 1), ("udp", 1, 1), ("tcp_udp", 2, 2)], "sizes are known"
    assert is_sound()


@pytest.mark.parametrize(
    ("ports", "fields", "code"),
    [
        ("80/TCP,9999/UDP", ["ports[1]"], "kind_not_offered"),
        ("80/UDP", ["ports[0]"], "kind_not_offered"),
        ("80/TCP,81/TCP,82/TCP", [], "too_big"),
    ],
)
def test_ports_that_a_pool_never_has_are_refused_and_hold_nothing(
    ports: str, fields: list[str], code: str
) -> None:
    make_pool("clb", slots={"ports": "30000-30001", "protocols": ["tcp"]})
    with pytest.raises(Refused) as caught:
        ask("clb", ports=ports)
    assert (caught.value.code, [f.field for f in caught.value.fields]) == (code, fields)
    assert not Claim.objects.exists()


def test_pairs_and_single_ports_of_one_lane_are_refused_together() -> None:
    make_clb(span="30000-30001")
    with pytest.raises(Refused) as caught:
        ask("clb", ports="80/TCP,53/TCPUDP,54/TCPUDP")
    assert "3 tcp slots are more than pool clb ever has: at most 2" in caught.value.detail


def test_a_repeated_key_must_bring_the_same_ports() -> None:
    make_clb()
    first = ask("clb", ports=THREE, key="k")
    assert ask("clb", ports=THREE, key="k").id == first.id
    with pytest.raises(Conflict):
        ask("clb", ports="80/TCP,9999/UDP,7778/TCPUDP", key="k")
    assert ClaimPart.objects.count() == 3


def test_bulk_calls_create_claims_of_several_ports() -> None:
    make_clb(span="30000-30001")
    made = create_claims(
        [wish("clb", ports="80/TCP,53/UDP"), wish("clb", ports="9/TCPUDP"), wish("clb", kind="tcp")]
    )
    states = [claim.state for claim in made if isinstance(claim, ClaimView)]
    assert states == ["bound", "bound", "waiting"]
    assert is_sound()


def test_a_claim_of_several_ports_does_not_shrink() -> None:
    make_clb()
    claim = ask("clb", ports=THREE)
    with pytest.raises(Refused) as caught:
        resize_claim(claim_id=claim.id, generation=claim.generation, size=1)
    assert caught.value.code == "has_parts"
    assert len(again(claim).slots) == 4


def test_lost_ports_are_replaced_by_ports_of_their_kind() -> None:
    make_clb(span="30000-30001", members=2, quota=4)
    ask("clb", kind="udp", size=2)
    claim = ask("clb", ports="80/TCP,53/UDP")
    assert places(claim) == [("m0", "tcp", 30000), ("m1", "udp", 30000)]
    lose_member(member_id=member("m1").pk, reason="gone", is_gone=True)
    sql("UPDATE claims_claim SET bound_at = bound_at - interval '1 min'")
    add_members_beside("clb", "m2")
    assert lose_claim(claim_id=claim.id, member_id=member("m1").pk)
    assert places(again(claim)) == [("m0", "tcp", 30000), ("m2", "udp", 30000)]
    assert is_sound()


def add_members_beside(pool: str, name: str) -> None:
    sql("UPDATE pools_pool SET max_members = 9")
    sql("UPDATE pools_pool SET spec = jsonb_set(spec, '{members,max}', '9') WHERE name = %s", pool)
    add_members(pool_id=Pool.objects.get(name=pool).pk, declared=[name])


def test_the_doctor_finds_a_claim_of_ports_that_is_passed_over() -> None:
    make_clb(span="30000-30001")
    first = ask("clb", kind="udp", size=2)
    claim = ask("clb", ports="80/TCP,53/UDP")
    let_go(first)
    age(claim, 60)
    sql("UPDATE claims_claim SET changed_at = changed_at - interval '1 min'")
    sql("UPDATE slots_slot SET changed_at = changed_at - interval '1 min'")
    assert [found.subject for found in find_passed_over()] == [f"claim {claim.id}"]
    serve()
    assert list(find_passed_over()) == []


def test_a_small_claim_passes_ports_that_do_not_fit_within_the_limit() -> None:
    make_clb(span="30000-30002")
    ask("clb", kind="udp", size=3)
    claim = ask("clb", ports="80/TCP,53/UDP")
    small = [ask("clb", kind="tcp") for _ in range(3)]
    assert serve() == 2, "as many slots as the claim of two ports needs"
    assert [again(each).state for each in small] == ["bound", "bound", "waiting"]
    assert cancel_claim(claim_id=claim.id).state == "ended"
    assert serve() == 1


def test_a_pool_without_ports_refuses_each_port() -> None:
    create_pool({"name": "clb", "slots": 1, "members": {"max": 1}})
    with pytest.raises(Refused) as caught:
        ask("clb", ports="80/TCP,53/UDP")
    assert {fault.field for fault in caught.value.fields} == {"ports[0]", "ports[1]"}
