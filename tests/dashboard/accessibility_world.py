"""What the checks of accessibility look at: pools, claims, plans and orders in many states."""

import re
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from claims.lifecycle.chores import lose_claims
from claims.ports.evacuation.orders import evacuate_member
from claims.ports.evacuation.returns import list_returnable
from claims.scaling.roll_orders import pause_roll
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Member, Pool
from pools.roles.services import create_grant
from project.sample.services import GROUP, read_configs
from slots.members.drain import drain_member
from slots.members.liveness import lose_member
from slots.members.services import cordon_member, pause_pool, remove_member
from slots.sync.quarantine import quarantine_slot
from slots.sync.stray_orders import delete_stray
from slots.sync.strays import Stray
from tests.api.world import World, build
from tests.claims.helpers import ws
from tests.claims.ports.evacuation.helpers import step
from tests.claims.tasks.approvals import helpers as approvals
from tests.claims.tasks.plans import helpers as plans
from tests.dashboard import test_pool_scaling, test_scaling_overview
from tests.dashboard.helpers import claim, make_pool, member, slot_of
from tests.dashboard.ports_world import drift_ports, hold_ports, make_ports, with_crane, work
from tests.dashboard.test_page_permissions import CLAIM, MEMBER, POOL, ROWS, path_of
from tests.pools.providers.fake_providers import fresh

SCALING = f"{POOL}scaling/"
PATHS: dict[str, tuple[str, ...]] = {
    "": ("/",),
    "claims/": ("/claims/", "/claims/?q=", "/claims/?q=pool:env"),
    "events/": ("/events/", "/events/?at=now"),
    "scaling/": ("/scaling/?view=pools", "/scaling/?view=freezes"),
    "claims/release/": ("/claims/release/?claim={held}",),
    "claims/cancel/": ("/claims/cancel/?claim={waiting}",),
    "claims/prioritise/": ("/claims/prioritise/?claim={waiting}",),
    "approvals/approve/": ("/approvals/approve/?claim={network}&claim={huge}",),
    "approvals/reject/": ("/approvals/reject/?claim={network}",),
    "approvals/extend/": ("/approvals/extend/?claim={network}",),
    CLAIM: (
        "/claims/{held}/", "/claims/{waiting}/", "/claims/{network}/", "/claims/{huge}/",
        "/claims/{failed}/", "/claims/{lost}/", "/claims/{ported}/",
    ),
    f"{CLAIM}backend/": ("/claims/{ported}/backend/",),
    f"{CLAIM}cancel/": ("/claims/{waiting}/cancel/", "/claims/{network}/cancel/"),
    f"{CLAIM}prioritise/": ("/claims/{waiting}/prioritise/",),
    **{
        f"{CLAIM}{action}/": (f"/claims/{{network}}/{action}/",)
        for action in ("approve", "reject", "extend", "plan-again", "move")
    },
    POOL: (
        "/pools/env/", "/pools/env/?tab=queue", "/pools/env/?tab=policy", "/pools/env/?tab=events",
        "/pools/dense/", "/pools/runs/", "/pools/runs/?tab=policy", "/pools/old/?tab=scaling",
        "/pools/tf/?tab=scaling", "/pools/runs/?member=runs-06",
        "/pools/ports/?tab=ports", "/pools/ports/?tab=ports&only=findings",
        "/pools/wide/?tab=ports",
    ),
    "pools/new/": ("/pools/new/", "/pools/new/?as=file"),
    f"{POOL}edit/": ("/pools/env/edit/",),
    f"{POOL}delete/": ("/pools/env/delete/",),
    f"{POOL}pause/": ("/pools/env/pause/",),
    f"{POOL}resume/": ("/pools/dense/resume/",),
    f"{POOL}drain/": ("/pools/runs/drain/", "/pools/runs/drain/?member=runs-01"),
    **{
        f"{SCALING}{order}/": (f"/pools/{pool}/scaling/{order}/",)
        for order, pool in (
            ("pin", "quiet"), ("unpin", "pinned"), ("pause", "quiet"), ("resume", "held"),
            ("grow", "quiet"), ("roll", "old"), ("pause-roll", "old"), ("resume-roll", "late"),
            ("unfreeze", "frozen"),
        )
    },
    f"{SCALING}refreeze/": ("{refreeze}",),
    **{
        f"{MEMBER}{action}/": (f"/members/{{{name}}}/{action}/",)
        for action, name in (
            ("cordon", "free"), ("uncordon", "cordoned"), ("remove", "free"), ("keep", "leaving"),
            ("restart", "local"), ("rotate", "local"), ("token", "busy"), ("drain", "busy"),
            ("force-drain", "busy"), ("undrain", "draining"), ("evacuate", "door"),
            ("undo-evacuation", "evacuated"),
        )
    },
    f"{MEMBER}return-claim/<id:claim_id>/": ("/members/{evacuated}/return-claim/{arrived}/",),
    "slots/<id:slot_id>/claim/": ("/slots/{slot}/claim/",),
    "slots/<id:slot_id>/repair/": ("/slots/{missing}/repair/", "/slots/{foreign}/repair/"),
    "slots/<id:slot_id>/quarantine/": ("/slots/{foreign}/quarantine/",),
    "slots/<id:slot_id>/end-quarantine/": ("/slots/{orphan}/end-quarantine/",),
    "pools/<str:name>/strays/<id:stray_id>/adopt/": ("/pools/doors/strays/900000002/adopt/",),
    "pools/<str:name>/strays/<id:stray_id>/delete/": ("/pools/doors/strays/900000002/delete/",),
    "pools/<str:name>/strays/<id:stray_id>/keep/": ("/pools/doors/strays/900000003/keep/",),
    "workspaces/<path:name>/": (
        "/workspaces/network/", "/workspaces/busy/net/stage/", "/workspaces/twin/",
    ),
    "workspace/lock/<path:name>/": ("/workspace/lock/one/shared/",),
    "workspace/share/<path:name>/": ("/workspace/share/one/shared/",),
    "workspace/settle/<path:name>/": ("/workspace/settle/busy/net/stage/",),
}  # fmt: skip


