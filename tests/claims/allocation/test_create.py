"""A new claim is bound at once, waits with a reason, or is refused with a code."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from claims.allocation.create import create_claim
from claims.lifecycle.cancel import cancel_claim
from claims.lifecycle.pool_deletion import delete_pool
from claims.models import Claim
from pools.lifecycle.services import update_pool
from project.kernel.errors import BerthError, Conflict, Invalid, NotFound, Refused
from project.kernel.models import Event, Operation
from slots.members.services import add_members, cordon_member, pause_pool
from slots.models import Slot
from tests.claims.helpers import (
    again,
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


def refused(kind: type[BerthError] = Refused, /, pool: str = "lab", **body: Any) -> BerthError:
    before = Claim.objects.count()
    with pytest.raises(kind) as caught:
        ask(pool, **body)
    assert Claim.objects.count() == before
    assert caught.value.detail
    assert caught.value.way_out
    return caught.value


# -- simple ones -----------------------------------------------------------------------------------


def test_a_claim_with_a_free_slot_is_bound_at_once_and_described() -> None:
    make_pool(slots=2, members=[{"name": "a", "labels": {"zone": "eu"}}])
    claim = ask(owner="pod:1", priority=5)
    assert (claim.state, claim.pool, claim.kind, claim.priority, claim.wait) == (
        "bound",
        "lab",
        "slot",
        5,
        None,
    )
    assert places(claim) == [("a", "slot", 0)]
    assert claim.slots[0].labels == {"zone": "eu"}
    assert again(claim).as_dict() == claim.as_dict()
    assert verbs(claim) == ["create"]
    event = Event.objects.get(claim_id=claim.id)
    assert (event.slot_id, event.generation, event.after) == (
        claim.slots[0].id,
        claim.generation,
        "bound",
    )


@pytest.mark.parametrize("size", [1, 2], ids=["in one statement", "in several"])
def test_a_claim_is_bound_no_earlier_than_it_was_created(size: int) -> None:
    make_pool(slots=2)
    claim = ask(size=size)
    assert claim.bound_at is not None
    assert claim.created_at <= again(claim).bound_at == claim.bound_at


def test_an_older_allocator_transaction_does_not_predate_the_bind() -> None:
    """The allocator's transaction may be older than the claim that it finds."""
    make_pool(slots=1)
    first = ask()
    waits = ask()
    with transaction.atomic():
        began = sql("SELECT now()")[0][0]
        sql("UPDATE claims_claim SET created_at = statement_timestamp() WHERE id = %s", waits.id)
        let_go(first)
        serve()
    bound = again(waits)
    assert bound.bound_at is not None and bound.created_at is not None
    assert began < bound.created_at <= bound.bound_at


def test_a_claim_on_a_full_pool_waits_with_its_reason() -> None:
    make_pool()
    first = ask()
    claim = ask()
    assert (claim.state, claim.generation, claim.slots) == ("waiting", 0, [])
    assert claim.wait is not None
    assert (claim.wait.code, claim.wait.place) == ("full", 1)
    let_go(first)
    assert serve() == 1
    assert again(claim).state == "bound"


def test_a_claim_overtakes_only_waiting_claims_of_lower_rank() -> None:
    pool = make_pool()
    first = ask()
    waiting = ask()
    let_go(first)
    late = ask()
    assert late.state == "waiting", "a slot is free, but somebody stands before"
    urgent = ask(priority=10)
    assert urgent.state == "bound"
    let_go(urgent)
    assert serve() == 1
    assert again(waiting).state == "bound"
    assert Slot.objects.filter(pool=pool, state="held").count() == 1


def test_a_claim_waiting_for_several_pools_competes_in_each() -> None:
    for name in ("eu", "us", "asia"):
        make_pool(name)
    taken = ask("eu")
    both = ask(pools=["eu", "us"])
    assert both.state == "waiting"
    assert ask("us").state == "waiting", "it stands under eu, and waits for us all the same"
    assert ask("us", priority=1).state == "bound", "a better rank goes first"
    assert ask(pools=["asia", "us"]).state == "waiting"
    assert ask("asia").state == "waiting"
    let_go(taken)


