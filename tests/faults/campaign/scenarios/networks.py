"""The network between the parts is cut: agent and server, server and database."""

import random
import time
from urllib.parse import urlsplit

from project.kernel.embedded.postgres import EmbeddedPostgres
from project.kernel.embedded.process import free_port
from project.kernel.embedded.valkey import EmbeddedValkey
from tests.end_to_end.stack import Stack
from tests.faults.campaign.scenario import NotInjectedError, Outcome, scenario
from tests.faults.campaign.site import Site, SiteScenario
from tests.faults.campaign.tasks import LOCAL, Plans, sleepy
from tests.faults.tcp_proxy import PASS, RESET, STALL, TcpProxy
from tests.faults.test_kills import FILE, POOLS

# How a cut begins and how it ends: packets are lost and come again, or a firewall has forgotten
# the connections, or each packet is answered by a reset.
CUTS = {
    "packets are lost, then sent again": (STALL, PASS),
    "packets are lost, then connections reset": (STALL, RESET),
    "connections are reset and refused": (RESET, RESET),
}


class Cut(SiteScenario):
    counts_from = "the end of the cut"
    proxy: TcpProxy

    def cut(self, chance: random.Random, number: int, longest: float) -> str:
        way = self.pick(tuple(CUTS), number)
        begin, end = CUTS[way]
        met, seconds = self.proxy.met, chance.uniform(0.3, longest)
        self.proxy.mode = begin
        try:
            time.sleep(seconds)  # how long the network is away
            if end == RESET and begin != RESET:
                self.proxy.mode = RESET
                time.sleep(0.2)
        finally:
            self.proxy.mode = PASS
        if self.proxy.met == met:
            raise NotInjectedError("the cut met no connection")
        return f"{way}, {seconds:.1f} s"

    def close(self) -> None:
        super().close()
        if hasattr(self, "proxy"):
            self.proxy.close()


@scenario
class CutAgent(Cut):
    name = "cut-agent"
    breaks = "the network between agents and server, during plans"

    def prepare(self) -> None:
        port = free_port()
        self.proxy = TcpProxy(("127.0.0.1", port))
        stack = Stack(
            self.folder / "state",
            port,
            BERTH_APART="1",
            BERTH_QUEUES="shed",
            DJANGO_SETTINGS_MODULE="tests.faults.settings",
            BERTH_AGENT_URL=f"http://127.0.0.1:{self.proxy.port}",
        )
        self.site = Site(self.folder, LOCAL, stack=stack)
        self.plans = Plans(self.site)
        self.plans.wait_served(0.0)

    def round(self, chance: random.Random, number: int) -> Outcome:
        claims = [self.plans.ask(sleepy(chance)) for _ in range(2)]
        if chance.random() < 0.7:
            self.plans.wait_begun(claims[0])
        fault = self.cut(chance, number, 4.0)
        again = self.plans.wait_served(time.monotonic())
        for claim in claims:
            self.plans.wait_ended(claim)
        return Outcome(fault, again, findings=self.plans.find_broken())


@scenario
class CutDatabase(Cut):
    name = "cut-database"
    breaks = "the network between all processes of the server and the database"

    def prepare(self) -> None:
        self.postgres = EmbeddedPostgres(self.folder / "postgres").start()
        self.postgres.create_database()
        self.valkey = EmbeddedValkey(self.folder / "valkey").start()
        self.proxy = TcpProxy(("127.0.0.1", self.postgres.port))
        at = urlsplit(self.postgres.url())
        netloc = at.netloc.rpartition(":")[0] + f":{self.proxy.port}"
        stack = Stack(
            self.folder / "state",
            free_port(),
            BERTH_APART="1",
            BERTH_QUEUES="shed",
            DJANGO_SETTINGS_MODULE="tests.faults.settings",
            DATABASE_URL=at._replace(netloc=netloc).geturl(),
            REDIS_URL=self.valkey.url,
        )
        self.site = Site(self.folder, FILE, stack=stack)
        self.site.start_callers(POOLS, 2)

    def round(self, chance: random.Random, number: int) -> Outcome:
        self.site.ledger.wait_served(POOLS, time.monotonic(), chance.uniform(0, 0.5))
        fault = self.cut(chance, number, 6.0)
        again = self.site.wait_served(POOLS, time.monotonic())
        return Outcome(fault, again, findings=self.site.find_broken())

    def close(self) -> None:
        super().close()
        for service in (getattr(self, "valkey", None), getattr(self, "postgres", None)):
            if service is not None:
                service.stop()
