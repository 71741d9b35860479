"""Backends of claims: what providers get to know, which claims may have a target, and refusals."""

import ipaddress
from typing import Any

import pytest

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.lost_member import lose_claim
from claims.lifecycle.release import release_claim
from claims.models import BackendConflict, BackendTarget
from claims.ports.backends import BackendRequest, set_backend, settle_conflicts
from claims.ports.own_addresses import OwnAddresses
from pools.lifecycle.services import update_pool
from pools.models import Member, Pool
from pools.providers.base import PortTarget, PortUse
from project.kernel.errors import Conflict, Invalid, Refused, StaleGeneration
from project.kernel.models import Event, Operation
from slots.members.liveness import lose_member
from slots.sync.automatic_repairs import NOT_ALLOWED
from slots.sync.drift import list_drift
from slots.sync.watcher import observe_pool
from tests.claims.helpers import again, ask, elapse, let_go, make_pool, verbs
from tests.claims.parallel_processes import together
from tests.claims.ports.quay import NETWORKS, PROVIDERS, Quay, QuayProvider, make_quay, work

ONE_EACH = {"ports": "30000-30001", "shared": True, "quota": 1}

pytestmark = pytest.mark.usefixtures("committed_tables")


@pytest.fixture(autouse=True)
def _world(settings: Any) -> None:
    settings.BERTH_PROVIDERS = PROVIDERS
    QuayProvider.world = Quay()


def route(claim: ClaimView, ip: str | None = "10.0.0.7", **more: Any) -> ClaimView:
    return set_backend(
        claim_id=claim.id,
        generation=claim.generation,
        backend=None if ip is None else BackendRequest(ip, **more),
    )


def uses() -> dict[tuple[str, int], PortUse]:
    listeners = QuayProvider.world.listeners
    return {(lane, number): use for (_, lane, number), use in listeners.items()}


def targets() -> dict[tuple[str, int], PortTarget | None]:
    return {place: use.target for place, use in uses().items()}


def test_listeners_get_the_protocol_and_the_certificate_of_their_port() -> None:
    make_quay()
    ask(
        "lb",
        ports=[
            {"port": 80, "protocol": "TCP"},
            {"port": 443, "protocol": "TCP_SSL", "certificate": "cert-1"},
            {"port": 4433, "protocol": "QUIC", "certificate": "cert-2"},
            {"port": 53, "protocol": "TCPUDP"},
        ],
    )
    ask("lb", kind="udp")
    work()
    assert uses() == {
        ("tcp", 30000): PortUse("tcp"),
        ("udp", 30000): PortUse("udp"),
        ("tcp", 30001): PortUse("tcp"),
        ("tcp", 30002): PortUse("tcp_ssl", certificate="cert-1"),
        ("udp", 30001): PortUse("quic", certificate="cert-2"),
        ("udp", 30002): PortUse("udp"),
    }


def test_shared_listener_serves_both_protocols_of_a_port() -> None:
    make_quay(slots={"ports": "30000-30009", "shared": True})
    ask("lb", ports="53/TCPUDP,80/UDP")
    ask("lb")
    work()
    assert [use.protocol for use in uses().values()] == ["tcp_udp", "udp", "tcp"]


def test_each_port_is_routed_to_its_own_port_of_the_backend() -> None:
    make_quay()
    claim = ask("lb", ports="80/TCP,53/TCPUDP")
    work()
    assert set(targets().values()) == {None}
    route(claim)
    work()
    assert targets() == {
        ("tcp", 30000): PortTarget("10.0.0.7", 53),
        ("udp", 30000): PortTarget("10.0.0.7", 53),
        ("tcp", 30001): PortTarget("10.0.0.7", 80),
    }
    route(claim, "2001:db8:0::7", ports=(8080, 5353))
    work()
    assert targets() == {
        ("tcp", 30000): PortTarget("2001:db8::7", 5353),
        ("udp", 30000): PortTarget("2001:db8::7", 5353),
        ("tcp", 30001): PortTarget("2001:db8::7", 8080),
    }
    assert again(claim).backend == {"ip": "2001:db8::7", "ports": [8080, 5353]}
    route(claim, None)
    work()
    assert set(targets().values()) == {None}, "the ports stay"
    assert again(claim).backend is None
    assert [verb for verb in verbs(claim) if verb.endswith("_backend")] == [
        "set_backend",
        "set_backend",
        "drop_backend",
    ]
    assert BackendTarget.objects.count() == 0