def test_queues_that_no_free_slot_serves_are_passed_but_the_next_is_not() -> None:
    """Rivals are found hop by hop: the first ones found are passable, one further on is not."""
    pool = make_pool(slots=1, members=3)
    for i in range(5):
        assert ask(selector={"zone": f"z{i}"}).state == "waiting"
    serve()
    bound = [ask() for _ in range(3)]
    assert [claim.state for claim in bound] == ["bound"] * 3, "nobody else could have them"
    last = ask()
    assert last.state == "waiting"
    sql("UPDATE slots_slot SET is_open = false WHERE pool_id = %s", pool.id)
    let_go(bound[0])
    sql("UPDATE slots_slot SET is_open = true WHERE pool_id = %s", pool.id)
    assert ask(priority=-5).state == "waiting", (
        "a slot is free, and the one before it is no passable one"
    )


def test_a_claim_waiting_for_another_lane_does_not_compete() -> None:
    make_pool(slots=["any", "plan"])
    ask(kind="plan_and_apply")
    waiting = ask(kind="plan_and_apply")
    assert waiting.state == "waiting"
    assert ask(kind="plan").state == "bound", (
        "its own lane has a slot that the one who waits does not take"
    )


def test_tasks_take_the_slots_of_the_narrowest_lane_first() -> None:
    make_pool(slots=["any", "plan", "plan"])
    assert [places(ask(kind="plan"))[0][1] for _ in range(3)] == ["plan", "plan", "any"]


def test_a_plan_task_has_a_step_and_needs_no_workspace() -> None:
    make_pool(slots=["any"])
    claim = ask(task="plan")
    assert (claim.kind, claim.task, claim.step) == ("plan", "plan", "plan")


@pytest.mark.parametrize(
    ("placement", "order"),
    [("pack", ["m0", "m0", "m1", "m1"]), ("spread", ["m0", "m1", "m0", "m1"])],
)
def test_pack_and_spread_choose_members_in_their_order(placement: str, order: list[str]) -> None:
    make_pool(slots=2, members=2, placement=placement)
    found = [places(ask())[0] for _ in range(4)]
    assert [name for name, _, _ in found] == order
    for name in ("m0", "m1"):
        assert [number for who, _, number in found if who == name] == [0, 1]


def test_random_placement_takes_each_slot_once() -> None:
    make_pool(slots=3, members=3, placement="random")
    assert len({places(ask())[0] for _ in range(9)}) == 9


def test_a_paused_pool_and_a_cordoned_member_give_no_slot() -> None:
    pool = make_pool(members=2)
    cordon_member(member_id=member("m0").pk, reason="disk")
    assert places(ask())[0][0] == "m1"
    pause_pool(pool_id=pool.pk, until=timezone.now() + timedelta(hours=1), reason="firmware")
    claim = ask()
    assert claim.wait is not None
    assert claim.wait.code == "pool_paused"
    assert "firmware" in claim.wait.text


def test_a_bind_in_a_pool_with_a_provider_queue_enqueues_a_sync() -> None:
    make_pool()
    sql("UPDATE pools_pool SET queue = 'shelf', revision = revision + 1")
    claim = ask()
    assert list(Operation.objects.values_list("queue", "kind", "claim_id", "generation")) == [
        ("shelf", "sync", claim.id, claim.generation)
    ]


# -- the same call again ---------------------------------------------------------------------------


def test_a_reused_key_returns_the_same_claim_ten_times() -> None:
    make_pool(slots=5)
    first = ask(key="k", owner="x")
    for _ in range(10):
        claim = ask(key="k", owner="x")
        assert (claim.id, places(claim), claim.is_replay) == (first.id, places(first), True)
    assert held() == 1


@pytest.mark.parametrize("body", [{"size": 2}, {"pool": "nowhere"}])
def test_a_key_of_a_larger_or_waiting_claim_returns_it_again(body: dict[str, Any]) -> None:
    make_pool(slots=5)
    first = ask(key="k", **body)
    assert ask(key="k", **body).id == first.id
    assert Claim.objects.count() == 1


def test_a_key_reused_with_another_body_is_refused_and_names_its_claim() -> None:
    make_pool(slots=5)
    first = ask(key="k")
    error = refused(Conflict, key="k", priority=1)
    assert error.code == "key_reused"
    assert f"claim {first.id}" in error.detail


