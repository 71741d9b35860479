"""Claims for one number in TCP and UDP: two slots of one member where the lanes are apart, one
slot where they are shared.
"""

from typing import Any

import pytest
from django.db import transaction

from claims import pairs_sql
from claims.allocation.bulk import create_claims
from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.lifecycle.cancel import cancel_claim
from claims.lifecycle.lost_member import lose_claim
from claims.lifecycle.release import release_claim
from claims.lifecycle.update import resize_claim
from claims.models import Claim, Shape
from pools.lifecycle.services import create_pool
from pools.models import Pool
from project.kernel.errors import BerthError, Invalid, Refused
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
    wish,
)
from tests.claims.parallel_processes import together
from tests.database import helpers as model

pytestmark = pytest.mark.usefixtures("tables")


def ports(
    name: str = "clb", span: str = "30000-30004", members: Any = 1, quota: int = 100, **more: Any
) -> Pool:
    return make_pool(
        name,
        slots={"ports": span, "protocols": ["tcp", "udp"], "quota": quota},
        members=members,
        **more,
    )


def both(name: str = "clb", **body: Any) -> ClaimView:
    return ask(name, kind="tcp_udp", **body)


def why(claim: ClaimView) -> tuple[str, str]:
    wait = again(claim, explain=True).wait
    assert wait is not None
    return wait.code, wait.text


@pytest.mark.parametrize("kind", ["tcp_udp", "tcpudp"])
def test_a_pair_is_one_number_in_both_lanes_of_one_member(kind: str) -> None:
    ports()
    claim = ask("clb", kind=kind)
    assert (claim.state, claim.size, claim.total) == ("bound", 1, 2)
    assert places(claim) == [("m0", "tcp", 30000), ("m0", "udp", 30000)]
    assert let_go(claim).state == "ended"
    assert held() == 0
    assert is_sound()


def test_a_pair_on_shared_ports_is_one_slot() -> None:
    make_pool("nlb", slots={"ports": "30000-30001", "shared": True})
    claim = both("nlb")
    assert (places(claim), claim.total) == ([("m0", "port", 30000)], 1)
    assert places(ask("nlb", kind="tcp")) == [("m0", "port", 30001)], (
        "tcp, udp, or both: a number is taken once"
    )
    assert Shape.objects.get(kind="tcp_udp").is_simple, "served in batches like all of its pool"


def test_numbers_taken_in_one_lane_are_skipped() -> None:
    ports()
    ask("clb", kind="tcp")
    ask("clb", kind="udp", size=2)
    assert places(both()) == [("m0", "tcp", 30002), ("m0", "udp", 30002)]


def test_free_lanes_on_two_members_are_no_pair() -> None:
    ports(span="30000-30001", members=2, quota=2)
    closed = "is_open = false WHERE member_id = %s AND lane = %s"
    sql(f"UPDATE slots_slot SET {closed}", member("m0").pk, "udp")
    sql(f"UPDATE slots_slot SET {closed}", member("m1").pk, "tcp")
    free = Slot.objects.filter(is_open=True, state="idle").order_by("member__name")
    assert list(free.values_list("member__name", "lane", "number")) == [
        ("m0", "tcp", 30000),
        ("m1", "udp", 30000),
    ]
    claim = both()
    assert (claim.state, serve()) == ("waiting", 0)
    sql("UPDATE slots_slot SET is_open = true WHERE member_id = %s", member("m0").pk)
    assert serve() == 1
    assert places(again(claim)) == [("m0", "tcp", 30000), ("m0", "udp", 30000)]


