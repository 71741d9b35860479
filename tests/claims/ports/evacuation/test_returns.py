"""A claim that an evacuation has moved goes back while its former ports still drain."""

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.release import release_claim
from claims.ports.evacuation.mover import undo_evacuation
from claims.ports.evacuation.orders import evacuate_member
from claims.ports.evacuation.returns import list_returnable, return_claim
from project.kernel.errors import Conflict
from project.kernel.models import Event
from slots.members.services import remove_member
from slots.models import Evacuation, Slot
from slots.sync.quarantine import quarantine_slot
from tests.api.conftest import Callers
from tests.claims.helpers import again, ask, is_sound, member, sql
from tests.claims.ports.evacuation.helpers import (
    claim_routed,
    evacuate,
    listeners_of,
    members_of,
    states_of,
    step,
    steps_until_done,
)
from tests.claims.ports.quay import make_quay, work
from tests.dashboard.helpers import chief

pytestmark = pytest.mark.usefixtures("committed_tables")


def arrive(**more: object) -> tuple[ClaimView, int]:
    """A claim that has arrived at lb1, and lb0, where its former ports still drain."""
    make_quay(members=2)
    claim = claim_routed(**more)
    found = evacuate("lb0")
    assert step(found) == "moved"
    work()
    assert step(found) == "arrived"
    return claim, found


def go_back(claim: ClaimView, found: int) -> None:
    return_claim(member_id=found, claim_id=claim.id, reason="the attack moved along")


def clean_udp() -> None:
    sql("UPDATE slots_slot SET state = 'idle', drain_until = NULL, due_at = NULL"
        " WHERE state = 'draining' AND lane = 'udp'")  # fmt: skip


def refuse(claim: ClaimView, found: int) -> Conflict:
    with pytest.raises(Conflict) as caught:
        go_back(claim, found)
    return caught.value


def test_arrived_claim_gets_its_former_ports_and_addresses_back() -> None:
    claim, found = arrive(ports="80/TCP,9999/UDP,7777/TCPUDP")
    before = [(port["address"], port["protocol"]) for port in claim.ports]
    go_back(claim, found)
    assert set(members_of(claim)) == {"lb0"} and is_sound()
    work()
    back = again(claim)
    assert [(port["address"], port["protocol"]) for port in back.ports] == before
    assert all(port["ready"] for port in back.ports)
    assert listeners_of("lb1") == set() and states_of("lb1") == {"idle"}
    event = Event.objects.filter(verb="readdress", claim_id=claim.id).latest("id")
    assert event.reason == "the attack moved along" and event.data["to"][0] == before[0][0]
    assert Event.objects.get(verb="return_claim").member_id == found


def test_evacuation_goes_on_without_the_claim_until_it_is_ordered_again() -> None:
    claim, found = arrive()
    go_back(claim, found)
    work()
    assert step(found) == "stuck"
    row = Evacuation.objects.get()
    assert (row.moved, row.stuck[str(claim.id)]["code"]) == (0, "returned")
    assert not Slot.objects.filter(member_id=found, is_open=True).exists()
    evacuate_member(member_id=found, reason="under attack again", stays=True)
    steps_until_done(found)
    assert members_of(claim) == ["lb1"]


def test_former_generations_stay_the_holders_after_the_return() -> None:
    claim, found = arrive()
    moved = again(claim)
    go_back(claim, found)
    assert again(claim).generation > moved.generation
    answer = release_claim(claim_id=claim.id, generation=claim.generation)
    assert answer.outcome == "released"


def test_claim_stays_where_it_is_once_its_former_ports_are_clean() -> None:
    claim, found = arrive()
    assert [each.id for each in list_returnable(found)] == [claim.id]
    work()
    assert list_returnable(found) == []
    refusal = refuse(claim, found)
    assert (refusal.code, members_of(claim)) == ("ports_gone", ["lb1"])
    assert "no former ports on lb0 that still drain" in refusal.detail
    assert "keeps its ports" in refusal.way_out


def test_claim_gets_a_clean_port_back_beside_one_that_drains() -> None:
    """A UDP port is clean at once, while connections of the TCP port end slowly."""
    claim, found = arrive(ports="80/TCP,9999/UDP")
    clean_udp()
    go_back(claim, found)
    work()
    back = again(claim)
    assert [each["address"] for each in back.ports] == [each["address"] for each in claim.ports]


def test_port_that_another_claim_has_held_since_prevents_the_return() -> None:
    claim, found = arrive(ports="80/TCP,9999/UDP")
    clean_udp()
    undo_evacuation(member_id=found)
    assert ask("lb", kind="udp").slots[0].member == "lb0"
    assert refuse(claim, found).code == "ports_gone"
    assert set(members_of(claim)) == {"lb1"} and is_sound()