@dataclass
class Shown:
    world: World
    user: int
    values: dict[str, Any]

    def fill(self, path: str) -> str:
        return path.format(**self.values)

    def list_paths(self, route: str) -> list[str]:
        """Where the page is worth looking at; else where the permissions are checked."""
        if route in PATHS:
            return [self.fill(path) for path in PATHS[route]]
        return [self.values[route]]


def build_shown() -> Shown:
    """All that is shown, to a person with every role."""
    world = build()
    user = User.objects.get(username="holder")
    User.objects.filter(pk=user.pk).update(is_superuser=True, is_staff=True)
    create_grant(role="approver", user=user)
    values = fill_plain() | fill_runs() | fill_lost() | fill_scaled(user) | fill_ports()
    values |= {route: path_of(route, world) for route in ROWS if route not in PATHS}
    return Shown(world, user.pk, values)


def in_hours(hours: float) -> Any:
    return timezone.now() + timedelta(hours=hours)


def fill_plain() -> dict[str, Any]:
    make_pool(members=2, slots=1, description="Test environments", group="Environments")
    dense = make_pool("dense", members=61, slots=3)
    sample = make_pool(read_configs()[0]["name"], group=GROUP)
    held = claim().id
    claim()
    waiting = claim(owner="branch:login").id
    make_pool("lb", members=2, slots={"ports": "30000-30049", "protocols": ["tcp", "udp"]})
    cordon_member(member_id=member("dense-3").pk, reason="disk warnings")
    remove_member(member_id=member("dense-4").pk, reason="too large")
    pause_pool(pool_id=dense.pk, until=in_hours(2), reason="a new network")
    return {
        "held": held,
        "waiting": waiting,
        "ported": claim("lb", ports="80/TCP,53/UDP").id,
        "free": member("dense-1").pk,
        "cordoned": member("dense-3").pk,
        "leaving": member("dense-4").pk,
        "slot": slot_of(f"{sample.name}-1").pk,
    }