def test_numbers_of_a_claim_without_parts_get_one_port_or_one_each() -> None:
    make_quay("a")
    make_quay("b")
    claim = ask(pools=["a", "b"], kind="tcp_udp", size=2)
    route(claim, ports=(7001, 7002))
    assert again(claim).backend == {"ip": "10.0.0.7", "ports": [7001, 7002]}
    work()
    found = QuayProvider.world.listeners
    assert len(found) == 8, "two numbers in two pools, in TCP and UDP"
    assert {(n, use.target) for (_, _, n), use in found.items()} == {
        (30000, PortTarget("10.0.0.7", 7001)),
        (30001, PortTarget("10.0.0.7", 7002)),
    }
    route(claim, port=9000)
    work()
    assert {use.target for use in found.values()} == {PortTarget("10.0.0.7", 9000)}
    with pytest.raises(Invalid) as caught:
        route(claim)
    assert [fault.field for fault in caught.value.fields] == ["port"]
    with pytest.raises(Invalid) as caught:
        route(claim, ports=(1,))
    assert [fault.field for fault in caught.value.fields] == ["ports"]


def test_backend_orders_the_sync_of_its_members_in_the_same_transaction() -> None:
    make_quay(
        members=2,
        slots={"ports": "30000-30000", "shared": True} | {"ports": "30000-30001", "quota": 1},
    )
    claim = ask("lb", size=2)
    work()
    assert Operation.objects.filter(done_at=None).count() == 0
    route(claim, port=80)
    lanes = Operation.objects.filter(done_at=None).values_list("lane", flat=True)
    assert sorted(lanes) == sorted(f"member:{slot.member_id}" for slot in claim.slots)
    route(claim, port=80)
    assert Operation.objects.filter(done_at=None).count() == 2, "a repeated call changes nothing"
    assert Event.objects.filter(verb="set_backend").count() == 1


def test_only_the_holder_of_the_present_generation_sets_the_backend() -> None:
    make_quay()
    claim = ask("lb", ports="80/TCP")
    with pytest.raises(StaleGeneration):
        set_backend(
            claim_id=claim.id, generation=claim.generation - 1, backend=BackendRequest("10.0.0.7")
        )
    assert verbs(claim)[-1] == "late_set_backend"
    let_go(claim)
    with pytest.raises(Conflict) as caught:
        route(claim)
    assert caught.value.code == "ended"


def test_slots_that_are_no_ports_have_no_backend() -> None:
    make_pool("lab")
    with pytest.raises(Conflict) as caught:
        route(ask("lab"), port=80)
    assert caught.value.code == "no_ports"


@pytest.mark.parametrize(
    ("ip", "port", "field"),
    [
        ("10.1.0.1", 80, "ip"),
        ("127.0.0.1", 80, "ip"),
        ("::ffff:127.0.0.1", 80, "ip"),
        ("169.254.169.254", 80, "ip"),
        ("10.0.0.7", 9000, "port"),
    ],
)
def test_backend_outside_of_the_rules_of_the_pool_is_refused(
    ip: str, port: int, field: str
) -> None:
    make_quay(backends={"networks": ["10.0.0.0/16"], "ports": "1-8999"})
    claim = ask("lb", kind="tcp")
    with pytest.raises(Refused) as caught:
        route(claim, ip, port=port)
    assert [fault.field for fault in caught.value.fields] == [field]
    assert again(claim).backend is None
    with pytest.raises(Invalid) as invalid:
        route(claim, "127.1", port=80)
    assert [fault.field for fault in invalid.value.fields] == ["ip"]


SEGMENTS = {"ports": "30000-30029", "protocols": ["tcp"], "segment": 10}


def test_backend_of_a_segment_must_allow_all_of_its_ports() -> None:
    pool = make_quay(slots=SEGMENTS, backends={"networks": ["10.0.0.0/16"], "ports": "8000-8010"})
    claim = ask("lb", kind="tcp")
    with pytest.raises(Refused) as caught:
        route(claim, port=8002)
    (fault,) = caught.value.fields
    assert fault.field == "port" and "8002-8011 is not inside of 8000-8010" in fault.message
    route(claim, port=8001)
    work()
    assert targets() == {("tcp", 30000): PortTarget("10.0.0.7", 8001)}
    configure(pool, {"networks": ["10.0.0.0/16"], "ports": "8000-8009"})
    QuayProvider.world.listeners.clear()
    route(ask("lb", kind="tcp"), port=8000)
    work()
    assert targets()["tcp", 30000] is None
    assert "8001-8010 is not inside" in again(claim).conditions[-1]["reason"]


