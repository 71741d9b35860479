"""The Kubernetes API refuses, fails, hangs and disappears while pools grow and shrink."""

import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from tests.faults.campaign.scenario import FAKE, NotInjectedError, Outcome, Scenario, scenario
from tests.faults.campaign.scenarios.networks import CUTS
from tests.faults.campaign.site import collect
from tests.faults.tcp_proxy import PASS, RESET, TcpProxy
from tests.kubernetes_cluster.clusters import FakeKube, KubeWorld, RealKube
from tests.kubernetes_cluster.plugin import find_programs
from tests.pools.providers.kubernetes.stack_with_pods import Standing
from tests.pools.providers.kubernetes.test_faults import MOST, Counting, check_pods
from tests.waiting import LOOK_AGAIN, slack

WITHIN = 120.0
INJECTED_WITHIN = 20.0
POOL = "flow"
PLANS = 3  # more than one pod can do at once


class Cluster(Scenario):
    """A pool grows from no member for plans, and shrinks to none after them, in each round."""

    has_api_server = True

    def prepare(self) -> None:
        # Tasks may run as other users, so all users may write there.
        self.target = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="berth-faults-"))
        self.target.chmod(0o777)
        programs = find_programs()
        self.world: KubeWorld = RealKube(programs) if programs else FakeKube()
        self.api_server = "kube-apiserver" if programs else FAKE
        self.change_world()
        self.standing = Standing(self.world, self.folder, self.target, pools=(POOL,))
        self.counting = Counting(self.standing)
        self.counting.__enter__()
        self.claims: list[int] = []

    def adopt(self, before: Scenario) -> bool:
        if not isinstance(before, Refusals) or not isinstance(self, Refusals):
            return False
        self.target, self.world, self.standing = before.target, before.world, before.standing
        self.api_server = before.api_server
        self.counting = Counting(self.standing)
        self.counting.__enter__()
        self.claims = []
        return True

    def change_world(self) -> None:
        """Before the stack starts."""

    def round(self, chance: random.Random, number: int) -> Outcome:
        is_growing = chance.random() < 0.6
        met = self.count_met()
        if is_growing:
            fault = self.strike(chance, number)
            wave = self.plan(number)
        else:
            wave = self.plan(number)
            self.standing.wait_ended(wave, within=WITHIN)
            fault = self.strike(chance, number)
        self.wait_met(met)
        self.mend()
        mended_at = time.monotonic()
        self.standing.wait_ended(wave, within=WITHIN)
        if not is_growing:
            self.wait_empty()
            wave = self.plan(number)
            self.standing.wait_ended(wave, within=WITHIN)
        again = time.monotonic() - mended_at
        self.world.heal()
        self.wait_empty()
        faults = max(1, self.count_met() - met)
        where = "growing" if is_growing else "shrinking"
        return Outcome(f"{fault}, while {where}", again, faults, self.find_broken(wave))

    def plan(self, number: int) -> list[int]:
        now = time.monotonic_ns()
        wave = [self.standing.plan(POOL, f"w-{number}-{now}-{n}", "true") for n in range(PLANS)]
        self.claims += wave
        return wave

    def strike(self, chance: random.Random, number: int) -> str:
        raise NotImplementedError

    def mend(self) -> None:
        """Ends faults that do not end by themselves. A refusal ends after its number of calls."""

    def count_met(self) -> int:
        return self.world.faults.met

    def wait_met(self, before: int) -> None:
        end = time.monotonic() + INJECTED_WITHIN * slack()
        while self.count_met() == before:
            if time.monotonic() > end:
                self.world.heal()
                raise NotInjectedError("no call met the fault")
            time.sleep(LOOK_AGAIN)

    def wait_empty(self) -> None:
        """A hint wakes the scaler, which looks each 5 s by itself."""
        end = time.monotonic() + WITHIN * slack()
        query = "select count(*) from pools_member where state <> 'gone'"
        while self.standing.rows(query) != [(0,)]:
            assert time.monotonic() < end, f"members stay: {self.standing.tell()[-1500:]}"
            self.standing.rows("select pg_notify('berth', 'pools')")
            time.sleep(0.5)
        assert self.standing.space.names() == [], "pods are left over"
        assert self.standing.space.names("secrets") == [], "secrets are left over"

    def find_broken(self, wave: Sequence[int]) -> list[str]:
        broken, self.counting.broken = self.counting.broken, []
        ends = self.standing.rows(
            f"select id, outcome from claims_claim where id = any(array{list(wave)}) "
            "and outcome is distinct from 'planned'"
        )
        again = self.standing.rows("select claim_id from claims_run group by 1 having count(*) > 1")
        return [
            *(f"more than {MOST} pods: {text}" for text in broken),
            *(f"claim {claim} ended {outcome}" for claim, outcome in ends),
            *(f"claim {claim} was begun twice: a busy pod went" for (claim,) in again),
        ]

    def verify(self) -> list[str]:
        self.counting.__exit__()
        return collect([lambda: check_pods(self.standing), self.standing.check])

    def close(self) -> None:
        try:
            if hasattr(self, "counting"):
                self.counting.__exit__()
            if hasattr(self, "standing"):
                self.standing.close()
        finally:
            if hasattr(self, "world"):
                self.world.close()
            shutil.rmtree(self.target, ignore_errors=True)