@pytest.mark.parametrize(
    ("terms", "numbers"),
    [
        ({"size": 2}, [30000, 30002]),
        ({"size": 2, "contiguous": True}, [30002, 30003]),
        ({"size": 2, "on_one_member": True}, [30000, 30002]),
    ],
    ids=["several", "in a row", "on one member"],
)
def test_several_pairs_may_be_contiguous_or_on_one_member(
    terms: dict[str, Any], numbers: list[int]
) -> None:
    ports()
    spare = ask("clb", kind="udp", size=2)
    resize_claim(claim_id=spare.id, generation=spare.generation, size=1)  # leaves 30000
    sql("UPDATE slots_slot SET is_open = false WHERE lane = 'tcp' AND number = 30001")
    let_go(again(spare))
    claim = both(**terms)
    assert places(claim) == [("m0", lane, number) for number in numbers for lane in ("tcp", "udp")]
    assert (claim.size, claim.total) == (2, 4)


def test_pairs_are_found_by_labels() -> None:
    ports(members=[{"name": "a"}, {"name": "b", "labels": {"zone": "eu"}}])
    assert places(both(selector={"zone": "eu"})) == [("b", "tcp", 30000), ("b", "udp", 30000)]
    assert {p[0] for p in places(both(selector={"zone": "eu"}, size=2, contiguous=True))} == {"b"}


def test_resizing_a_pair_claim_releases_both_lanes() -> None:
    ports()
    claim = both(size=3)
    fewer = resize_claim(claim_id=claim.id, generation=claim.generation, size=1)
    assert (fewer.size, places(fewer)) == (1, [("m0", "tcp", 30000), ("m0", "udp", 30000)])
    assert is_sound()


def test_pairs_span_pools_with_apart_and_shared_lanes() -> None:
    ports("clb")
    make_pool("nlb", slots={"ports": "30000-30004", "shared": True, "quota": 100})
    ask("nlb", kind="tcp")
    claim = ask(pools=["clb", "nlb"], kind="tcp_udp", size=2, same_number=True)
    numbers = [(slot.pool, slot.lane, slot.number) for slot in claim.slots]
    assert numbers == [
        (p, lane, n)
        for n in (30001, 30002)
        for p, lane in (("clb", "tcp"), ("clb", "udp"), ("nlb", "port"))
    ]
    run = ask(pools=["nlb", "clb"], kind="tcp_udp", size=2, same_number=True, contiguous=True)
    assert sorted({slot.number for slot in run.slots}) == [30003, 30004]
    apart = ask(pools=["nlb", "clb"], kind="tcp_udp", key="a")
    assert apart.state == "waiting", "no number is left in nlb"
    assert is_sound()


def test_a_pair_claim_beyond_the_quota_is_refused_at_once() -> None:
    ports(quota=5)  # three numbers in TCP, two of them in UDP, too
    for terms, code in [
        ({"size": 3}, "too_big"),
        ({"size": 3, "contiguous": True}, "too_big"),
        ({"size": 9}, "too_big"),
    ]:
        with pytest.raises(Refused) as caught:
            both(**terms)
        assert caught.value.code == code
        assert "2" in caught.value.detail
    make_pool("tcp", slots={"ports": "30000-30004", "protocols": ["tcp"]})
    with pytest.raises(Refused) as caught:
        both("tcp")
    assert (caught.value.code, caught.value.way_out) == (
        "kind_not_offered",
        "Use one of tcp, tcp_ssl.",
    )


def test_a_refused_kind_names_tcp_udp_among_the_offered_kinds() -> None:
    ports()
    with pytest.raises(Refused) as caught:
        ask("clb", kind="sctp")
    assert caught.value.way_out == "Use one of tcp, tcp_ssl, udp, quic, tcp_udp."


def test_two_slots_a_pair_count_against_the_maximum_size() -> None:
    ports(span="20000-21000", quota=5000)
    with pytest.raises(Invalid) as caught:
        both(size=600)
    assert [fault.field for fault in caught.value.fields] == ["size"]