def test_keys_are_per_caller_and_stay_after_the_end_of_the_claim() -> None:
    make_pool(slots=5)
    first = ask(key="k")
    assert ask(key="k", by="ben").id != first.id
    let_go(first)
    assert (ask(key="k").id, ask(key="k").state) == (first.id, "ended")


# -- what could never be served --------------------------------------------------------------------


def test_a_claim_beyond_layout_or_maximum_is_refused_at_once() -> None:
    make_pool(slots=2, members=1, most=3)
    assert refused(kind="train").code == "kind_not_offered"
    assert refused(size=7).code == "too_big"
    assert refused(size=3, on_one_member=True).code == "member_too_small"
    assert refused(size=3, contiguous=True).code == "run_too_long"
    make_pool("tf", slots=["any", "plan"])
    assert refused(pool="tf").code == "kind_missing"


def test_a_claim_beyond_the_present_members_waits() -> None:
    make_pool(slots=2, members=1, most=3)
    claim = ask(size=6)
    assert claim.wait is not None
    assert (claim.state, claim.wait.code) == ("waiting", "not_enough")
    claim = ask(selector={"gpu": "t4"})
    assert claim.wait is not None
    assert (claim.state, claim.wait.code) == ("waiting", "no_member_with_labels")


def test_a_pool_being_deleted_refuses_claims() -> None:
    make_pool()
    ask()
    with pytest.raises(Conflict, match="has 1 claim"):
        delete_pool("lab")
    sql("UPDATE pools_pool SET state = 'deleting'")
    assert refused(Conflict).code == "pool_deleting"


def test_a_cached_pool_config_is_not_used_after_a_change() -> None:
    make_pool(slots=1, members=[])
    ask()
    update_pool("lab", {"name": "lab", "slots": ["any"], "members": {"max": 1, "list": ["a"]}})
    assert refused().code == "kind_missing"
    assert places(ask(kind="plan")) == [("a", "any", 0)]


def test_a_new_pool_of_the_same_name_takes_the_next_claim() -> None:
    make_pool()
    let_go(ask())
    delete_pool("lab")
    sql("UPDATE pools_pool SET state = 'gone'")
    after = make_pool(members=["b"])
    claim = ask()
    assert (claim.pool_id, places(claim)[0][0]) == (after.pk, "b")


# -- a pool that is not there yet ------------------------------------------------------------------


def test_a_claim_without_a_kind_waits_when_its_new_pool_offers_several() -> None:
    claim = ask("ghost")
    assert claim.wait is not None
    assert (claim.state, claim.wait.code, claim.pool_id) == ("waiting", "pool_not_found", None)
    assert serve() == 0
    pool = make_pool("ghost", slots=["any"], lease={"acknowledge": "30s", "hold": "1h"})
    plan = ask("ghost", kind="plan")
    assert serve() == 0, "several kinds: what names none can't be served"
    assert again(claim, explain=True).wait.code == "kind_missing"  # type: ignore[union-attr]
    cancel_claim(claim_id=claim.id)
    assert plan.pool_id == pool.pk


def test_a_claim_older_than_its_pool_takes_the_leases_of_the_pool() -> None:
    claim, own = ask("ghost"), ask("ghost", hold_for="5m")
    make_pool("ghost", slots=2, lease={"acknowledge": "30s", "hold": "1h"})
    assert serve() == 2
    assert again(claim).spec == {"acknowledge": 30.0, "hold": 3600.0, "due_in": 30.0}
    assert again(own).spec == {"acknowledge": 30.0, "hold": 300.0, "due_in": 30.0}
    assert verbs(claim) == ["create", "adopt", "bind"]
    due = sql(
        "SELECT extract(epoch FROM due_at - bound_at) FROM claims_claim WHERE id = %s", claim.id
    )
    assert float(due[0][0]) == 30.0


# -- more than one slot ----------------------------------------------------------------------------


def test_a_claim_for_several_slots_gets_all_of_them() -> None:
    make_pool(slots=2, members=2)
    ask()
    claim = ask(size=3)
    assert len(claim.slots) == 3
    assert (claim.size, claim.total, ask(size=1).state) == (3, 3, "waiting")
    assert held() == 4
    assert is_sound()


