"""The state behind the fake of the CLB API: accounts, load balancers, listeners, tasks, quotas.

A write is accepted at once and takes effect when its task ends. Until then its load balancer
accepts no other write, and its effect shows nowhere.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

QUOTAS = {
    "TOTAL_OPEN_CLB_QUOTA": 100,
    "TOTAL_INTERNAL_CLB_QUOTA": 100,
    "TOTAL_LISTENER_QUOTA": 50,
    "TOTAL_TARGET_BIND_QUOTA": 100,
    "TOTAL_FULL_PORT_RANGE_LISTENER_QUOTA": 1,
}
RUNNING, DONE, FAILED = 2, 0, 1
Target = tuple[str, int]  # IP and port


class Refusal(Exception):
    """An error of the API."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(f"{code}: {message}")


@dataclass
class FakeListener:
    id: str
    protocol: str
    port: int
    end: int
    name: str = ""
    certificate: str = ""
    is_checked: bool = False
    targets: dict[Target, str] = field(default_factory=dict)  # health as the API writes it

    @property
    def lane(self) -> str:
        return "udp" if self.protocol in ("UDP", "QUIC") else "tcp"


@dataclass
class FakeBalancer:
    id: str
    name: str
    type: str
    ip_version: str
    created: str
    tags: dict[str, str]
    active_at: float
    parameters: dict[str, Any] = field(default_factory=dict)
    forward: int = 1
    isolation: int = 0
    is_blocked: bool = False
    listeners: dict[str, FakeListener] = field(default_factory=dict)


@dataclass
class FakeTask:
    id: str
    balancer: str
    ends_at: float
    effect: Callable[[], None]
    ids: list[str] = field(default_factory=list)
    status: int = RUNNING
    message: str = ""


@dataclass
class LoggedCall:
    action: str
    parameters: dict[str, Any]
    at: float
    code: str = ""  # of the error; empty: success


@dataclass
class Fault:
    """Meets calls of `action` ("*": all calls) after `skip` calls of it, `times` times."""

    action: str
    # Of the error. Empty: the connection breaks without an answer. None: the call goes on.
    code: str | None = ""
    message: str = "injected"
    is_after: bool = False  # the call takes effect first
    skip: int = 0
    times: int = 1
    run: Callable[[], None] | None = None  # what else happens outside at this moment
    port: int = 0  # only calls that name it, or its listener; 0: any


class ClbWorld:
    def __init__(
        self,
        *,
        latency: float = 0.0,
        write_seconds: float = 0.0,
        provision_seconds: float = 0.0,
        calls_per_second: float | None = None,
        region: str = "ap-guangzhou",
    ) -> None:
        self.latency = latency
        self.write_seconds, self.provision_seconds = write_seconds, provision_seconds
        self.calls_per_second = calls_per_second  # of each action; None: no limit
        self.region = region
        self.lock = threading.RLock()
        self.secrets = {"AKIDtest": "secret-of-test"}
        self.tokens: dict[str, str] = {}  # of temporary secrets
        self.allowed: set[str] | None = None  # actions of the CAM policy; None: all
        self.quotas = dict(QUOTAS)
        self.balancers: dict[str, FakeBalancer] = {}
        self.tasks: dict[str, FakeTask] = {}
        self.client_tokens: dict[str, str] = {}
        self.certificates = {"cert-1", "cert-2"}
        self.unreachable: set[str] = set()  # IPs that no listener can bind
        self.is_holding = False  # tasks do not end
        self.failing_tasks = 0  # the next tasks end without effect
        self.tags_late = False  # filters by tags find nothing yet
        self.names_late = False  # the answer to CreateLoadBalancer names none, its task does
        self.sold_out = self.no_balance = False
        self.log: list[LoggedCall] = []
        self.faults: list[Fault] = []
        self.buckets: dict[tuple[str, str], tuple[float, float]] = {}
        self._numbers: dict[str, int] = {}

    def next_id(self, prefix: str) -> str:
        self._numbers[prefix] = self._numbers.get(prefix, 0) + 1
        return f"{prefix}-{self._numbers[prefix]:08d}"

    def settle(self) -> None:
        """Let the effects of ended tasks appear."""
        now = time.monotonic()
        for task in list(self.tasks.values()):
            if task.status == RUNNING and not self.is_holding and task.ends_at <= now:
                if self.failing_tasks > 0:
                    self.failing_tasks -= 1
                    task.status, task.message = FAILED, "backend error"
                    continue
                task.effect()
                task.status = DONE

    def is_busy(self, balancer: str) -> bool:
        return any(
            task.status == RUNNING and task.balancer == balancer for task in self.tasks.values()
        )

    def begin(self, task_id: str, balancer: str, effect: Callable[[], None]) -> FakeTask:
        task = FakeTask(task_id, balancer, time.monotonic() + self.write_seconds, effect)
        self.tasks[task_id] = task
        self.settle()
        return task

    def find_balancer(self, name: object) -> FakeBalancer:
        found = self.balancers.get(str(name))
        if found is None:
            raise Refusal("InvalidParameter.LBIdNotFound", f"load balancer {name} is not found")
        return found

    def check_free(self, balancer: FakeBalancer) -> None:
        """One write at a time."""
        if balancer.active_at > time.monotonic():
            raise Refusal("FailedOperation.InvalidLBStatus", f"{balancer.id} is being created")
        if self.is_busy(balancer.id):
            raise Refusal(
                "FailedOperation.ResourceInOperating", f"a task of {balancer.id} is running"
            )

    def add_balancer(
        self, tags: dict[str, str] | None = None, *, forward: int = 1, type_: str = "OPEN"
    ) -> FakeBalancer:
        """A load balancer that another program created."""
        with self.lock:
            name = self.next_id("lb")
            made = FakeBalancer(
                name, name, type_, "ipv4", self.now_text(), dict(tags or {}), 0.0, forward=forward
            )
            self.balancers[name] = made
            return made

    def add_listener(
        self, balancer: str, protocol: str, port: int, *, end: int = 0, name: str = "theirs"
    ) -> FakeListener:
        with self.lock:
            made = FakeListener(self.next_id("lbl"), protocol, port, end or port, name)
            made.targets["10.9.9.9", 9] = "Close"
            self.balancers[balancer].listeners[made.id] = made
            return made

    def now_text(self) -> str:
        return f"2026-11-20 00:00:{len(self.balancers):02d}"

    def count(self, *actions: str) -> int:
        return sum(call.action in actions for call in self.log)

    def release_tasks(self) -> None:
        with self.lock:
            self.is_holding = False
            for task in self.tasks.values():
                task.ends_at = 0.0
            self.settle()

    def listeners(self) -> list[FakeListener]:
        with self.lock:
            self.settle()
            return [
                each for balancer in self.balancers.values() for each in balancer.listeners.values()
            ]

    def state(self) -> dict[str, Any]:
        """All that must not change by itself."""
        with self.lock:
            self.settle()
            return {
                balancer.id: (
                    dict(balancer.tags),
                    {
                        each.id: (each.protocol, each.port, each.end, each.name, dict(each.targets))
                        for each in balancer.listeners.values()
                    },
                )
                for balancer in self.balancers.values()
            }