def test_a_waiting_pair_says_how_many_numbers_are_free_in_each_lane() -> None:
    ports(span="30000-30001")
    tcp, udp = ask("clb", kind="tcp"), ask("clb", kind="udp")
    other = ask("clb", kind="udp")
    let_go(udp)
    claim = both()
    assert why(claim) == (
        "no_pair",
        "No number of clb is free in both TCP and UDP: 1 free in TCP, 1 in UDP",
    )
    more = both(size=2)
    assert why(more)[1] == (
        "No number of clb is free in both TCP and UDP: 1 free in TCP, 1 in UDP, and 1 "
        "claim is ahead"
    )
    let_go(other)
    assert serve() == 1
    assert (again(claim).state, again(more).state) == ("bound", "waiting")
    assert Shape.objects.get(id=again(more).shape_id).wait_reason["code"] == "no_pair"
    let_go(again(claim))
    let_go(tcp)
    assert serve() == 1
    assert again(more).state == "bound"


def test_a_waiting_run_of_pairs_says_the_largest_free_run() -> None:
    ports(span="30000-30003")
    sql("UPDATE slots_slot SET is_open = false WHERE lane = 'udp' AND number = 30001")
    assert why(both(size=3, contiguous=True)) == (
        "not_contiguous",
        "Largest free run is 2 of 3 (m0)",
    )
    assert why(both(size=4, on_one_member=True))[1].startswith(
        "No member has 4 open tcp and udp slots; the most is 3 (m0)"
    )


def test_single_ports_pass_a_waiting_pair_for_ten_minutes_only() -> None:
    ports(span="30000-30001")
    hold = [ask("clb", kind="tcp"), ask("clb", kind="udp"), ask("clb", kind="udp")]
    claim = both()
    serve()
    small = ask("clb", kind="tcp")
    assert (serve(), again(small).state) == (1, "bound"), "passes it: what is free is no pair"
    age(claim, 601)
    sql("UPDATE claims_shape SET tried_at = now() - interval '1 min'")
    serve()
    let_go(hold[1])
    late = ask("clb", kind="udp")
    assert late.state == "waiting"
    let_go(hold[0])
    serve()
    assert (again(claim).state, again(late).state) == ("bound", "waiting")


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
def test_a_pair_claim_older_than_its_pool_takes_the_slots_of_its_layout(shared: bool) -> None:
    claim = ask("later", kind="tcp_udp", size=2)
    one = ask("later", kind="tcp_udp")
    assert why(claim)[0] == "pool_not_found"
    layout = (
        {"ports": "30000-30009", "shared": True}
        if shared
        else {"ports": "30000-30009", "protocols": ["tcp", "udp"]}
    )
    create_pool({"name": "later", "slots": layout, "members": {"max": 1, "list": ["m0"]}})
    assert serve() == 2
    assert [len(again(c).slots) for c in (claim, one)] == ([2, 1] if shared else [4, 2])
    assert [again(c).size for c in (claim, one)] == [2, 1]
    assert Shape.objects.get(size=1).is_simple is shared
    assert is_sound()


def test_bulk_pair_claims_are_bound_as_far_as_pairs_go() -> None:
    ports(span="30000-30002")
    made = create_claims([wish("clb", kind="tcp_udp") for _ in range(4)])
    assert [c.state for c in made if isinstance(c, ClaimView)] == ["bound"] * 3 + ["waiting"]


def test_a_lost_pair_is_replaced_by_a_pair() -> None:
    ports(span="30000-30003", members=2, quota=4, placement="spread")
    claim = both(size=2)
    assert [p[0] for p in places(claim)] == ["m0", "m0", "m1", "m1"]
    lose_member(member_id=member("m1").pk, reason="gone", is_gone=False)
    assert lose_claim(claim_id=claim.id, member_id=member("m1").pk)
    assert places(again(claim)) == [
        ("m0", lane, number) for number in (30000, 30001) for lane in ("tcp", "udp")
    ]
    assert is_sound()


def test_a_named_slot_cannot_be_claimed_as_a_pair() -> None:
    ports()
    slot = Slot.objects.filter(lane="udp").first()
    assert slot is not None
    with pytest.raises(BerthError) as caught:
        create_claim(wish(slot=slot.pk, kind="tcp_udp"))
    assert caught.value.code == "kind_not_offered"