def test_a_claim_for_a_hundred_ports_gets_them_in_order() -> None:
    make_pool("eu", slots={"ports": "30000-30099", "shared": True, "quota": 100})
    claim = ask("eu", size=100)
    assert [slot.number for slot in claim.slots] == list(range(30000, 30100))


def test_ports_are_claimed_by_kind_and_their_protocol() -> None:
    make_pool("eu", slots={"ports": "30000-30003", "protocols": ["tcp", "udp"], "quota": 8})
    assert places(ask("eu", kind="tcp", size=2)) == [("m0", "tcp", 30000), ("m0", "tcp", 30001)]
    assert places(ask("eu", kind="quic")) == [("m0", "udp", 30000)]
    assert refused(pool="eu", kind="port").code == "kind_not_offered"


def test_contiguous_ports_are_on_one_member() -> None:
    make_pool("eu", slots={"ports": "30000-30049", "shared": True, "segment": 10}, members=2)
    create_claim(wish(slot=Slot.objects.get(member=member("m0"), number=30020).pk))
    claim = ask("eu", size=3, contiguous=True)
    assert places(claim) == [("m1", "port", 30000), ("m1", "port", 30010), ("m1", "port", 30020)]


def test_slots_on_one_member_may_be_in_several_lanes() -> None:
    make_pool("tf", slots=["any", "plan", "plan"], members=2)
    ask("tf", kind="plan")
    claim = ask("tf", kind="plan", size=3, on_one_member=True)
    assert [(name, lane) for name, lane, _ in places(claim)] == [
        ("m1", "plan"),
        ("m1", "plan"),
        ("m1", "any"),
    ]


def test_a_claim_with_a_selector_gets_a_slot_of_a_matching_member() -> None:
    make_pool(
        slots=1,
        members=[
            "a",
            {"name": "b", "labels": {"gpu": "t4", "zone": "eu"}},
            {"name": "c", "labels": {"gpu": "t4"}},
        ],
    )
    assert places(ask(selector={"gpu": "t4", "zone": "eu"})) == [("b", "slot", 0)]
    assert places(ask(selector={"gpu": "t4"})) == [("c", "slot", 0)]
    waiting = ask(selector={"gpu": "t4"})
    assert waiting.wait is not None
    assert (waiting.state, waiting.wait.code) == ("waiting", "full")
    assert places(ask()) == [("a", "slot", 0)], "a slot that the one before could not use"


def test_a_node_is_claimed_by_labels() -> None:
    make_pool("cn", slots="node", members=["a", {"name": "b", "labels": {"gpu": "t4"}}])
    assert places(ask("cn", selector={"gpu": "t4"})) == [("b", "node", 0)]


# -- several pools ---------------------------------------------------------------------------------

PORTS = {"ports": "30000-30003", "shared": True}


def test_a_claim_over_two_pools_holds_no_slot_until_both_have_room() -> None:
    make_pool("eu", slots=PORTS)
    make_pool("us", slots=PORTS)
    ask("eu", size=4)
    claim = ask(pools=["us", "eu"])
    assert (claim.state, claim.pool, held()) == ("waiting", "us", 4)
    assert claim.wait is not None
    assert (claim.wait.code, claim.wait.facts["pool"]) == ("full", "eu")


def test_same_number_takes_one_number_in_every_pool() -> None:
    for name in ("eu", "us", "ap"):
        make_pool(name, slots=PORTS)
    ask("eu")
    ask("us", size=2)
    claim = ask(pools=["eu", "us", "ap"], same_number=True)
    assert [(slot.pool, slot.number) for slot in claim.slots] == [
        ("eu", 30002),
        ("us", 30002),
        ("ap", 30002),
    ]
    assert (claim.size, claim.total) == (1, 3)


def test_same_number_and_contiguous_take_one_run_in_every_pool() -> None:
    for name in ("eu", "us"):
        make_pool(name, slots={"ports": "30000-30009", "shared": True}, members=1)
    ask("eu")
    claim = ask(pools=["eu", "us"], size=3, same_number=True, contiguous=True)
    assert [slot.number for slot in claim.slots] == [30001, 30001, 30002, 30002, 30003, 30003]
    several = ask(pools=["eu", "us"], size=2, same_number=True)
    assert [(slot.pool, slot.number) for slot in several.slots] == [
        ("eu", 30004),
        ("us", 30004),
        ("eu", 30005),
        ("us", 30005),
    ]
    assert is_sound()


