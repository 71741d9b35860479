"""A pool of ports on the test provider `crane`, with listeners in many states."""

from datetime import timedelta
from typing import Any

from django.test import override_settings
from django.utils import timezone

from pools.lifecycle.services import create_pool
from pools.models import Member, Pool, Sample
from project.kernel.outbox.budgets import CallBudget, take_budget
from project.kernel.outbox.operations import perform_due
from slots.models import Slot
from slots.sync.watcher import observe_pool
from tests.dashboard.helpers import claim
from tests.pools.providers.fake_providers import ALL, CraneProvider, World

with_crane = override_settings(BERTH_PROVIDERS=ALL)
HEALTHY = {"target": "10.4.31.9:7777", "health": "healthy"}


def world() -> World:
    return CraneProvider.world


def make_ports(name: str = "game-eu", members: int = 3, **slots: Any) -> Pool:
    """Load balancers that are ready, without claims."""
    listed = [{"name": f"{name}-{n}"} for n in range(1, members + 1)]
    layout = {"ports": "30000-30019", "shared": True} | slots
    pool = create_pool(
        {
            "name": name,
            "provider": "crane",
            "slots": layout,
            "members": {"max": members + 2, "list": listed},
        }
    )
    work(pool)
    return pool


def work(pool: Pool) -> None:
    """Perform what is due, and look at the pool."""
    perform_due("crane")
    pool.refresh_from_db()
    observe_pool(pool)
    pool.refresh_from_db()


def hold_ports(pool: Pool, *sizes: int) -> list[int]:
    """Claims of these sizes, whose listeners exist and are healthy."""
    kind = "udp" if pool.lanes == ["port"] else pool.lanes[0]
    found = [
        claim(pool.name, kind=kind, owner=f"relay-{n}", size=size).id
        for n, size in enumerate(sizes, 1)
    ]
    perform_due("crane")
    for slot in Slot.objects.filter(pool=pool, state="held"):
        world().details[place_of(slot)] = {"protocol": kind, **HEALTHY}
    work(pool)
    return found


def place_of(slot: Slot) -> tuple[str, str, int]:
    return f"{slot.pool.name}/{slot.member_id}", slot.lane, slot.number


def port(pool: Pool, member: int, number: int) -> Slot:
    return Slot.objects.select_related("pool").get(
        pool=pool, member__name=f"{pool.name}-{member}", number=number, lane=pool.lanes[0]
    )


def drift_ports(pool: Pool) -> dict[str, Slot]:
    """One slot of each kind of difference, one whose target is not healthy yet, and two objects
    without a member.
    """
    held = iter(Slot.objects.filter(pool=pool, state="held").order_by("id"))
    idle = iter(Slot.objects.filter(pool=pool, state="idle").order_by("-id"))
    found = {
        "missing": next(held),
        "problem": next(held),
        "reserved": next(held),
        "orphan": next(idle),
        "foreign": next(idle),
    }
    places = {kind: place_of(slot) for kind, slot in found.items()}
    del world().listeners[places["missing"]]
    world().details[places["problem"]] |= {"problem": "certificate cert-9 does not exist"}
    world().details[places["reserved"]] |= {"health": "initial"}
    world().listeners[places["orphan"]] = "listener-left-over"
    world().foreign_listeners.add(places["foreign"])
    unknown = Member.objects.latest("pk").pk + 5000
    world().things[f"{pool.name}/{unknown}"] = "nlb-of-a-newer-copy"
    work(pool)
    return found


def sample_rise(pool: Pool, used: int, slots: int, hours: int = 6) -> None:
    """Samples of each minute, in which use rises to the present count."""
    now = timezone.now().replace(second=0, microsecond=0)
    minutes = hours * 60
    Sample.objects.bulk_create(
        Sample(
            pool=pool, at=now - timedelta(minutes=minutes - n), members=3, slots=slots,
            held=round(used * n / minutes), reserved=0, waiting=0,
        )
        for n in range(minutes)
    )  # fmt: skip


def set_budget(calls: int = 3) -> CallBudget:
    """A budget of which so many calls are spent."""
    budget = CallBudget("crane lab", rate=4.0, burst=20.0)
    world().budget = budget
    take_budget(budget.key, calls, rate=budget.rate, burst=budget.burst)
    return budget
