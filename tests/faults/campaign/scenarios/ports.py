"""Faults while load balancers get listeners: of the strict clouds, and of the processes that call
them. The clouds run in the campaign's own process, behind HTTP, so a round sees each call.
"""

import json
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

from claims.benches.ports.clouds import CREDENTIALS
from tests.claims.ports.model.aws_outside import AwsOutside
from tests.claims.ports.model.outside import Outside
from tests.claims.ports.model.tencent_outside import TencentOutside
from tests.faults.campaign.scenario import NotInjectedError, Outcome, scenario
from tests.faults.campaign.site import WITHIN, Site, SiteScenario
from tests.faults.victims import kill
from tests.pools.providers.aws.elbv2_server import serve
from tests.pools.providers.aws.harness import name_endpoints
from tests.pools.providers.tencent.clb_server import ClbServer
from tests.waiting import slack, wait_until

MEMBERS, EACH = 2, 12
PORTS = "80/TCP,53/UDP"
MOST_HELD = 4  # claims that a round finds
FARTHEST = 8  # calls before the fault
LATENCY = 0.05  # of each call, so that a worker dies during one
READY = "select count(*) from pools_member where state = 'ready'"
BUSY = """select (select count(*) from slots_slot where state = 'draining')
  + (select count(*) from kernel_operation where done_at is null)"""
HELD = """select m.external_id, s.lane, s.number, c.backend->>'ip', c.backend->'ports'->>s.ordinal
from slots_slot s join pools_member m on m.id = s.member_id join claims_claim c on c.id = s.claim_id
where s.state = 'held'"""
UNREADY = "select name, state, outside from pools_member where state <> 'ready' or outside <> ''"