def test_moving_claim_goes_back_by_undo_only() -> None:
    make_quay(members=2)
    claim = claim_routed()
    found = evacuate("lb0")
    step(found)
    assert refuse(claim, found).code == "moves"


def test_ended_and_foreign_claims_have_nothing_to_go_back_to() -> None:
    claim, found = arrive()
    assert refuse(ask("lb", kind="tcp"), found).code == "ports_gone"
    release_claim(claim_id=claim.id, generation=claim.generation)
    assert refuse(claim, found).code == "ports_gone"


def test_member_that_leaves_takes_no_claim_back() -> None:
    claim, found = arrive()
    remove_member(member_id=found, reason="sold")
    assert "is leaving" in refuse(claim, found).detail


def test_paused_pool_hands_no_port_back() -> None:
    claim, found = arrive()
    sql("UPDATE pools_pool SET paused_until = now() + interval '1 h'")
    assert refuse(claim, found).code == "pool_closed"
    assert members_of(claim) == ["lb1"]
    assert not Slot.objects.filter(member_id=found, is_open=True).exists()


def test_claim_goes_back_after_the_evacuation_was_undone() -> None:
    claim, found = arrive()
    undo_evacuation(member_id=found)
    left = list_returnable(found)[0].left
    quarantine_slot(slot_id=next(iter(left)), reason="it fails again and again")
    go_back(claim, found)
    assert members_of(claim) == ["lb0"] and is_sound()
    held = Slot.objects.get(claim_id=claim.id)
    assert not held.is_open, "its quarantine goes on"
    assert Slot.objects.filter(member_id=found, is_open=True).exists()


def test_undo_may_take_arrived_claims_back() -> None:
    claim, found = arrive()
    assert undo_evacuation(member_id=found, reason="it is over", returns_claims=True) == 1
    assert members_of(claim) == ["lb0"] and is_sound()
    assert not member("lb0").is_cordoned and not Evacuation.objects.exists()


def test_api_lists_arrived_claims_and_moves_them_back(caller: Callers) -> None:
    claim, found = arrive()
    operator, path = caller("operator"), f"members/{found}/return-claim/"
    (shown,) = operator.get(f"members/{found}/evacuate/").body["claims"]
    assert (shown["claim_id"], shown["state"]) == (claim.id, "arrived")
    assert (shown["ports"], shown["to"]) == (["tcp 30000"], ["lb1 30000"]) and shown["until"]
    assert operator.post(path, {"claim_id": claim.id}).status == 400, "a reason is needed"
    answer = operator.post(path, {"claim_id": claim.id, "reason": "x"})
    assert (answer.status, answer.body["claims"][0]["state"]) == (200, "stuck")
    again_ = operator.post(path, {"claim_id": claim.id, "reason": "x"})
    assert (again_.status, again_.body["code"]) == (409, "ports_gone")
    undone = operator.post(f"members/{found}/undo-evacuation/", {"returns_claims": True})
    assert (undone.status, undone.body["is_evacuating"]) == (200, False)


def test_command_moves_a_claim_back(capsys: pytest.CaptureFixture[str]) -> None:
    claim, _ = arrive()
    order = ["evacuate", "lb/lb0", "--return-claim", str(claim.id), "--reason", "x"]
    call_command("evacuate", "lb/lb0")
    assert "has arrived at lb1 30000 and can go back" in capsys.readouterr().out
    call_command(*order)
    assert members_of(claim) == ["lb0"]
    with pytest.raises(CommandError, match="no former ports on lb0"):
        call_command(*order)
    call_command("evacuate", "lb/lb0", "--undo", "--return-claims")
    assert not Evacuation.objects.exists()


def test_pages_offer_the_way_back_while_there_is_one(client: Client) -> None:
    claim, found = arrive()
    user: User = chief()
    client.force_login(user)
    address = f"/members/{found}/return-claim/{claim.id}/"
    for page in ("/pools/lb/?tab=members&member=lb0", "/pools/lb/?tab=ports"):
        assert address in client.get(page).content.decode()
    dialog = client.get(address).content.decode()
    assert f"Move claim {claim.id} back to lb0" in dialog and "lb0 tcp 30000" in dialog
    undo = client.get(f"/members/{found}/undo-evacuation/").content.decode()
    assert "1 claim goes back to the former ports" in undo
    answer = client.post(address, {"reason": "x"})
    assert answer.status_code in (200, 302) and members_of(claim) == ["lb0"]
    assert "no former ports here that still drain" in client.get(address).content.decode()
    assert address not in client.get("/pools/lb/?tab=members&member=lb0").content.decode()