def test_segments_of_two_claims_share_no_port_of_a_backend() -> None:
    make_quay(slots=SEGMENTS)
    first, second, third = (ask("lb", kind="tcp") for _ in range(3))
    route(first, port=8000)
    route(second, port=8009)
    route(third, port=8019)
    assert {row.target for row in BackendConflict.objects.all()} == {"tcp 10.0.0.7:8009"}
    work()
    assert targets() == {
        ("tcp", 30000): PortTarget("10.0.0.7", 8000),
        ("tcp", 30010): None,
        ("tcp", 30020): PortTarget("10.0.0.7", 8019),
    }


def test_backend_of_too_many_ports_in_segments_is_refused() -> None:
    span = {"ports": "20001-40000", "protocols": ["tcp"], "segment": 5_001}
    make_quay(slots=span)
    with pytest.raises(Refused) as caught:
        route(ask("lb", kind="tcp", size=2), port=80)
    assert caught.value.code == "too_many_targets"


def test_port_of_a_load_balancer_of_this_machine_is_no_backend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(QuayProvider, "listens_here", True)
    make_quay()
    Member.objects.update(addresses=["10.0.0.9", "2001:db8::9"])
    first, second = ask("lb", kind="tcp"), ask("lb", kind="tcp")
    for claim, ip in ((second, "10.0.0.9"), (first, "10.0.0.9"), (second, "2001:db8::9")):
        with pytest.raises(Refused) as caught:
            route(claim, ip, port=30000)
        (fault,) = caught.value.fields
        assert fault.field == "ip" and "is a TCP port of lb0" in fault.message
    assert again(second).backend is None
    route(second, "10.0.0.9", port=30009)  # no claim has this port
    route(ask("lb", kind="udp"), "10.0.0.9", port=30001)  # only its TCP is a listener
    monkeypatch.undo()
    route(first, "10.0.0.9", port=30000)


def test_every_pool_of_the_claim_must_allow_the_backend() -> None:
    make_quay("a")
    make_quay("b", backends={"networks": ["192.0.2.0/24"]})
    claim = ask(pools=["a", "b"], kind="tcp")
    with pytest.raises(Refused) as caught:
        route(claim, port=80)
    assert [fault.message.partition(":")[0] for fault in caught.value.fields] == [
        "Pool b",
        "Pool b",
    ][:1]


def test_narrower_rules_take_the_target_of_a_stored_backend_away() -> None:
    pool = make_quay()
    claim = ask("lb", kind="tcp")
    route(claim, port=80)
    work()
    assert targets() == {("tcp", 30000): PortTarget("10.0.0.7", 80)}
    configure(pool, {"networks": ["10.0.1.0/24"], "ports": "1-65535"})
    work()
    assert set(targets().values()) == {None}
    ready = again(claim).conditions[-1]
    assert ready["is_failed"] and "10.0.0.7 is in none of the networks" in ready["reason"]


def test_same_rules_order_no_sync() -> None:
    pool = make_quay()
    configure(pool, NETWORKS)
    assert not Operation.objects.filter(done_at=None).exists()


def test_look_finds_a_target_that_the_pool_does_not_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rules of addresses may change without an order: an address may become Berth's own."""
    pool = make_quay()
    claim = ask("lb", kind="tcp")
    route(claim, port=80)
    work(pool)
    monkeypatch.setattr(
        OwnAddresses, "get", lambda _: frozenset({ipaddress.ip_address("10.0.0.7")})
    )
    monkeypatch.setattr(OwnAddresses, "known", OwnAddresses.get)
    observe_pool(pool)
    (finding,) = list_drift()
    assert finding.kind == "changed" and "target 10.0.0.7:80 in place of none" in finding.found
    work(pool)
    assert set(targets().values()) == {None} and list_drift() == []
    assert [event.reason for event in Event.objects.filter(verb="repair")] == [NOT_ALLOWED]


def configure(pool: Pool, backends: dict[str, Any]) -> None:
    update_pool(
        pool.name,
        {
            "name": pool.name,
            "provider": "quay",
            "slots": pool.spec["slots"],
            "backends": backends,
            "certificates": pool.spec["certificates"],
            "members": {"max": pool.max_members},
        },
    )


