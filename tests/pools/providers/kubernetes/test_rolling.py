"""A changed template renews each pod of a pool one by one, idle ones first; a pod that never
becomes ready stops the roll.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection

from claims import claims_sql
from claims.scaling.scaler import scale_pools
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Decision, Member, Pool
from project.dashboard.installation import list_problems
from project.kernel.outbox.operations import perform_due
from slots.members.liveness import mark_ready
from slots.members.restart import apply_condition
from slots.members.services import clean_slot
from slots.models import Slot
from slots.sync.watcher import observe_pool
from tests.kubernetes_cluster.clusters import Thing
from tests.kubernetes_cluster.kubelet import Kubelet
from tests.kubernetes_cluster.namespace import Space
from tests.kubernetes_cluster.plugin import WORLDS
from tests.pools.providers.kubernetes.harness import KubeHarness
from tests.slots.helpers import give_back, hold, is_consistent

pytestmark = pytest.mark.django_db(transaction=True)
OLD, NEW, BAD = (f"registry.example/agent:{tag}" for tag in ("1", "2", "bad"))
# A program that is no agent: the test reports the member as ready.
STAYS = ["python3", "-c", "import signal; signal.pause()"]
ENDS = ["python3", "-c", "raise SystemExit(3)"]
LOW = 2


@dataclass
class Fleet:
    """A pool of two, with one more where there is room."""

    bench: KubeHarness
    kubelet: Kubelet
    high: int = 3
    hushed: bool = False  # agents that are started from now on never say a word

    @property
    def space(self) -> Space:
        return self.bench.space

    @property
    def pool(self) -> Pool:
        return Pool.objects.get()

    def config(self, image: str, low: int, command: list[str]) -> dict[str, Any]:
        template = {"image": image, "command": command}
        return {
            "name": "lab",
            "provider": {"kind": "kubernetes", **self.bench.good_options, "template": template},
            "slots": ["any"],
            "members": {"min": low, "max": self.high},
            "scaling": {
                "policy": "on_demand",
                "idle_for": "never",
                "cooldown": {"up": "0s", "down": "0s"},
            },
        }

    def make(self) -> None:
        observe_pool(create_pool(self.config(OLD, LOW, STAYS)))
        self.turn()
        self.turn()
        assert self.images() == {"lab-1": OLD, "lab-2": OLD}

    def change(self, image: str, command: list[str] = STAYS) -> None:
        update_pool("lab", self.config(image, LOW, command))

    def pods(self) -> list[Thing]:
        return [pod for pod in self.space.pods() if pod["metadata"]["name"] != "theirs"]

    def uids(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.pods()}

    def images(self) -> dict[str, str]:
        """Images of the pods, by the names of their members."""
        names = dict(Member.objects.exclude(state="gone").values_list("id", "name"))
        found = {
            names[int(p["metadata"]["labels"]["berth.dev/member"])]: p["spec"]["containers"][0][
                "image"
            ]
            for p in self.pods()
        }
        assert len(found) == len(self.pods()), "no member has two"
        return dict(sorted(found.items()))

    def turn(self, seconds: float = 60.0) -> str:
        """Makes a decision and performs its operations; the kubelet works, and a
        minute passes.
        """
        scale_pools([self.pool.pk])
        for _ in range(2):  # a new pod waits for the end of the old one
            with connection.cursor() as cursor:
                cursor.execute("UPDATE kernel_operation SET due_at = now() WHERE done_at IS NULL")
            perform_due("kubernetes")
            self.space.until(self.is_quiet)
        observe_pool(self.pool)
        running = Member.objects.filter(state="creating", external_id__in=self.list_running())
        assert {member.outside for member in running} <= {"its agent has not connected yet"}
        for member in Member.objects.exclude(state="gone"):
            apply_condition(member.pk)
        for member in Member.objects.filter(state="creating", external_id__in=self.list_running()):
            if not self.hushed:
                mark_ready(member_id=member.pk, incarnation=member.incarnation)
        assert not Member.objects.filter(state="ready").exclude(outside="").exists()
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE pools_member SET state_at = state_at - make_interval(secs => %s)", [seconds]
            )
        last = Decision.objects.order_by("-last_at", "-id").first()
        return "" if last is None else str(last.inputs["step"])

    def list_running(self) -> list[str]:
        running = [pod for pod in self.pods() if pod["status"]["phase"] == "Running"]
        return [f"{pod['metadata']['name']}/{pod['metadata']['uid']}" for pod in running]

    def is_quiet(self) -> bool:
        """What was asked to go is gone, what was made runs, has ended, or says why not."""

        def is_settled(pod: Thing) -> bool:
            waits = any(
                each["state"].get("waiting")
                for each in pod["status"].get("containerStatuses") or ()
            )
            runs = pod["status"]["phase"] != "Pending" and (
                self.ends(pod) <= (pod["status"]["phase"] == "Failed")
            )
            return "deletionTimestamp" not in pod["metadata"] and (
                runs or waits or self.kubelet.held.is_set()
            )

        return all(is_settled(pod) for pod in self.pods())

    def ends(self, pod: Thing) -> bool:
        return bool(pod["spec"]["containers"][0]["command"] == ENDS)


@pytest.fixture(params=list(WORLDS))
def fleet(request: pytest.FixtureRequest, settings: Any) -> Iterator[Fleet]:
    bench = KubeHarness(WORLDS[request.param])
    with bench.world_of_its_own(request, settings), Kubelet(bench.space) as kubelet:
        yield Fleet(bench, kubelet)
        assert is_consistent()


def reserve(claim: int, generation: int) -> int:
    """Reserves the slot, as for a plan that waits for approval."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE claims_claim SET step = 'plan' WHERE id = %s", [claim])
        cursor.execute(
            "INSERT INTO claims_plan (claim_id, generation, digest) VALUES (%s, %s, 'x')",
            [claim, generation],
        )
    (row,) = claims_sql.reserve(claim=claim, generation=generation, ttl="1 day", actor="agent")
    return int(row.generation)