def test_a_claim_without_a_common_number_waits() -> None:
    make_pool("eu", slots=PORTS)
    make_pool("us", slots=PORTS)
    for name, number in (("eu", 30000), ("eu", 30001), ("us", 30002), ("us", 30003)):
        slot = Slot.objects.get(pool__name=name, number=number)
        create_claim(wish(slot=slot.pk))
    claim = ask(pools=["eu", "us"], same_number=True)
    assert claim.wait is not None
    assert (claim.state, claim.wait.code) == ("waiting", "no_common_number")


def test_pools_of_different_numbering_are_refused_for_same_number() -> None:
    make_pool("eu", slots=PORTS)
    make_pool("us", slots={**PORTS, "ports": "31000-31003"})
    make_pool("ap", slots={**PORTS, "segment": 2})
    make_pool("sa", slots={**PORTS, "quota": 3})
    for others, code in (
        ("us", "no_common_range"),
        ("ap", "unequal_segments"),
        ("sa", "unequal_quotas"),
    ):
        error = refused(pools=["eu", others], same_number=True)
        assert (error.code, [fault.field for fault in error.fields]) == (code, ["same_number"])
    assert ask(pools=["eu", "us"]).state == "bound", "without the same number they go together"


def test_a_claim_waits_until_all_its_pools_exist() -> None:
    make_pool("eu", slots=PORTS)
    claim = ask(pools=["eu", "us"])
    assert claim.wait is not None
    assert (claim.wait.code, claim.wait.facts["pool"]) == ("pool_not_found", "us")
    assert serve() == 0
    make_pool("us", slots=PORTS)
    assert serve() == 1
    assert [slot.pool for slot in again(claim).slots] == ["eu", "us"]


# -- a named slot ----------------------------------------------------------------------------------


def test_a_claim_for_a_named_slot_gets_it_or_is_refused() -> None:
    make_pool("tf", slots=["any", "plan"], members=2)
    slot = Slot.objects.get(member=member("m1"), lane="plan")
    claim = create_claim(wish(slot=slot.pk, owner="x"))
    assert (claim.kind, places(claim)) == ("plan", [("m1", "plan", 1)])
    with pytest.raises(Conflict, match="A claim holds the slot"):
        create_claim(wish(slot=slot.pk))
    with pytest.raises(NotFound):
        create_claim(wish(slot=999999))
    with pytest.raises(Refused, match="does not serve plan_and_apply"):
        create_claim(wish(slot=slot.pk, kind="plan_and_apply"))
    with pytest.raises(Invalid):
        create_claim(wish(pools=["other"], slot=slot.pk))
    assert Claim.objects.count() == 1


def test_a_named_slot_is_refused_when_closed_or_when_claims_wait() -> None:
    make_pool(members=2)
    first = ask()
    cordon_member(member_id=member("m1").pk, reason="disk")
    with pytest.raises(Conflict, match="closed"):
        create_claim(wish(slot=Slot.objects.get(member=member("m1")).pk))
    waiting = ask()
    let_go(first)
    slot = Slot.objects.get(member=member("m0"))
    with pytest.raises(Conflict, match="Other claims wait"):
        create_claim(wish(slot=slot.pk))
    assert create_claim(wish(slot=slot.pk, priority=1)).state == "bound"
    assert again(waiting).state == "waiting"


def test_a_named_slot_with_the_same_key_returns_its_claim() -> None:
    make_pool(slots=2)
    slot = Slot.objects.first()
    assert slot is not None
    first = create_claim(wish(slot=slot.pk, key="k"))
    assert create_claim(wish(slot=slot.pk, key="k")).id == first.id


def test_members_added_later_serve_waiting_claims() -> None:
    pool = make_pool(members=[], most=2)
    claim = ask()
    assert claim.wait is not None
    assert claim.wait.code == "no_member"
    add_members(pool_id=pool.pk, declared=["a"])
    assert serve() == 1
    assert places(again(claim)) == [("a", "slot", 0)]
