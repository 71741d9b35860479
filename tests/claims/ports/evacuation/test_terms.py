"""Evacuated claims keep their terms; what cannot move is named, and a full pool grows."""

import pytest

from claims.allocation.claim_view import ClaimView
from claims.scaling.scaler import scale_pools
from pools.models import Member, Pool
from slots.models import Evacuation
from tests.claims.helpers import again, ask, is_sound, member, serve, sql
from tests.claims.ports.evacuation.helpers import (
    claim_routed,
    evacuate,
    members_of,
    step,
    steps_until_done,
)
from tests.claims.ports.quay import make_quay, work

pytestmark = pytest.mark.usefixtures("committed_tables")
FEW = {"ports": "30000-30003", "protocols": ["tcp", "udp"]}


def numbers_of(claim: ClaimView) -> list[tuple[str, str, int]]:
    return [(slot.member, slot.lane, slot.number) for slot in again(claim).slots]


def stuck(claim: ClaimView) -> tuple[str, str, str]:
    found = Evacuation.objects.get().stuck[str(claim.id)]
    return found["code"], found["reason"], found["way_out"]


def test_parts_keep_their_protocols_and_pairs() -> None:
    make_quay(members=2, slots=FEW)
    claim = claim_routed(ports="80/TCP,9999/UDP,7777/TCPUDP")
    before = [(port["port"], port["protocol"]) for port in claim.ports]
    steps_until_done(evacuate("lb0"))
    after = again(claim)
    assert [(port["port"], port["protocol"]) for port in after.ports] == before
    assert {port["member"] for port in after.ports} == {"lb1"}
    assert after.ports[2]["number"] == after.ports[3]["number"]
    assert all(port["ready"] for port in after.ports) and is_sound()


def test_a_run_stays_a_run() -> None:
    make_quay(members=2, slots=FEW)
    claim = ask("lb", kind="tcp", size=3, contiguous=True)
    work()
    steps_until_done(evacuate("lb0"))
    assert numbers_of(claim) == [("lb1", "tcp", number) for number in (30000, 30001, 30002)]


def test_a_run_that_fits_nowhere_stays_with_its_reason() -> None:
    make_quay(members=2, slots=FEW)
    claim = ask("lb", kind="tcp", size=3, contiguous=True)
    other = ask("lb", kind="tcp")
    blocker = ask("lb", kind="tcp", slot=slot_of("lb1", 30002))
    work()
    found = evacuate("lb0")
    steps_until_done(found)
    assert members_of(other) == members_of(blocker) == ["lb1"]
    code, reason, way_out = stuck(claim)
    assert (code, reason) == ("full", "It needs 3 tcp ports, and 2 are free elsewhere")
    assert way_out == "Add a load balancer to lb, or release claims of other load balancers."
    assert set(members_of(claim)) == {"lb0"}


def slot_of(name: str, number: int) -> int:
    rows = sql(
        "SELECT id FROM slots_slot WHERE member_id = %s AND lane = 'tcp' AND number = %s",
        member(name).pk,
        number,
    )
    return int(rows[0][0])


def test_equal_numbers_in_several_pools_stay_equal() -> None:
    make_quay("lb", members=2, slots=FEW)
    make_quay("us", members=1, slots=FEW)
    claim = ask(ports=[{"port": 80, "protocol": "TCP", "pools": ["lb", "us"], "same_number": True}])
    work()
    number = again(claim).slots[0].number
    steps_until_done(evacuate("lb0"))
    assert numbers_of(claim) == [("lb1", "tcp", number), ("us0", "tcp", number)]


def test_a_number_that_is_taken_elsewhere_keeps_its_claim_with_the_reason() -> None:
    make_quay("lb", members=2, slots=FEW)
    make_quay("us", members=1, slots=FEW)
    claim = ask(ports=[{"port": 80, "protocol": "TCP", "pools": ["lb", "us"], "same_number": True}])
    number = again(claim).slots[0].number
    ask("lb", kind="tcp", slot=slot_of("lb1", number))
    work()
    steps_until_done(evacuate("lb0"))
    code, reason, _ = stuck(claim)
    assert code == "number_taken" and str(number) in reason


