"""All faults of a cluster, in the middle of a scale-up of one pool and a scale-in of another: no
pod too many, none left over, no busy pod deleted.

pytest tests/pools/providers/kubernetes/test_faults.py --fault-rounds 200      a longer run
pytest tests/pools/providers/kubernetes/test_faults.py --fault-seed 4711       the same faults once more
"""  # noqa: E501

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kubernetes_cluster.clusters import KubeWorld, Unanswered
from tests.pools.providers.kubernetes.stack_with_pods import Standing

POOLS = ("ebb", "flow")
MOST = 2  # members of a pool
PLANS = 3  # in each wave: more than one pod can do at once
WITHIN = 90.0
VICTIMS = {
    "scaler": "manage.py scale",
    "worker": "celery",
    "watcher": "manage.py watch",
    "finalizer": "manage.py finalize",
}


class Faults:
    """Each does its harm and mends it again, if that is not the product's business."""

    def __init__(self, standing: Standing, chance: random.Random) -> None:
        self.standing, self.world, self.chance = standing, standing.world, chance
        self.bag: list[str] = []
        self.kinds: dict[str, Callable[[], None]] = {
            "the server dies": self.restart,
            "the past is forgotten": self.world.expire,
            "every connection is cut": self.world.cut,
            "watches say nothing": self.mute,
            "429 storm": lambda: self.world.refuse("*", 429, times=12, retry_after=1),
            "500 storm": lambda: self.world.refuse("*", 500, times=6),
            "answers to creates are lost": lambda: self.world.refuse(
                "create", 0, times=2, plural="pods", is_after=True
            ),
            "answers to deletes are lost": lambda: self.world.refuse(
                "delete", 0, times=2, plural="pods", is_after=True
            ),
            "secrets are made and nobody hears of it": lambda: self.world.refuse(
                "create", 504, times=2, plural="secrets", is_after=True
            ),
            "a create is never answered": lambda: self.world.hang("create", plural="pods"),
            **{f"kill -9 of the {name}": lambda name=name: self.kill(name) for name in VICTIMS},  # type: ignore[misc]
        }

    def draw(self) -> str:
        """All of them once before any comes again."""
        if not self.bag:
            self.bag = sorted(self.kinds)
            self.chance.shuffle(self.bag)
        return self.bag.pop()

    def restart(self) -> None:
        self.world.kill()
        time.sleep(self.chance.uniform(0, 1))  # away for a while: no event says how long is worst
        self.world.start()

    def mute(self) -> None:
        self.world.mute(f"{self.standing.space.path}/pods")

    def kill(self, name: str) -> None:
        os.kill(self.standing.stack.wait_for_process(VICTIMS[name], 60), signal.SIGKILL)


class Counting:
    """Looks at the cluster all the time."""

    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.stopped = threading.Event()
        self.broken: list[str] = []
        self.pools: dict[str, str] = {}
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        while not self.stopped.wait(0.2):
            try:
                pods = self.standing.space.pods()
            except (Unanswered, AssertionError):
                continue  # the server is away
            there = Counter(
                pod["metadata"]["labels"]["berth.dev/pool"]
                for pod in pods
                if "deletionTimestamp" not in pod["metadata"]
                and pod["status"]["phase"] in ("Pending", "Running")
            )
            if too_many := {pool: count for pool, count in there.items() if count > MOST}:
                self.broken.append(f"{too_many}: {[pod['metadata']['name'] for pod in pods]}")

    def __enter__(self) -> "Counting":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join(30)


@pytest.fixture
def standing(best_kube: KubeWorld, target: Path, tmp_path: Path) -> Iterator[Standing]:
    standing = Standing(best_kube, tmp_path, target, pools=POOLS, apart=True)
    yield standing
    standing.close()


def test_cluster_faults_cause_no_surplus_leftover_or_deleted_busy_pod(
    standing: Standing, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--fault-seed") or random.SystemRandom().randrange(1, 10**6)
    print(f"seed {seed}, on the {standing.world.name} server")
    faults = Faults(standing, random.Random(seed))
    rounds = request.config.getoption("--fault-rounds") or len(faults.kinds)
    claims: list[int] = []
    slowest = 0.0
    with Counting(standing) as counting:
        for number in range(rounds):
            began = time.monotonic()
            pool = POOLS[number % 2]  # the other one scales in meanwhile
            wave = [standing.plan(pool, f"w-{number}-{n}", "sleep 1") for n in range(PLANS)]
            claims += wave
            # Some moment of the scale-up: no event says when it is the worst one.
            time.sleep(faults.chance.uniform(0, 2))
            kind = faults.draw()
            faults.kinds[kind]()
            print(f"round {number} of seed {seed}: {kind}", flush=True)
            standing.wait_ended(wave, WITHIN)
            standing.world.heal()
            slowest = max(slowest, time.monotonic() - began)
            assert counting.broken == [], f"round {number} of seed {seed}, {kind}"
        standing.wait_empty(WITHIN)
    print(f"the slowest round took {slowest:.1f} s")
    assert standing.rows(
        f"select outcome, count(*) from claims_claim where id = any(array{claims}) group by 1"
    ) == [("planned", len(claims))]
    again = "select claim_id from claims_run group by 1 having count(*) > 1"
    assert standing.rows(again) == [], "nobody who worked was deleted, so nothing was begun twice"
    check_pods(standing)
    standing.check()


def check_pods(standing: Standing) -> None:
    """Each incarnation of each member was one pod, at most, and every member was decided upon."""
    started = standing.kubelet.started
    assert [name for name, count in Counter(started).items() if count > 1] == []
    ((incarnations, members),) = standing.rows(
        "select coalesce(sum(incarnation), 0), count(*) from pools_member"
    )
    assert len(started) <= incarnations
    assert standing.rows("select coalesce(sum(delta), 0) from pools_decision where delta > 0") == [
        (members,)
    ]
    assert standing.kubelet.killed == [], "who was asked to go, went"