class Refusals(Cluster):
    # Each orders one kind of refusal.
    ways: ClassVar[dict[str, Callable[[KubeWorld], Any]]]
    counts_from = "the first refusal"

    def strike(self, chance: random.Random, number: int) -> str:
        way = self.pick(tuple(self.ways), number)
        self.ways[way](self.world)
        return way


@scenario
class Api403(Refusals):
    name = "api-403"
    breaks = "the API server forbids calls, or its quota is used up"
    ways = {
        "403 to 3 calls": lambda world: world.refuse("*", 403, times=3, plural="pods"),
        "403 to 2 lists": lambda world: world.refuse("list", 403, times=2, plural="pods"),
        "quota exceeded, 2 calls": lambda world: world.refuse(
            "*",
            403,
            times=2,
            plural="pods",
            message=(
                "pods is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, "
                "limited: pods=3"
            ),
        ),
    }


@scenario
class Api409(Refusals):
    name = "api-409"
    breaks = "an object exists already, or has changed"
    ways = {
        "409 to 3 calls": lambda world: world.refuse("*", 409, times=3),
        "409 to 2 calls after their effect": lambda world: world.refuse(
            "*", 409, times=2, plural="pods", is_after=True
        ),
    }


@scenario
class Api410(Refusals):
    name = "api-410"
    breaks = "the API server has forgotten the version of a list or watch"
    ways = {
        "410 to 3 lists and 3 watches": lambda world: (
            world.refuse("list", 410, times=3, plural="pods"),
            world.refuse("watch", 410, times=3, plural="pods"),
            world.cut(),
        ),
        "410 to 4 calls": lambda world: (world.refuse("*", 410, times=4), world.cut()),
    }


@scenario
class Api429(Refusals):
    name = "api-429"
    breaks = "the API server asks for fewer calls"
    ways = {
        "429 to 12 calls, 1 s": lambda world: world.refuse("*", 429, times=12, retry_after=1),
        "429 to 4 calls, 3 s": lambda world: world.refuse("*", 429, times=4, retry_after=3),
        "429 to 6 calls": lambda world: world.refuse("*", 429, times=6),
    }


@scenario
class Api5xx(Refusals):
    name = "api-5xx"
    breaks = "the API server fails with 5xx, before or after the effect"
    ways = {
        "500 to 6 calls": lambda world: world.refuse("*", 500, times=6),
        "502 to 3 calls": lambda world: world.refuse("*", 502, times=3),
        "503 to 4 calls, 1 s": lambda world: world.refuse("*", 503, times=4, retry_after=1),
        "504 to 3 calls after their effect": lambda world: world.refuse(
            "*", 504, times=3, plural="pods", is_after=True
        ),
        "no answer to 3 calls after their effect": lambda world: world.refuse(
            "*", 0, times=3, plural="pods", is_after=True
        ),
    }


@scenario
class ApiTimeout(Refusals):
    name = "api-timeout"
    breaks = "the API server takes a call and never answers"
    ways = {
        "a call for pods": lambda world: world.hang("*", plural="pods"),
        "2 calls": lambda world: world.hang("*", times=2),
        "a list": lambda world: (world.hang("list", plural="pods"), world.cut()),
    }


@scenario
class CutCluster(Cluster):
    name = "cut-cluster"
    breaks = "the network between the server and the cluster"
    counts_from = "the end of the cut"

    def change_world(self) -> None:
        at = urlsplit(self.world.front.url)
        self.proxy = TcpProxy(("127.0.0.1", int(at.port or 0)))
        config = json.loads(self.world.kubeconfig.read_text())
        for cluster in config["clusters"]:
            if cluster["name"] == "gated":
                cluster["cluster"]["server"] = f"http://127.0.0.1:{self.proxy.port}"
        self.world.kubeconfig.write_text(json.dumps(config))

    def count_met(self) -> int:
        return self.proxy.met

    def strike(self, chance: random.Random, number: int) -> str:
        way = self.pick(tuple(CUTS), number)
        begin, self.then = CUTS[way]
        self.proxy.mode, self.seconds = begin, chance.uniform(0.3, 5)
        return f"{way}, {self.seconds:.1f} s"

    def mend(self) -> None:
        time.sleep(self.seconds)  # how long the network is away
        if self.then == RESET:
            self.proxy.mode = RESET
            time.sleep(0.2)
        self.proxy.mode = PASS

    def close(self) -> None:
        self.proxy.mode = PASS
        super().close()
        self.proxy.close()
