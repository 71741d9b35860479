"""An evacuated load balancer hands its claims to others, one at a time, make before break."""

import pytest

from claims.allocation.selectors import view_claim
from claims.ports.backends import BackendRequest, set_backend
from claims.ports.evacuation import evacuation_sql
from claims.ports.evacuation.mover import undo_evacuation
from claims.ports.evacuation.orders import evacuate_member
from claims.ports.evacuation.plan import READY_WITHIN
from pools.models import Pool
from pools.providers.base import PortTarget
from project.kernel.errors import Conflict
from project.kernel.models import Event
from slots.members.services import cordon_member, uncordon_member
from slots.models import Evacuation, Slot
from tests.claims.helpers import again, ask, is_sound, let_go, make_pool, member, sql
from tests.claims.ports.evacuation.helpers import (
    claim_routed,
    evacuate,
    listeners_of,
    members_of,
    states_of,
    step,
    steps_until_done,
)
from tests.claims.ports.quay import QuayProvider, make_quay, work

pytestmark = pytest.mark.usefixtures("committed_tables")


def test_claims_move_to_other_members_and_the_empty_member_stays_cordoned() -> None:
    make_quay(members=2)
    claims = [claim_routed(ip=f"10.0.0.{i}") for i in range(3)]
    assert {name for claim in claims for name in members_of(claim)} == {"lb0"}
    found = evacuate("lb0")
    steps_until_done(found)
    assert {name for claim in claims for name in members_of(claim)} == {"lb1"}
    assert all(again(claim).ports[0]["ready"] for claim in claims)
    assert states_of("lb0") == {"idle"} and not listeners_of("lb0")
    assert member("lb0").is_cordoned and not Evacuation.objects.exists()
    verbs = list(Event.objects.filter(member_id=found).values_list("verb", flat=True))
    assert {"evacuate", "evacuated"} <= set(verbs)
    assert is_sound()


def test_the_empty_member_is_removed_without_stays() -> None:
    make_quay(members=2)
    claim = claim_routed()
    steps_until_done(evacuate("lb0", stays=False))
    assert member("lb0").state == "gone"
    assert members_of(claim) == ["lb1"]


def test_old_listener_serves_until_the_new_port_is_ready() -> None:
    make_quay(members=2)
    claim = claim_routed()
    found = evacuate("lb0")
    assert step(found) == "moved"
    QuayProvider.world.health = "initial"
    work()
    assert step(found) == "waits"
    assert listeners_of("lb0") == listeners_of("lb1") == {30000}
    assert states_of("lb0") == {"idle", "draining"}
    assert not again(claim).ports[0]["ready"]
    QuayProvider.world.health = "healthy"
    work()
    work(Pool.objects.get())  # the watcher sees the health of the new listener
    assert step(found) == "arrived"
    assert listeners_of("lb0") == {30000}  # its drain is ordered, and not done yet
    work()
    assert listeners_of("lb0") == set()


def test_the_next_claim_waits_until_the_former_has_arrived() -> None:
    make_quay(members=2)
    first, second = claim_routed(), claim_routed(ip="10.0.0.8")
    found = evacuate("lb0")
    assert step(found) == "moved"
    assert step(found) == "waits"  # no worker has made the listener: the provider is away
    assert (members_of(first), members_of(second)) == (["lb1"], ["lb0"])
    work()
    assert (step(found), step(found)) == ("arrived", "moved")
    assert members_of(second) == ["lb1"]


def test_the_event_of_the_claim_says_from_where_to_where() -> None:
    make_quay(members=2)
    claim = claim_routed()
    step(evacuate("lb0"))
    event = Event.objects.get(claim_id=claim.id, verb="readdress")
    assert event.data == {"from": ["lb0.lb.example:30000"], "to": ["lb1.lb.example:30000"]}
    assert "under attack" in event.reason


def test_a_release_during_the_move_ends_the_old_slots_too() -> None:
    make_quay(members=2)
    claim = claim_routed()
    found = evacuate("lb0")
    step(found)
    let_go(again(claim))
    assert step(found) == "arrived"
    work()
    assert states_of("lb0") == {"idle"}
    assert Evacuation.objects.get().moved == 0
    assert steps_until_done(found)[-1] == "nothing"


def test_a_claim_whose_new_port_fails_goes_back_to_the_old_one() -> None:
    make_quay(members=2)
    claim = claim_routed()
    found = evacuate("lb0")
    step(found)
    QuayProvider.world.problems[30000] = "the certificate is missing"
    work()
    assert step(found) == "taken_back"
    assert members_of(claim) == ["lb0"]
    row = Evacuation.objects.get()
    assert row.claim_id is None and row.stuck[str(claim.id)]["code"] == "failed"
    assert "certificate" in row.stuck[str(claim.id)]["reason"]
    assert not Slot.objects.filter(member=member("lb0"), is_open=True).exists()
    assert is_sound()
    assert step(found) == "stuck"  # it is not tried again at once