def fill_ports() -> dict[str, Any]:
    """A map with differences, and one with too many ports for one map."""
    fresh()
    with with_crane:
        pool = make_ports("ports", members=2, shared=False, protocols=["tcp", "udp"], quota=20)
        hold_ports(pool, 3, 2)
        found = drift_ports(pool)
        make_ports("wide", members=2, ports="30000-31199", quota=1200)
        old = make_ports("old-doors", members=2)
        hold_ports(old, 2, 1)
        evacuated = member("old-doors-1").pk
        evacuate_member(member_id=evacuated, reason="under attack")
        step(evacuated)
        work(old)
        assert step(evacuated) == "arrived"
    (arrived,) = list_returnable(evacuated)
    quarantine_slot(slot_id=found["orphan"].pk, reason="it comes back")
    doors = create_pool(
        {
            "name": "doors",
            "provider": "forwarder",
            "slots": {"ports": "20000-20003", "protocols": ["tcp"]},
            "members": {"max": 2, "list": ["a"]},
        }
    )
    strays = [
        asdict(Stray(f"forwarder doors-b.{each}", False, timezone.now().isoformat(), each))
        for each in (900000002, 900000003)
    ]
    Pool.objects.filter(pk=doors.pk).update(strays=strays)
    delete_stray(pool_id=doors.pk, member_id=900000003, reason="it is not used")
    members = {
        "door": member("ports-1").pk, "evacuated": evacuated, "arrived": arrived.id,
    }  # fmt: skip
    return members | {kind: slot.pk for kind, slot in found.items()}


def fill_runs() -> dict[str, Any]:
    """Plans that wait, a failed one, and a member that drains."""
    plans.make_task_pool("runs", members=6)
    text = "\x1b[31mred\x1b[0m \x1b[7mswap\x1b[0m\n" * 30
    network = plans.planned(
        pool="runs", plan=plans.network_plan(), summary=plans.NETWORK, text=text
    )
    huge = plans.planned("huge", "runs", plan=plans.big_plan(200, 5), summary={"change": 200})
    failed = plans.task("broken", "runs", kind="plan")
    plans.begin(failed)
    plans.say(failed, "sh: terrafrm: not found\n")
    plans.finish(
        failed, "failed", code="command_not_found", reason="sh: terrafrm: not found", exit_code=127
    )
    busy = plans.begin(plans.task("other", "runs"))
    drain_member(member_id=member("runs-06").pk, reason="kernel patch", until=in_hours(1))
    return {
        "network": network.id,
        "huge": huge.id,
        "failed": failed.id,
        "busy": busy.pk,
        "draining": member("runs-06").pk,
    }


def fill_lost() -> dict[str, Any]:
    """An apply that was lost: its workspace is locked until a person settles it. Two pools have a
    workspace of the same name.
    """
    approvals.agents("busy", slots=("any", "plan"), members=2)
    lost = approvals.applying("busy", "net/stage")
    lose_member(member_id=approvals.member_of(lost).pk, reason="gone")
    lose_claims()
    for pool in ("runs", "busy"):
        ws("twin", pool)
    return {"lost": lost.id}


def fill_scaled(user: User) -> dict[str, Any]:
    """Pools under every kind of order, and a freeze ahead that an operator has lifted."""
    test_pool_scaling.fill()
    found = test_scaling_overview.fill()
    make = test_scaling_overview
    late = make.make("late", low=2, high=2, roll="manual")
    update_pool("late", make.config("late", low=2, high=2, roll="manual", env="UTC"))
    pause_roll(pool_id=late.pk, until=in_hours(2), reason="a release")
    client = Client()
    client.force_login(user)
    calendar = client.get("/scaling/?view=freezes").content.decode()
    ahead = re.findall(r'"(/pools/frozen/scaling/unfreeze/\?starts=[^"]+)"', calendar)[-1]
    client.post(ahead, {"reason": "a release"})
    return {
        "local": Member.objects.filter(pool=found["quiet"], state="ready")[0].pk,
        "refreeze": ahead.replace("unfreeze", "refreeze"),
    }
