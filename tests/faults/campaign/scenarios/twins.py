"""Two of each process: one is frozen for a minute, or dies behind a proxy."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from project.kernel.embedded import up
from project.kernel.embedded.process import die_with_parent
from tests.end_to_end.stack import ROOT, command_of
from tests.faults.campaign.scenario import NotInjectedError, Outcome, scenario
from tests.faults.campaign.scenarios.kills_scaling import POOL as YARD
from tests.faults.campaign.site import WITHIN, Site, SiteScenario
from tests.faults.tcp_proxy import PASS, RESET, TcpProxy
from tests.faults.test_kills import FILE, POOLS
from tests.faults.victims import SCALERS, VICTIMS, kill_process
from tests.waiting import wait_until
from tests.web_process import run_web

FROZEN_FOR = float(os.environ.get("BERTH_TEST_FROZEN_FOR", "60"))  # seconds
CONTROLLERS = ("allocate", "finalize", "scale", "watch", "relay", "worker")


class Twin:
    """A second process of a kind, on the services of a stack."""

    def __init__(self, site: Site, name: str, log: Path) -> None:
        stack = site.stack
        environment = {
            **stack.environment,
            **stack.services(),
            **up.SMALL,
            "BERTH_URL": f"http://127.0.0.1:{stack.port}/",
        }
        words = ["manage.py", name]
        if name == "worker":
            words = [word.replace("worker@", "twin@") for word in up.WORKER]
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )
        self.name, self.log = name, log

    def check(self) -> None:
        """No supervisor starts a twin again, and without it the next freeze stops its work."""
        code = self.process.poll()
        assert code is None, (
            f"the twin of {self.name} has ended with code {code}: {self.log.read_text()[-1500:]}"
        )

    def end(self) -> None:
        self.process.kill()
        self.process.wait(20)


def state_of(pid: int) -> str:
    """T: stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@scenario
class FrozenControllers(SiteScenario):
    name = "frozen-controllers"
    breaks = f"one of two of each controller and worker stands still for {FROZEN_FOR:.0f} s"
    counts_from = "the freeze"

    def prepare(self) -> None:
        self.site = Site(self.folder, f"{FILE}---{YARD}")
        self.twins = {
            name: Twin(self.site, name, self.folder / f"{name}.log") for name in CONTROLLERS
        }
        self.site.stack.wait_rows(
            "select count(*) from kernel_beat",
            lambda rows: rows[0][0] >= 2 * (len(CONTROLLERS) - 1),
            within=WITHIN,
            describe=lambda: [
                (file.name, file.read_text()[-500:]) for file in self.folder.glob("*.log")
            ],
        )
        self.site.start_callers((*POOLS, "yard"), 2)

    def round(self, chance: random.Random, number: int) -> Outcome:
        """The older ones in even rounds, their twins in odd ones. Each stops at its own moment."""
        parts = VICTIMS | SCALERS
        for twin in self.twins.values():
            twin.check()
        pids = {}
        for name in CONTROLLERS:
            pids[name] = (
                self.twins[name].process.pid
                if number % 2
                else self.site.stack.wait_for_process(parts[name])
            )
        began = time.monotonic()
        frozen: list[int] = []
        findings: list[str] = []
        again = 0.0
        try:
            for name in chance.sample(CONTROLLERS, len(CONTROLLERS)):
                time.sleep(chance.uniform(0, 0.2))  # a random moment of its work
                os.kill(pids[name], signal.SIGSTOP)
                frozen.append(pids[name])
            frozen_at = time.monotonic()
            wait_until(
                lambda: all(state_of(pid) == "T" for pid in frozen), "a process does not stop"
            )
            again = self.site.wait_served((*POOLS, "yard"), frozen_at)
            while time.monotonic() < frozen_at + FROZEN_FOR:
                self.site.wait_served((*POOLS, "yard"), time.monotonic())
                findings += self.site.find_broken()
                time.sleep(min(5.0, max(0.0, frozen_at + FROZEN_FOR - time.monotonic())))
            if [pid for pid in frozen if state_of(pid) != "T"]:
                raise NotInjectedError("a frozen process has gone on")
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        self.site.wait_served((*POOLS, "yard"), time.monotonic())
        whose = "twins" if number % 2 else "older ones"
        fault = f"the {whose} of {', '.join(CONTROLLERS)} frozen {time.monotonic() - began:.0f} s"
        return Outcome(fault, again, len(frozen), [*findings, *self.site.find_broken()])

    def close(self) -> None:
        for twin in getattr(self, "twins", {}).values():
            twin.end()
        super().close()


@scenario
class WebReplica(SiteScenario):
    name = "web-replica"
    breaks = "one of two web processes behind a proxy is killed, ended, frozen, or cut off"

    def prepare(self) -> None:
        self.site = Site(self.folder, FILE)
        self.start_replica()
        self.first = ("127.0.0.1", self.site.stack.port)
        self.proxy = TcpProxy(self.first, self.second)
        self.site.start_callers(POOLS, 2, port=self.proxy.port)

    def start_replica(self) -> None:
        stack = self.site.stack
        environment = {
            **stack.environment,
            **stack.services(),
            "BERTH_URL": f"http://127.0.0.1:{stack.port}/",
        }
        self.running = run_web(environment, preexec_fn=die_with_parent(signal.SIGKILL))
        self.address, self.process = self.running.__enter__()
        self.second = ("127.0.0.1", int(self.address.rpartition(":")[2]))

    def round(self, chance: random.Random, number: int) -> Outcome:
        way = self.pick(("killed", "ended", "frozen", "cut off", "first killed"), number)
        both = (self.first, self.second)
        # Each connection of the callers starts again, so that both have some.
        self.proxy.cut()
        before = dict(self.proxy.served)
        wait_until(
            lambda: all(self.proxy.served[at] > before.get(at, 0) for at in both) or None,
            "a web process gets no connection",
        )
        began = time.monotonic()
        if way == "first killed":
            kill_process(self.site.stack.wait_for_process(VICTIMS["web"]))
        elif way == "frozen":
            self.process.send_signal(signal.SIGSTOP)
            wait_until(lambda: state_of(self.process.pid) == "T", "the replica does not stop")
            # Its proxy takes it out, as after a failed health check.
            self.proxy.targets = [self.first]
            self.proxy.cut()
        elif way == "cut off":
            met = self.proxy.met
            self.proxy.mode = RESET
            wait_until(lambda: self.proxy.met > met, "the cut meets no connection")
            self.proxy.mode = PASS
        else:
            self.process.send_signal(signal.SIGKILL if way == "killed" else signal.SIGTERM)
            self.process.wait(20)
            if command_of(self.process.pid):
                raise NotInjectedError("the replica lives")
        again = self.site.wait_served(POOLS, began)
        findings = self.site.find_broken()
        self.mend(way)
        return Outcome(f"web process {way}", again, findings=findings)

    def mend(self, way: str) -> None:
        if way == "frozen":
            self.process.send_signal(signal.SIGCONT)
        if way in ("killed", "ended"):
            self.end_replica()
            self.start_replica()
            self.proxy.served.setdefault(self.second, 0)
        self.proxy.targets = [self.first, self.second]

    def end_replica(self) -> None:
        self.running.__exit__(None, None, None)

    def verify(self) -> list[str]:
        self.site.stop_callers()
        return self.site.verify()

    def close(self) -> None:
        if hasattr(self, "site"):
            self.site.stop_callers()
        if hasattr(self, "proxy"):
            self.proxy.close()
        if hasattr(self, "running"):
            self.end_replica()
        super().close()