def test_step_reads_the_slots_that_a_claim_has_left_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red while judging, locking and handing over each read them."""
    make_quay(members=2)
    claim_routed()
    found = evacuate("lb0")
    step(found)
    QuayProvider.world.problems[30000] = "the certificate is missing"
    work()
    read, generations = evacuation_sql.left_slots, []

    def count(*, generation: int) -> str | None:
        generations.append(generation)
        return read(generation=generation)

    monkeypatch.setattr(evacuation_sql, "left_slots", count)
    assert step(found) == "taken_back"
    assert len(generations) == 1


def test_old_ports_serve_on_while_a_paused_pool_hands_them_back_to_no_claim() -> None:
    make_quay(members=2)
    claim = claim_routed()
    found = evacuate("lb0")
    step(found)
    QuayProvider.world.problems[30000] = "the certificate is missing"
    work()
    sql("UPDATE pools_pool SET paused_until = now() + interval '1 h'")
    assert step(found) == "waits"
    assert listeners_of("lb0") == {30000} and members_of(claim) == ["lb1"]
    sql("UPDATE pools_pool SET paused_until = NULL")
    assert step(found) == "taken_back"
    assert members_of(claim) == ["lb0"]


def test_a_claim_whose_health_check_never_passes_goes_back() -> None:
    make_quay(members=2)
    claim = claim_routed()
    found = evacuate("lb0")
    step(found)
    QuayProvider.world.health = "unhealthy"
    work()
    assert step(found) == "waits"
    sql(f"UPDATE slots_evacuation SET moved_at = now() - interval '{READY_WITHIN} s'")
    assert step(found) == "taken_back"
    assert members_of(claim) == ["lb0"]


def test_a_claim_without_backend_moves_once_its_listener_exists() -> None:
    make_quay(members=2)
    claim = ask("lb", ports="80/TCP")
    work()
    found = evacuate("lb0")
    assert step(found) == "moved"
    assert step(found) == "waits"
    work()
    assert step(found) == "arrived"
    assert members_of(claim) == ["lb1"]


def test_undo_opens_the_member_and_the_moving_claim_goes_back() -> None:
    make_quay(members=2)
    first, second = claim_routed(), claim_routed(ip="10.0.0.8")
    found = evacuate("lb0")
    step(found)
    undo_evacuation(member_id=found, reason="the attack is over")
    assert members_of(first) == members_of(second) == ["lb0"]
    assert not member("lb0").is_cordoned and not Evacuation.objects.exists()
    assert not Slot.objects.filter(member=member("lb0"), is_open=False).exists()
    work()
    assert listeners_of("lb1") == set()
    assert again(first).ports[0]["ready"] and is_sound()


def test_undo_leaves_a_claim_that_has_arrived() -> None:
    make_quay(members=2)
    claim = claim_routed()
    found = evacuate("lb0")
    step(found)
    work()
    undo_evacuation(member_id=found)
    assert members_of(claim) == ["lb1"]
    work()
    assert states_of("lb0") == {"idle"}


def test_undo_keeps_the_cordon_of_before() -> None:
    make_quay(members=2)
    cordon_member(member_id=member("lb0").pk, reason="noisy")
    found = evacuate("lb0")
    undo_evacuation(member_id=found)
    after = member("lb0")
    assert (after.is_cordoned, after.cordon_note) == (True, "noisy")


def test_an_evacuated_member_cannot_be_uncordoned() -> None:
    make_quay(members=2)
    found = evacuate("lb0")
    with pytest.raises(Conflict, match="is being evacuated"):
        uncordon_member(member_id=found)


def test_a_repeated_order_replaces_the_reason_and_tries_again() -> None:
    make_quay(members=1)
    claim_routed()
    found = evacuate("lb0")
    assert step(found) == "stuck"
    evacuate_member(member_id=found, reason="moved to another zone", stays=False)
    row = Evacuation.objects.get()
    assert (row.reason, row.stays, row.stuck) == ("moved to another zone", False, {})


def test_members_of_other_pools_are_drained_instead() -> None:
    make_pool("tf", slots=1, members=1)
    with pytest.raises(Conflict, match="no pool of ports"):
        evacuate_member(member_id=member("m0").pk, reason="x")


def test_slots_without_an_outside_move_at_once() -> None:
    make_pool("lb", slots={"ports": "30000-30009", "protocols": ["tcp"]}, members=2)
    claim = ask("lb", kind="tcp")
    found = evacuate("m0")
    assert step(found) == "moved"
    assert (members_of(claim), states_of("m0")) == (["m1"], {"idle"})
    assert steps_until_done(found)[-1] == "nothing"
    assert view_claim(claim.id).generation > claim.generation


def test_a_changed_backend_reaches_the_old_listener_while_it_serves() -> None:
    make_quay(members=2)
    claim = claim_routed()
    found = evacuate("lb0")
    step(found)
    moved = again(claim)
    backend = BackendRequest("10.0.0.9", port=8080)
    set_backend(claim_id=claim.id, generation=moved.generation, backend=backend)
    sql("UPDATE kernel_operation SET due_at = now() WHERE done_at IS NULL")
    work()
    uses = {use.target for use in QuayProvider.world.listeners.values()}
    assert uses == {PortTarget("10.0.0.9", 8080)} and len(QuayProvider.world.listeners) == 2


def test_old_pre_created_listener_keeps_its_target_until_the_new_one_is_ready() -> None:
    slots = {"ports": "30000-30009", "protocols": ["tcp"], "precreate": {"tcp": 2}}
    make_quay(members=2, slots=slots)
    claim = claim_routed()
    found = evacuate("lb0")
    step(found)
    QuayProvider.world.given.clear()
    sql("UPDATE kernel_operation SET due_at = now() WHERE done_at IS NULL")
    work()
    targets = [use.target for use in QuayProvider.world.given if use is not None]
    assert targets == [PortTarget("10.0.0.7", 8080)] * 2, "the old port and the new port"
    assert step(found) == "arrived"
    assert members_of(claim) == ["lb1"]
