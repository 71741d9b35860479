"""A roll replaces a real agent of this machine by one with the new environment of its pool."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from claims.scaling.scaler import scale_pools
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Member, Pool
from project.kernel.embedded import detached
from project.kernel.embedded.detached import Process
from project.kernel.outbox.operations import perform_due
from slots.members.liveness import mark_ready
from slots.sync.watcher import observe_pool
from tests.pools.providers.local.helpers import agents_in, end_agents
from tests.slots.helpers import is_consistent

pytestmark = pytest.mark.django_db(transaction=True)


def config(zone: str, high: int = 1) -> dict[str, Any]:
    scaling = {"policy": "on_demand", "idle_for": "never", "cooldown": {"up": "0s", "down": "0s"}}
    members = {"min": 1 if high > 1 else 0, "max": high}
    provider = {"kind": "local", "env": {"TZ": zone}}
    return {
        "name": "lab",
        "provider": provider,
        "slots": ["any", "plan"],
        "members": members,
        "scaling": scaling,
    }


@pytest.fixture(autouse=True)
def _home(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.BERTH_HOME = tmp_path
    # No agent connects: the test reports the members as ready.
    monkeypatch.setenv("BERTH_AGENT_URL", "http://127.0.0.1:9/")
    yield
    end_agents(tmp_path)


def turn(pool: Pool) -> None:
    scale_pools([pool.pk])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_operation SET due_at = now() WHERE done_at IS NULL")
    perform_due("local")
    observe_pool(pool)
    for member in Member.objects.filter(pool=pool, state="creating"):
        mark_ready(member_id=member.pk, incarnation=member.incarnation)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pools_member SET state_at = state_at - interval '1 min' WHERE pool_id = %s",
            [pool.pk],
        )


def agents() -> dict[str, Process]:
    """The running agents, by the names of their members."""
    return {
        name.removeprefix("lab-"): process
        for name, process in agents_in(Path(settings.BERTH_HOME)).items()
    }


def zone_of(process: Process) -> str:
    words = Path(f"/proc/{process.pid}/environ").read_bytes().decode().split("\0")
    return next(word.removeprefix("TZ=") for word in words if word.startswith("TZ="))


@pytest.mark.parametrize("high", [1, 2], ids=["in its place", "one more first"])
def test_a_roll_replaces_an_idle_agent_by_one_with_the_new_environment(high: int) -> None:
    pool = create_pool(config("UTC", 2) | {"members": {"min": 1, "max": high}})
    observe_pool(pool)
    turn(pool)
    before = agents()
    assert {name: zone_of(process) for name, process in before.items()} == {"lab-1": "UTC"}
    update_pool("lab", config("Europe/Berlin", high))
    for _ in range(5):
        turn(pool)
    after = agents()
    assert [zone_of(process) for process in after.values()] == ["Europe/Berlin"]
    assert not detached.is_alive(before["lab-1"]), "the one before has ended"
    member = Member.objects.exclude(state="gone").get()
    assert (member.name, member.incarnation, member.is_outdated) == (
        ("lab-1", 2, False) if high == 1 else ("lab-2", 1, False)
    )
    assert is_consistent()
