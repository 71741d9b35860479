"""A scaled pool of forwarders on one address: each new forwarder gets the next free ports."""

from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from claims.allocation.claim_view import ClaimView
from claims.ports.backends import BackendRequest, set_backend
from claims.scaling.scaler import scale_pools
from pools.lifecycle.services import create_pool
from pools.models import Decision, Member, Pool
from project.kernel.errors import Refused
from project.kernel.outbox.operations import perform_due
from slots.doctor.checks import find_wrong_places
from slots.members.services import add_members
from slots.models import Slot
from slots.sync.drift import list_drift
from slots.sync.foreign_listeners import record_foreign_listeners
from slots.sync.watcher import observe_pool
from tests.claims.helpers import again, ask, is_sound, serve
from tests.pools.providers.forwarder.helpers import (
    LOCALHOST,
    TcpTarget,
    ask_tcp,
    free_ports,
    own_home,
)

pytestmark = pytest.mark.usefixtures("committed_tables")
QUOTA = 4


@pytest.fixture(autouse=True)
def _home(settings: Any, tmp_path: Path) -> Any:
    with own_home(settings, tmp_path / "home"):
        yield


def make_pool(name: str, first: int, count: int, **more: Any) -> Pool:
    return create_pool(
        {
            "name": name,
            "provider": {"kind": "forwarder", "health": {"enabled": False}, "drain": "0s"},
            "slots": {
                "ports": f"{first}-{first + count - 1}",
                "protocols": ["tcp", "udp"],
                "quota": QUOTA,
            },
            "backends": {"networks": ["127.0.0.1/32"], "ports": "1-65535"},
            "members": {"min": 0, "max": 4},
            "scaling": {"policy": "on_demand", "cooldown": {"up": "0s", "down": "0s"}},
            **more,
        }
    )


def cycle(*pools: Pool) -> None:
    serve()
    scale_pools([pool.pk for pool in pools])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_operation SET due_at = now() WHERE done_at IS NULL")
    while perform_due("forwarder"):
        pass
    for pool in pools:
        observe_pool(Pool.objects.get(pk=pool.pk))
    serve()


def places(member: Member, first: int) -> set[tuple[str, int]]:
    """Lane and offset of the slots that the member offers."""
    rows = Slot.objects.filter(member=member).exclude(state="retired")
    return {(row.lane, row.number - first) for row in rows}


def state_of(claim: ClaimView) -> str:
    return again(claim).state


def test_pool_of_forwarders_grows_on_one_address_and_serves_each_claim() -> None:
    first = free_ports(20)
    pool = make_pool("game-eu", first, 20)
    claims = [ask("game-eu", kind="tcp") for _ in range(5)]
    for _ in range(6):
        cycle(pool)
    assert [state_of(claim) for claim in claims] == ["bound"] * 5
    numbers = [slot.number - first for claim in claims for slot in again(claim).slots]
    assert numbers == [0, 1, 2, 3, 4], "two listeners of TCP for each forwarder"
    last = again(claims[-1])
    with TcpTarget("room ") as target:
        backend = BackendRequest(LOCALHOST, port=target.at[1])
        set_backend(claim_id=last.id, generation=last.generation, backend=backend)
        cycle(pool)
        assert again(last).is_ready
        assert ask_tcp(first + 4) == b"room hello"
    assert Member.objects.filter(state="ready").count() == 3
    assert {len(member.foreign_listeners) for member in Member.objects.all()} == {0}
    assert is_sound() and not list(find_wrong_places()) and list_drift() == []


def test_new_forwarder_offers_the_next_ports_and_keeps_them() -> None:
    pool = make_pool("games", 20_000, 20)
    one, two = add_members(pool_id=pool.pk, declared=["one", "two"])
    assert places(one, 20_000) == {(lane, i) for lane in ("tcp", "udp") for i in (0, 1)}
    assert places(two, 20_000) == {(lane, i) for lane in ("tcp", "udp") for i in (2, 3)}
    Member.objects.filter(pk=one.pk).update(state="gone")
    Slot.objects.filter(member=one).update(state="retired")
    assert not list(find_wrong_places()), "it keeps its ports though lower ones are free"
    (three,) = add_members(pool_id=pool.pk, declared=["three"])
    assert places(three, 20_000) == {(lane, i) for lane in ("tcp", "udp") for i in (0, 1)}


def test_forwarders_of_all_pools_share_the_ports_of_their_address() -> None:
    games = make_pool("games", 20_000, 4)
    more = make_pool("more", 20_001, 20)
    add_members(pool_id=games.pk, declared=["one"])
    (two,) = add_members(pool_id=more.pk, declared=["two"])
    assert places(two, 20_000) == {(lane, i) for lane in ("tcp", "udp") for i in (2, 3)}


def test_listeners_of_other_forwarders_are_not_foreign() -> None:
    pool = make_pool("games", 20_000, 20)
    one, two = add_members(pool_id=pool.pk, declared=["one", "two"])
    record_foreign_listeners({two.pk: [("tcp", 20_000), ("udp", 20_003), ("tcp", 20_009)]})
    two.refresh_from_db()
    assert [tuple(each) for each in two.foreign_listeners] == [("tcp", 20_009), ("udp", 20_003)]
    assert places(two, 20_000) == {("tcp", 2), ("udp", 2)}, "its own ports, without two places"
    assert len(places(one, 20_000)) == QUOTA


def test_forwarders_with_addresses_of_their_own_offer_the_same_ports(settings: Any) -> None:
    settings.BERTH_FORWARDER_BIND = ["127.77.0.0/24"]
    pool = make_pool("games", 20_000, 20)
    one, two = add_members(pool_id=pool.pk, declared=["one", "two"])
    assert places(one, 20_000) == places(two, 20_000)


def test_used_up_range_stops_the_growth_and_is_the_reason_of_the_wait() -> None:
    pool = make_pool("games", 20_000, 3)
    Pool.objects.update(state="active")
    add_members(pool_id=pool.pk, declared=["one", "two"])
    Member.objects.update(state="ready")
    Slot.objects.update(is_open=True)
    holder, waiting = ask("games", kind="tcp", size=3), ask("games", kind="tcp")
    assert (state_of(holder), state_of(waiting)) == ("bound", "waiting")
    scale_pools([pool.pk])
    used_up = "the ports 20000-20002 are used up on the address that all members share"
    assert Member.objects.count() == 2
    assert used_up in Decision.objects.latest("id").reason
    wait = again(waiting, explain=True).wait
    assert wait is not None and wait.text == "All 3 tcp slots are taken: 3 held"
    assert wait.unblock == [
        f"The range of ports becomes wider: {used_up}",
        f"Claim {holder.id} ends",
    ]
    with pytest.raises(Refused) as caught:
        add_members(pool_id=pool.pk, declared=["three"])
    assert caught.value.code == "no_free_ports"
    assert Member.objects.count() == 2
