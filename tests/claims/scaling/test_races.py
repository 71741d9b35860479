"""Races of scalers with each other, with people and with claims. Two tests show what happens
without the lock.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from claims.scaling import scaling_sql
from claims.scaling.scaler import scale_pools
from pools.models import Decision, Member, Pool
from project.kernel.outbox.operations import perform_due
from slots.members.services import add_members
from slots.sync.watcher import observe_pool
from tests.claims.scaling.scale_beside_bind import scale_beside_a_bind
from tests.claims.scaling.test_scaler import config, make, names, old, work
from tests.pools.providers.fake_providers import ALL, fresh
from tests.slots.concurrent_actors import Actor, Gate
from tests.slots.helpers import give_back, hold, is_consistent
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> Iterator[None]:
    settings.BERTH_PROVIDERS = ALL
    fresh()
    yield
    assert is_consistent()


@pytest.fixture
def without_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same statement without its lock."""
    monkeypatch.setitem(
        scaling_sql.statements.texts, "lock_scaled", scaling_sql.statements.texts["read_scaled"]
    )


def idle(count: int) -> Pool:
    pool = make(low=count)
    scale_pools([pool.pk])
    work()
    observe_pool(pool)
    Pool.objects.filter(pk=pool.pk).update(min_members=0)
    old(pool, 700)
    return pool


def deltas() -> list[int]:
    return sorted(Decision.objects.exclude(delta=0).values_list("delta", flat=True))


def test_two_scalers_create_the_wanted_members_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make(low=2, high=3)
    gate = Gate().before(monkeypatch, "claims.scaling.scaler.add_member_rows")
    first = gate.stops(lambda: scale_pools([pool.pk]))
    assert scale_pools([pool.pk]) == {}, "somebody has it: next time"
    gate.open()
    assert first.result()[pool.pk].delta == 2
    assert scale_pools([pool.pk])[pool.pk].delta == 0
    assert (names(pool), deltas()) == (["lab-1", "lab-2"], [2])


def test_two_scalers_remove_a_surplus_member_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = idle(3)
    gate = Gate().before(monkeypatch, "claims.scaling.scaler.delete_if_empty")
    first = gate.stops(lambda: scale_pools([pool.pk]))
    second = Actor(lambda: scale_pools([pool.pk])).begin()
    assert second.until_blocked_or_done() == "done"
    gate.open()
    assert first.result()[pool.pk].delta == -1
    assert second.result() == {}
    assert (len(Member.objects.filter(pool=pool, state="deleting")), deltas()) == (1, [-1, 3])


@pytest.mark.usefixtures("without_lock")
def test_without_the_lock_two_scalers_decide_on_the_same_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = idle(3)
    gate = Gate().before(monkeypatch, "claims.scaling.scaler.delete_if_empty")
    first = gate.stops(lambda: scale_pools([pool.pk]))
    second = Actor(lambda: scale_pools([pool.pk])).begin()
    second.until_blocked_or_done()
    gate.open()
    first.result()
    second.result()
    assert deltas() == [-1, -1, 3], "one went, and two decisions say they took it away"


@pytest.mark.usefixtures("without_lock")
def test_without_the_lock_the_second_scaler_fails_on_taken_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = make(low=2, high=3)
    gate = Gate().before(monkeypatch, "claims.scaling.scaler.add_member_rows")
    first = gate.stops(lambda: scale_pools([pool.pk]))
    assert scale_pools([pool.pk])[pool.pk].delta == 2
    gate.open()
    assert first.result()[pool.pk].verdict == "failed"
    assert names(pool) == ["lab-1", "lab-2"]


def test_a_person_and_a_scaler_together_stay_within_the_maximum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """add_members locks the pool and waits for the scaler; without the scaler's lock it did not
    wait, and counted too few.
    """
    pool = make(low=2, high=3)
    gate = Gate().before(monkeypatch, "claims.scaling.scaler.add_member_rows")
    scaler = gate.stops(lambda: scale_pools([pool.pk]))
    person = Actor(lambda: add_members(pool_id=pool.pk, declared=["mine", "yours"])).begin()
    assert person.until_blocked_or_done() == "blocked"
    gate.open()
    scaler.result()
    with pytest.raises(Exception, match="of at most 3"):
        person.result()
    assert Member.objects.filter(pool=pool).count() == 2


def test_a_bind_that_is_faster_than_the_scaler_keeps_its_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """delete_if_empty closes the slots, which waits for a bind under way, and asks whether they are
    empty afterwards.
    """
    pool = idle(1)
    (claim, _, generation), decision = scale_beside_a_bind(pool)
    assert (decision.delta, decision.verdict, [j.why for j in decision.spared][:1]) == (
        0,
        "hold",
        ["taken meanwhile"],
    )
    assert (names(pool), is_consistent()) == (["lab-1"], True)
    give_back(claim, generation)


def test_a_bind_that_is_slower_than_the_scaler_finds_no_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = idle(1)
    gate = Gate().after(monkeypatch, "claims.scaling.scaler.delete_if_empty")
    scaler = gate.stops(lambda: scale_pools([pool.pk]))
    with pytest.raises(AssertionError, match="no slot is free"):
        hold(pool)
    gate.open()
    assert scaler.result()[pool.pk].delta == -1


SCALE = """
import os, signal, sys
import django
django.setup()
from django.db import connection
connection.settings_dict["NAME"] = sys.argv[1]
with connection.cursor() as cursor:
    cursor.execute("SET idle_in_transaction_session_timeout = '2s'")  # 10 s in production
from claims.scaling import scaler
from project.kernel.actor import acting_as
act = scaler.execute_decision
def stop(subject, decision):
    print("deciding", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    return act(subject, decision)
if sys.argv[3] == "before":
    scaler.execute_decision = stop
with acting_as("scale"):
    try:
        print(scaler.scale_pools([int(sys.argv[2])]), flush=True)
    except Exception as error:
        print("lost", type(error).__name__, flush=True)
"""


@pytest.mark.parametrize("ending", ["SIGCONT", "SIGKILL"])
def test_a_scaler_frozen_before_its_rows_changes_the_pool_once(
    ending: str,
) -> None:
    """The scaler is a process that stops while it holds the pool's lock. The database ends its
    transaction after `idle_in_transaction_session_timeout`.
    """
    pool = make(low=2, high=3)
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.claims.scaling.settings"}
    command = [
        sys.executable,
        "-c",
        SCALE,
        connection.settings_dict["NAME"],
        str(pool.pk),
        "before",
    ]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "deciding\n"
        assert scale_pools([pool.pk]) == {}, "it has the lock"
        if ending == "SIGKILL":
            process.kill()
        found = wait_until(lambda: scale_pools([pool.pk]), "the scaler's lock is never released")
        assert found[pool.pk].delta == 2
        if ending == "SIGCONT":
            process.send_signal(signal.SIGCONT)
            assert process.stdout.readline().startswith("lost"), (
                "it has to see that its transaction is over"
            )
        process.wait(20)
    finally:
        process.kill()
        process.wait(20)
        process.stdout.close()
    work()
    assert (names(pool), deltas()) == (["lab-1", "lab-2"], [2])
    assert perform_due("crane") == 0
    assert Pool.objects.get(pk=pool.pk).max_members == config(high=3)["members"]["max"]