def test_a_cancelled_pair_claim_holds_no_slot_later() -> None:
    ports(span="30000-30001", members=[], most=1)
    claim = both()
    assert claim.state == "waiting"
    cancel_claim(claim_id=claim.id, reason="")
    add_members(pool_id=Pool.objects.get(name="clb").pk, declared=["m0"])
    assert (serve(), held()) == (0, 0)


@pytest.mark.usefixtures("committed_tables")
def test_pairs_beside_single_ports_never_share_or_split_a_number() -> None:
    """No port is taken twice, no half pair is held, and no claim that fits is left over."""
    ports(span="30000-30019", members=3, quota=40)

    def take(k: int) -> list[int]:
        kinds = ["tcp_udp", "tcp", "tcp_udp", "udp"]
        made = []
        for i in range(20):
            claim = create_claim(wish("clb", kind=kinds[(i + k) % 4], owner=f"{k}:{i}"))
            made.append(claim.id)
            if claim.state == "bound" and i % 3 == 0:
                release_claim(claim_id=claim.id, generation=claim.generation)
        return made

    found = [claim for ids in together(*[take] * 4) for claim in ids]
    assert len(set(found)) == Claim.objects.count() == 80
    serve()
    assert not sql(
        """SELECT claim_id FROM slots_slot s JOIN claims_claim c ON c.id = s.claim_id
           JOIN claims_shape sh ON sh.id = c.shape_id
           WHERE sh.kind = 'tcp_udp' GROUP BY claim_id
           HAVING count(*) <> 2 OR count(DISTINCT number) <> 1 OR count(DISTINCT member_id) <> 1"""
    )
    assert Claim.objects.filter(state="waiting").count() == 0, "120 slots are enough for all"
    assert is_sound()


def test_same_number_on_one_member_takes_one_member_in_each_pool() -> None:
    """`same_number` with `on_one_member`: the numbers that a member of each pool has in common."""
    for name in ("eu", "us"):
        make_pool(
            name,
            slots={"ports": "30000-30005", "shared": True, "quota": 6},
            members=[f"{name}{i}" for i in range(3)],
        )
    for who, numbers in (
        ("eu0", (30000, 30001, 30002)),
        ("eu1", (30003, 30004, 30005)),
        ("us0", (30003,)),
        ("us2", (30000, 30004, 30005)),
    ):
        sql(
            "UPDATE slots_slot SET is_open = false WHERE member_id = %s AND number <> ALL (%s)",
            member(who).pk,
            list(numbers),
        )
    sql(
        "UPDATE slots_slot SET is_open = false WHERE member_id IN (%s, %s)",
        member("eu2").pk,
        member("us1").pk,
    )
    claim = ask(pools=["eu", "us"], size=2, same_number=True, on_one_member=True)
    found = [("eu1", 30004), ("us2", 30004), ("eu1", 30005), ("us2", 30005)]
    assert [(slot.member, slot.number) for slot in claim.slots] == found
    waits = ask(pools=["eu", "us"], size=2, same_number=True, on_one_member=True)
    assert why(waits)[0] == "no_common_number"
    assert "on one member" in why(waits)[1]
    let_go(claim)
    assert serve() == 1
    assert [(slot.member, slot.number) for slot in again(waits).slots] == found


@pytest.mark.parametrize("taken", ["tcp", "udp"])
@pytest.mark.usefixtures("committed_tables")
def test_a_pair_with_one_half_locked_is_skipped(taken: str) -> None:
    """The search skips the pair at once. Red with FOR NO KEY UPDATE OF a: 30000 was found though
    its UDP slot was being taken; the rules refused the hand-over and it was found again."""
    pool = ports()
    with model.connect() as other, other.transaction():
        other.execute(
            "SELECT id FROM slots_slot WHERE lane = %s AND number = 30000 FOR NO KEY UPDATE",
            [taken],
        )
        with transaction.atomic():
            assert pairs_sql.find_pairs(1, pool=pool.pk, lane="tcp", other="udp")[0].number == 30001