def test_labels_of_the_claim_choose_its_new_member() -> None:
    members = [
        {"name": "lb0", "labels": {"zone": "a"}},
        {"name": "lb1", "labels": {"zone": "b"}},
        {"name": "lb2", "labels": {"zone": "a"}},
    ]
    make_quay(members={"list": members}, slots=FEW)
    claim = ask("lb", kind="tcp", selector={"zone": "a"})
    work()
    steps_until_done(evacuate("lb0"))
    assert members_of(claim) == ["lb2"]
    found = evacuate("lb2")
    steps_until_done(found)  # lb0 is cordoned
    assert stuck(claim)[0] == "no_labels"


def test_a_named_slot_stays_with_its_way_out() -> None:
    make_quay(members=2, slots=FEW)
    claim = ask("lb", kind="tcp", slot=slot_of("lb0", 30003))
    work()
    assert steps_until_done(evacuate("lb0"))[-1] == "stuck"
    assert stuck(claim) == (
        "named_slot",
        "It asked for exactly this port",
        "Release the claim, or drain the member with a deadline.",
    )


def test_pre_created_listeners_move_to_pre_created_listeners_of_their_protocol() -> None:
    slots = {"ports": "30000-30009", "protocols": ["tcp", "udp"], "precreate": {"tcp": 1, "udp": 2}}
    make_quay(members=2, slots=slots)
    udp = ask("lb", ports="53/UDP")
    tcp = ask("lb", ports="80/TCP")
    ask("lb", kind="tcp")  # the only other TCP listener
    work()
    steps_until_done(evacuate("lb0"))
    assert members_of(udp) == ["lb1"]
    assert stuck(tcp)[:2] == ("full", "It needs 1 tcp port, and 0 are free elsewhere")


def test_a_paused_pool_moves_no_claim() -> None:
    make_quay(members=2, slots=FEW)
    claim = claim_routed()
    found = evacuate("lb0")
    sql("UPDATE pools_pool SET paused_until = now() + interval '1 h'")
    assert step(found) == "waits"
    assert Evacuation.objects.get().waits_for == "Pool lb is paused or frozen"
    assert members_of(claim) == ["lb0"]


def scaled(most: int) -> Pool:
    pool = make_quay(
        slots={"ports": "30000-30001", "shared": True},
        members={"min": 0, "max": most},
        scaling={"policy": "on_demand", "cooldown": {"up": "0s", "down": "0s"}},
    )
    ask("lb", kind="port", size=2)
    grow(pool)
    return pool


def grow(pool: Pool) -> None:
    serve()
    scale_pools([pool.pk])
    sql("UPDATE kernel_operation SET due_at = now() WHERE done_at IS NULL")
    work(pool)
    serve()


def test_a_full_pool_grows_by_one_member_for_the_evacuation() -> None:
    pool = scaled(most=3)
    first = Member.objects.get().name
    found = evacuate(first)
    assert step(found) == "stuck"
    assert Pool.objects.get().scale_requested_at is not None
    assert Evacuation.objects.get().wanted == {"port": 2}
    assert "another load balancer, which is requested" in str(Evacuation.objects.get().stuck)
    grow(pool)
    assert Member.objects.exclude(state="gone").count() == 2
    grow(pool)
    assert Member.objects.exclude(state="gone").count() == 2, "it asks for one, not for two"
    steps_until_done(found)
    assert set(Member.objects.filter(slots__state="held").values_list("name", flat=True)) == {
        "lb-2"
    }


def test_the_new_member_counts_against_the_maximum() -> None:
    pool = scaled(most=1)
    found = evacuate(Member.objects.get().name)
    step(found)
    grow(pool)
    step(found)
    assert Member.objects.exclude(state="gone").count() == 1
    about = next(iter(Evacuation.objects.get().stuck.values()))
    assert about["way_out"] == "Raise the maximum of lb above 1, or release other claims."