class PortFaults(SiteScenario):
    counts_from = "the new backend"
    outside: Outside
    slots: ClassVar[Mapping[str, object]]
    kills: ClassVar[Mapping[str, str]] = {
        f"kill -9 of {victim}": victim
        for victim in ("worker", "allocate", "finalize", "relay", "web", "postgres")
    }
    failures: ClassVar[tuple[str, ...]] = (
        "refused",
        "throttled",
        "unanswered before",
        "unanswered after",
    )

    def serve(self) -> Any:
        """An empty cloud (`outside`) answers; yields the options that lead to it."""
        raise NotImplementedError

    def count_calls(self) -> int:
        raise NotImplementedError

    def prepare(self) -> None:
        self.closing = ExitStack()
        options = self.closing.enter_context(self.serve())
        pool = {
            "kind": "Pool",
            "name": "games",
            "provider": self.outside.provider() | options,
            "slots": {"ports": f"31000-{31000 + EACH}", "quota": EACH, **self.slots},
            "members": {"max": MEMBERS, "list": [f"lb-{n}" for n in range(MEMBERS)]},
            "backends": {"networks": ["10.0.0.0/16"], "ports": "1-65535"},
        }
        self.site = Site(self.folder, json.dumps(pool), **CREDENTIALS)
        self.foreign = self.outside.foreign()
        self.held: list[dict[str, Any]] = []
        self.addresses = iter(range(1, 60_000))
        self.site.stack.wait_rows(READY, lambda rows: rows == [(MEMBERS,)], within=WITHIN)
        self.wait_ready(self.claim())

    def close(self) -> None:
        super().close()
        if hasattr(self, "closing"):
            self.closing.close()

    # -- claims -----------------------------------------------------------------------------------
    def claim(self) -> dict[str, Any]:
        key = f"ports-{time.monotonic_ns()}"
        body = {"pool": "games", "owner": key, "ports": PORTS}
        claim: dict[str, Any] = self.site.call("POST", "claims/", body, key)
        assert claim["state"] == "bound", claim["wait"]
        self.held.append(claim)
        self.set_backend(claim)
        return claim

    def set_backend(self, claim: Mapping[str, Any]) -> None:
        n = next(self.addresses)
        body = {"generation": claim["generation"], "ip": f"10.0.{n // 250}.{n % 250 + 1}"}
        self.site.call("PUT", f"claims/{claim['id']}/backend/", body)

    def release(self, claim: Mapping[str, Any]) -> None:
        body = {"generation": claim["generation"]}
        self.site.call("POST", f"claims/{claim['id']}/release/", body)

    def wait_ready(self, claim: Mapping[str, Any]) -> None:
        end = time.monotonic() + 2 * WITHIN * slack()
        while True:
            found = self.site.call("GET", f"claims/{claim['id']}/?wait=10&until=ready")
            if any(each["type"] == "ready" and each["is_met"] for each in found["conditions"]):
                return
            rows = self.site.stack.execute(UNREADY)
            assert time.monotonic() < end, f"the ports are not ready: {found['ports']}; {rows}"

    # -- rounds -----------------------------------------------------------------------------------
    def round(self, chance: random.Random, number: int) -> Outcome:
        way = self.pick((*self.kills, *self.failures), number)
        step = chance.randint(0, FARTHEST)
        before = self.count_calls()
        with (
            self.kill_at_call(self.kills[way], before + step, chance)
            if way in self.kills
            else self.fail_call(way, before + step)
        ):
            began = time.monotonic()
            while len(self.held) > MOST_HELD:
                self.release(self.held.pop(0))
            self.set_backend(self.held[0])
            new = self.claim()
        self.wait_ready(new)
        again = time.monotonic() - began
        self.outside.heal()
        for claim in self.held:
            self.wait_ready(claim)
        self.site.stack.wait_rows(BUSY, lambda rows: rows == [(0,)], within=2 * WITHIN)
        return Outcome(
            f"{way} at call {step + 1}", again,
            findings=[*self.compare(), *self.site.find_broken()],
        )  # fmt: skip

    @contextmanager
    def kill_at_call(self, victim: str, call: int, chance: random.Random) -> Iterator[None]:
        """kill -9 of the process while the cloud answers this call, or the next one."""
        killed = threading.Event()
        is_over = threading.Event()

        def watch() -> None:
            while not is_over.wait(0.005):  # how exactly the fault is placed
                if self.count_calls() >= call:
                    kill(self.site.stack, victim, chance)
                    killed.set()
                    return

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
            wait_until(killed.is_set, "too few calls came", within=WITHIN)
        except AssertionError as error:
            raise NotInjectedError(f"the call at which {victim} dies did not come") from error
        finally:
            is_over.set()
            thread.join()

    @contextmanager
    def fail_call(self, fault: str, call: int) -> Iterator[None]:
        self.outside.fail(fault, call - self.count_calls())
        yield
        try:
            wait_until(lambda: self.count_calls() > call, "too few calls came", within=WITHIN)
        except AssertionError as error:
            raise NotInjectedError("the call that fails did not come") from error

    # -- audit ------------------------------------------------------------------------------------
    def compare(self) -> list[str]:
        """The cloud has exactly the listeners of held slots, each with its target, and all that is
        not Berth's is as it was.
        """
        wanted = {
            (balancer, lane, number): (f"{ip}:{port}",)
            for balancer, lane, number, ip, port in self.site.stack.execute(HELD)
        }
        there: dict[tuple[str, str, int], tuple[str, ...]] = {}
        found = []
        for each in self.outside.listeners():
            if each.is_ours:
                if each.place in there:
                    found.append(f"two listeners at {each.place}")
                there[each.place] = each.targets
        found += [f"no listener at {place}" for place in wanted.keys() - there.keys()]
        found += [f"a listener of no claim at {place}" for place in there.keys() - wanted.keys()]
        found += [
            f"{place} leads to {there[place]} instead of {wanted[place]}"
            for place in wanted.keys() & there.keys()
            if wanted[place] != there[place]
        ]
        found += [f"{orphan} belongs to no listener" for orphan in self.outside.find_orphans()]
        members = {
            row[0] for row in self.site.stack.execute("select external_id from pools_member")
        }
        found += [f"{each} belongs to no member" for each in self.outside.own_balancers() - members]
        if self.outside.foreign() != self.foreign:
            found.append("an object of another program was changed")
        return found

    def verify(self) -> list[str]:
        while self.held:
            self.release(self.held.pop())
        self.site.stack.wait_rows(BUSY, lambda rows: rows == [(0,)], within=2 * WITHIN)
        return [*self.compare(), *self.site.verify()]


@scenario
class AwsPorts(PortFaults):
    name = "ports-aws"
    breaks = "processes that call AWS for listeners die, or their calls fail"
    outside: AwsOutside
    slots: ClassVar[Mapping[str, object]] = {"shared": True}

    @contextmanager
    def serve(self) -> Iterator[Mapping[str, object]]:
        self.outside = AwsOutside()
        self.outside.begin()
        with serve(self.outside.cloud) as address:
            self.outside.cloud.latency = LATENCY
            yield {**name_endpoints(address), "deregistration_delay": "0s"}

    def count_calls(self) -> int:
        return len(self.outside.cloud.log)


@scenario
class TencentPorts(PortFaults):
    name = "ports-tencent"
    breaks = "the same with Tencent Cloud"
    outside: TencentOutside
    slots: ClassVar[Mapping[str, object]] = {"protocols": ["tcp", "udp"]}

    @contextmanager
    def serve(self) -> Iterator[Mapping[str, object]]:
        self.outside = TencentOutside()
        self.outside.begin()
        self.outside.world.latency, self.outside.world.write_seconds = LATENCY, 0.3
        server = ClbServer(self.outside.world)
        try:
            yield {"endpoint": server.endpoint}
        finally:
            server.close()

    def count_calls(self) -> int:
        return len(self.outside.world.log)
