"""The clouds of the model-based test, each a strict fake behind HTTP, seen in one way.

A test changes objects behind Berth's back, lets calls fail, and compares what is there with what
the rows must have led to.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from pools.providers.pacing import Pacer
from project.kernel.outbox.budgets import CallBudget

USERS = "users"  # the load balancer of the user
FOREIGN_PORTS = (443, 31002)  # of the user's listeners there
OTHER_TARGET = ("10.0.2.250", 9)  # of another program
# How the last words of the budgets of writes begin.
WRITES = ("write", "register", "Create", "Delete", "Batch")
FAULTS = ("refused", "throttled", "unanswered before", "unanswered after", "killed")


@dataclass(frozen=True, slots=True, order=True, repr=False)
class SeenListener:
    """A listener, whoever made it."""

    balancer: str
    lane: str
    number: int
    id: str
    protocol: str  # tcp, udp, tcp_udp or tcp_ssl
    targets: tuple[str, ...]
    is_ours: bool

    def __repr__(self) -> str:
        whose = "ours" if self.is_ours else "foreign"
        where = f"{self.balancer[-24:]} {self.lane} {self.number}"
        return f"<{whose} {self.protocol} {where} {' '.join(self.targets)}>"

    @property
    def is_used(self) -> bool:
        """It has a target that Berth registered."""
        return any(each != "{}:{}".format(*OTHER_TARGET) for each in self.targets)

    @property
    def place(self) -> tuple[str, str, int]:
        return self.balancer, self.lane, self.number


class WorkerKilled(BaseException):
    """The worker dies: no handler of an Exception runs."""


@dataclass
class MortalPacer(Pacer):
    """Grants every call, until the worker is killed before one."""

    left: int | None = None  # calls until then
    writes_left: int | None = None  # writes until `at_write`
    at_write: Callable[[], None] | None = None  # before the call

    def take(self, budget: CallBudget, calls: int = 1) -> None:
        if self.left is not None:
            self.left -= calls
            if self.left < 0:
                self.left = None
                raise WorkerKilled
        if self.writes_left is not None and budget.key.rpartition(" ")[2].startswith(WRITES):
            self.writes_left -= calls
            if self.writes_left < 0 and self.at_write is not None:
                self.writes_left = None
                self.at_write()

    def forget(self) -> None:
        self.left = self.writes_left = None


class Outside(ABC):
    kind: ClassVar[str]
    lanes: ClassVar[tuple[str, ...]]
    layout: ClassVar[Mapping[str, Any]]  # of a pool, without the ports
    precreated: ClassVar[Mapping[str, Any]]
    users_id: str  # of the user's load balancer
    pacer: MortalPacer
    certificate: ClassVar[str]

    @abstractmethod
    @contextmanager
    def serve(self) -> Iterator[None]:
        """Its API answers."""

    @abstractmethod
    def begin(self) -> None:
        """An empty cloud with the load balancer of the user."""

    @abstractmethod
    def provider(self) -> dict[str, Any]:
        """The field `provider` of a pool."""

    @abstractmethod
    def fail(self, fault: str, step: int) -> None:
        """The call after `step` further calls meets this fault."""

    def fail_write(self, fault: str, step: int) -> None:
        """The write after `step` further writes meets this fault. A worker is killed after it."""
        self.pacer.writes_left, self.pacer.at_write = step, lambda: self.fail(fault, 0)

    @abstractmethod
    def heal(self) -> None: ...

    @abstractmethod
    def restart(self) -> None:
        """Another worker: nothing that a process remembers is left."""

    @abstractmethod
    def pass_time(self) -> None:
        """All that ends by itself has ended."""

    @abstractmethod
    def become_slow(self) -> None:
        """What it has accepted takes effect later, until `pass_time`."""

    @abstractmethod
    def listeners(self) -> list[SeenListener]: ...

    @abstractmethod
    def own_balancers(self) -> set[str]:
        """Ids of the load balancers with Berth's tags."""

    @abstractmethod
    def find_orphans(self) -> list[str]:
        """Other objects of Berth that no listener uses."""

    @abstractmethod
    def foreign(self) -> Any:
        """All that is not Berth's, as a comparable value."""

    @abstractmethod
    def add_foreign(self, balancer: str, lane: str, number: int) -> None: ...

    @abstractmethod
    def remove_listener(self, listener: SeenListener) -> None: ...

    @abstractmethod
    def retarget(self, listener: SeenListener) -> None:
        """Another program puts its target in the place of ours."""

    @abstractmethod
    def remove_balancer(self, balancer: str) -> None: ...