def test_target_of_a_claim_that_has_ended_is_free_at_once() -> None:
    make_quay()
    first, second = ask("lb", kind="tcp"), ask("lb", kind="tcp")
    route(first, port=80)
    let_go(first)
    route(second, port=80)
    work()
    assert BackendTarget.objects.get().claim_id == second.id
    assert BackendConflict.objects.count() == 0
    assert targets() == {("tcp", 30001): PortTarget("10.0.0.7", 80)}


def test_target_of_another_live_claim_is_not_registered_until_that_claim_leaves_it() -> None:
    make_quay()
    first, second = ask("lb", kind="tcp"), ask("lb", kind="tcp")
    route(first, port=80)
    route(second, port=80)
    work()
    assert targets() == {("tcp", 30000): PortTarget("10.0.0.7", 80), ("tcp", 30001): None}
    ready = again(second).conditions[-1]
    assert ready["is_failed"]
    assert f"10.0.0.7:80 is also the backend of claim {first.id}" in ready["reason"]
    settle_conflicts()
    assert verbs(second)[-1] != "free_backend"
    release_claim(claim_id=first.id, generation=first.generation)
    settle_conflicts()
    work()
    assert targets() == {("tcp", 30001): PortTarget("10.0.0.7", 80)}
    assert "free_backend" in verbs(second)
    assert BackendConflict.objects.count() == 0
    assert again(second).is_ready


def test_changed_backend_leaves_its_former_target_to_the_next_claim() -> None:
    make_quay()
    first, second = ask("lb", kind="tcp"), ask("lb", kind="tcp")
    route(first, port=80)
    route(second, port=80)
    route(first, "10.0.0.8", port=80)
    settle_conflicts()
    work()
    assert targets() == {
        ("tcp", 30000): PortTarget("10.0.0.8", 80),
        ("tcp", 30001): PortTarget("10.0.0.7", 80),
    }


def test_the_same_target_is_no_conflict_in_another_pool_or_protocol() -> None:
    make_quay("a")
    make_quay("b")
    for claim in (ask("a", kind="tcp"), ask("b", kind="tcp"), ask("a", kind="udp")):
        route(claim, port=53)
    assert BackendConflict.objects.count() == 0
    route(ask("a", kind="tcp_udp"), port=53)
    assert {row.target for row in BackendConflict.objects.all()} == {
        "tcp 10.0.0.7:53",
        "udp 10.0.0.7:53",
    }


def test_two_claims_never_have_one_target() -> None:
    """Red without the condition of take_targets: the last claim took the target of a live claim,
    and none waited for it.
    """
    make_quay()
    claims = [ask("lb", kind="tcp") for _ in range(4)]

    def set_it(k: int) -> None:
        for i in range(5):
            route(claims[k], f"10.0.0.{i}", port=80)
        route(claims[k], "10.0.0.7", port=80)

    together(*[set_it] * 4)
    work()
    assert [target for target in targets().values() if target] == [PortTarget("10.0.0.7", 80)]
    assert BackendTarget.objects.filter(target="tcp 10.0.0.7:80").count() == 1
    assert BackendConflict.objects.filter(target="tcp 10.0.0.7:80").count() == 3
    owner = BackendTarget.objects.get(target="tcp 10.0.0.7:80").claim_id
    let_go(next(claim for claim in claims if claim.id == owner))
    settle_conflicts()
    work()
    assert [target for target in targets().values() if target] == [PortTarget("10.0.0.7", 80)]


def test_port_that_replaces_a_lost_port_is_routed_to_the_same_backend() -> None:
    make_quay(members=3, slots=ONE_EACH)
    claim = ask("lb", kind="tcp", size=2)
    route(claim, ports=(81, 82))
    work()
    lost = claim.slots[1].member_id
    lose_member(member_id=lost, reason="gone", is_gone=True)
    elapse(claim, 60)
    assert lose_claim(claim_id=claim.id, member_id=lost)
    work()
    found = QuayProvider.world.listeners
    now = again(claim)
    assert now.slots[1].member_id not in (lost, claim.slots[0].member_id)
    assert found[now.slots[1].member_id, "port", 30000].target == PortTarget("10.0.0.7", 82)
    assert now.is_ready
