"""P9: foreign listeners that the provider sees take their numbers and their part of the quota."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from pools.lifecycle.services import create_pool, update_pool
from pools.models import Member, Pool
from project.kernel.outbox.operations import perform_due
from slots.doctor.checks import find_wrong_places
from slots.members import members_sql
from slots.models import Slot
from slots.sync.foreign_listeners import record_foreign_listeners
from slots.sync.watcher import observe_pool
from tests.pools.providers.fake_providers import ALL, CraneProvider, fresh
from tests.slots.helpers import give_back, hold, is_consistent, places
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> Iterator[None]:
    settings.BERTH_PROVIDERS = ALL
    fresh()
    yield
    assert is_consistent()
    assert list(find_wrong_places()) == []


def docks(quota: int = 3, span: str = "30000-30009", **slots: Any) -> tuple[Pool, int]:
    """A pool of ports with one load balancer, which is ready."""
    layout = {"ports": span, "quota": quota, **({"shared": True} | slots)}
    if "protocols" in slots:
        del layout["shared"]
    pool = create_pool(
        {"name": "docks", "provider": "crane", "slots": layout, "members": {"list": ["a"]}}
    )
    perform_due("crane")
    observe_pool(pool)
    return pool, Member.objects.get().pk


def see(member: int, *listeners: tuple[str, int]) -> None:
    """A full look that sees these foreign listeners on the member."""
    CraneProvider.world.foreign_listeners = {
        (f"docks/{member}", lane, number) for lane, number in listeners
    }
    observe_pool(Pool.objects.get())


def test_listener_outside_of_the_range_takes_a_place_in_the_quota() -> None:
    _, member = docks()
    assert places(member) == [("port", 30000), ("port", 30001), ("port", 30002)]
    see(member, ("port", 443))
    assert places(member) == [("port", 30000), ("port", 30001)]
    see(member)
    assert places(member) == [("port", 30000), ("port", 30001), ("port", 30002)]


def test_number_of_a_foreign_listener_is_skipped() -> None:
    _, member = docks()
    see(member, ("port", 30000))
    assert places(member) == [("port", 30001), ("port", 30002)]


def test_listener_of_one_lane_leaves_the_number_in_the_other_lane() -> None:
    _, member = docks(quota=4, protocols=["tcp", "udp"])
    see(member, ("udp", 30000))
    assert places(member) == [("tcp", 30000), ("tcp", 30001), ("udp", 30001)]
    see(member, ("http", 30000))
    assert places(member) == [("tcp", 30001), ("udp", 30001), ("tcp", 30002)]


def test_declared_listener_that_is_seen_too_counts_once() -> None:
    _, member = docks(foreign=[443])
    assert len(places(member)) == 2
    see(member, ("port", 443))
    assert len(places(member)) == 2
    see(member, ("port", 443), ("port", 8443))
    assert len(places(member)) == 1


def test_held_slot_stays_and_the_quota_is_kept_once_its_claim_has_left() -> None:
    pool, member = docks()
    holds = [hold(pool, lane="port") for _ in range(3)]
    see(member, ("port", 443), ("port", 80))
    assert Slot.objects.filter(state="held").count() == 3
    give_back(holds[2][0], holds[2][2])
    perform_due("crane")
    see(member, ("port", 443), ("port", 80))
    assert places(member) == [("port", 30000), ("port", 30001)], "5 listeners are beyond the quota"
    give_back(holds[0][0], holds[0][2])
    perform_due("crane")
    see(member, ("port", 443), ("port", 80))
    assert places(member) == [("port", 30001)], "a held slot and two foreign listeners"


def test_change_of_the_pool_keeps_the_listeners_that_were_seen() -> None:
    pool, member = docks()
    see(member, ("port", 30000))
    update_pool("docks", {**_config(pool), "slots": {**_config(pool)["slots"], "foreign": [30001]}})
    assert places(member) == [("port", 30002)]


def test_sync_reports_foreign_listeners_too() -> None:
    pool, member = docks()
    CraneProvider.world.foreign_listeners = {(f"docks/{member}", "port", 30002)}
    hold(pool, lane="port")
    perform_due("crane")
    assert places(member) == [("port", 30000), ("port", 30001)]


def test_slot_that_a_claim_takes_meanwhile_is_not_withdrawn() -> None:
    """The look waits for the claim that is being bound. Red without the locks of lock_slots and
    retire_slots: the look withdrew the slot under its claim, and the database refused it.
    """
    pool, member = docks(quota=1)
    bound: list[int] = []
    is_held, may_commit = threading.Event(), threading.Event()

    def bind() -> None:
        with transaction.atomic():
            bound.append(hold(pool, lane="port")[1])
            is_held.set()
            assert may_commit.wait(10)
        connection.close()

    def look() -> None:
        record_foreign_listeners({member: [("port", 443)]})
        connection.close()

    binder = threading.Thread(target=bind)
    binder.start()
    assert is_held.wait(10)
    watcher = threading.Thread(target=look)
    watcher.start()
    wait_until(_is_any_waiting)
    may_commit.set()
    binder.join()
    watcher.join()
    slot = Slot.objects.get(pk=bound[0])
    assert slot.state == "held"
    assert [row.state for row in members_sql.holders(members=[member])] == ["held"]
    assert Member.objects.get().foreign_listeners == [["port", 443]]


def _is_any_waiting() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND datname = current_database()"
        )
        return bool(cursor.fetchone()[0])


def _config(pool: Pool) -> dict[str, Any]:
    return {
        "name": pool.name,
        "provider": "crane",
        "slots": pool.spec["slots"],
        "members": {"list": ["a"]},
    }