def end(claim: int, slot: int, generation: int) -> None:
    """Ends a claim and confirms that its slot is clean."""
    give_back(claim, generation)
    assert clean_slot(slot_id=slot, generation=Slot.objects.get(pk=slot).generation)


def test_roll_renews_each_pod_without_reducing_capacity(fleet: Fleet) -> None:
    fleet.make()
    fleet.change(NEW)
    steps, most, least = [], 0, 9
    for _ in range(12):
        steps.append(fleet.turn())
        most, least = (
            max(most, len(fleet.pods())),
            min(least, Member.objects.filter(state="ready").count()),
        )
    assert [step for step in steps if step] == ["surge", "swap", "surge", "swap"]
    assert fleet.images() == {"lab-3": NEW, "lab-4": NEW}
    assert (most, least) == (3, 2), (
        "never more pods than the most, never fewer ready than the least"
    )
    assert fleet.space.names("secrets").count("theirs") + 2 == len(fleet.space.names("secrets")), (
        "no Secret is left over"
    )
    assert fleet.kubelet.killed == [], "each ended when it was asked"


@pytest.mark.parametrize("high", [3, 2], ids=["one more first", "in its place"])
def test_pod_in_use_is_renewed_only_once_it_is_free(fleet: Fleet, high: int) -> None:
    fleet.make()
    fleet.high = high
    held, waiting = hold(fleet.pool, lane="any"), hold(fleet.pool, lane="any")
    waiting = (*waiting[:2], reserve(waiting[0], waiting[2]))
    members = {claim: Slot.objects.get(pk=slot).member for claim, slot, _ in (held, waiting)}
    before = fleet.uids()
    fleet.change(NEW)
    for _ in range(5):
        fleet.turn()
    assert before.items() <= fleet.uids().items(), (
        "a run and a plan that waits for a person are both in use"
    )
    kept = members[waiting[0]].external_id
    end(*held)
    for _ in range(5):
        fleet.turn()
    assert kept.partition("/")[2] in fleet.uids().values()
    assert members[held[0]].external_id.partition("/")[2] not in fleet.uids().values(), (
        "it was free"
    )
    assert fleet.images()[members[waiting[0]].name] == OLD
    end(*waiting)
    for _ in range(5):
        fleet.turn()
    assert list(fleet.images().values()) == [NEW, NEW]
    assert sorted(fleet.images()) == (["lab-3", "lab-4"] if high == 3 else ["lab-1", "lab-2"])


NEVER = {
    "its image is not there": "ImagePullBackOff: Back-off pulling",
    "no node takes it": "it waits for a node",
    "it ends at once": "ended with 3: its token was refused",
    "it is not admitted": "The cluster does not admit the pod",
    "its agent does not come": "its agent has not connected yet",
}


@pytest.mark.parametrize("how", list(NEVER))
def test_pod_that_never_becomes_ready_stops_the_roll_with_a_reason(fleet: Fleet, how: str) -> None:
    fleet.make()
    before = fleet.uids()
    fleet.kubelet.refused[BAD] = 'Back-off pulling image "registry.example/agent:bad"'
    if how == "no node takes it":
        fleet.kubelet.held.set()
    if how == "it is not admitted":
        fleet.space.world.refuse(
            "create", 403, 99, plural="pods", message="pods is forbidden: no such image here"
        )
    fleet.hushed = how == "its agent does not come"
    fleet.change(*((NEW, ENDS) if how == "it ends at once" else (BAD if "image" in how else NEW,)))
    assert fleet.turn() == "surge"
    steps = list[str]()
    while "stop" not in steps[:-3] and len(steps) < 30:
        steps.append(fleet.turn(300))
    assert [step for step in steps if step] == ["stop"], "and nothing after it"
    pool = fleet.pool
    assert pool.roll_stopped_at is not None
    assert pool.roll_stop_reason.startswith("lab-3 is not ready after ")
    assert NEVER[how] in pool.roll_stop_reason
    assert any(
        trouble.lead == "roll of lab:" and NEVER[how] in trouble.text for trouble in list_problems()
    )
    assert NEVER[how] in Member.objects.get(name="lab-3").outside
    assert before.items() <= fleet.uids().items(), "the others are as they were"
    fleet.kubelet.held.clear()
    fleet.space.world.heal()
    fleet.hushed = False
    fleet.change("registry.example/agent:3")
    renewed = ["registry.example/agent:3"] * 2
    turns = 0
    while list(fleet.images().values()) != renewed and turns < 14:
        turns += 1
        fleet.turn()
    assert list(fleet.images().values()) == renewed
    assert fleet.pool.roll_stopped_at is None
