"""The harness of the provider tencent for the conformance suite."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from pools.config.parsing import Faults
from pools.providers.base import MemberSnapshot, PoolSnapshot, PortTarget, PortUse, SlotSnapshot
from pools.providers.pacing import Pacer
from pools.providers.server_faults import forget_faults
from pools.providers.tencent import clients, writes
from pools.providers.tencent.provider import TencentProvider
from project.kernel.outbox.budgets import CallBudget
from project.kernel.outbox.operations import Postponed, ProviderError, QuotaExceeded, Throttled
from tests.pools.providers.harness import STATES, Harness
from tests.pools.providers.memory_journal import MemoryJournal
from tests.pools.providers.tencent.clb_server import ClbServer
from tests.pools.providers.tencent.clb_world import ClbWorld, Fault

FIRST_PORT = 30000
LANES = ("tcp", "udp", "tcp", "tcp", "udp")  # of the slots of a member, in the order of STATES
CODES = {Throttled: "RequestLimitExceeded", QuotaExceeded: "LimitExceeded"}
FAST_POLL = 0.02  # seconds; the tasks of most tests end at once
TARGET = PortTarget("10.0.0.5", 8080)


class FreePacer(Pacer):
    """Grants every call, and counts them by bucket."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}

    def take(self, budget: CallBudget, calls: int = 1) -> None:
        self.taken[budget.key] = self.taken.get(budget.key, 0) + calls


class EmptyPacer(Pacer):
    """Postpones every call."""

    def take(self, budget: CallBudget, calls: int = 1) -> None:
        raise Postponed(60.0)


@contextmanager
def serve(world: ClbWorld) -> Iterator[ClbServer]:
    """The world behind its API, with credentials in the environment and an unlimited pacer."""
    server = ClbServer(world)
    (secret_id, key), *_ = world.secrets.items()
    told = {"TENCENTCLOUD_SECRET_ID": secret_id, "TENCENTCLOUD_SECRET_KEY": key}
    before = {name: os.environ.get(name) for name in told}
    pacer, journal, poll = TencentProvider.pacer, TencentProvider.journal, writes.FIRST_POLL
    forget_all()
    forget_faults()
    os.environ.update(told)
    TencentProvider.pacer, TencentProvider.journal = FreePacer(), MemoryJournal()
    writes.FIRST_POLL = FAST_POLL
    try:
        yield server
    finally:
        TencentProvider.pacer, TencentProvider.journal = pacer, journal
        writes.FIRST_POLL = poll
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        forget_all()
        server.close()


def journal_of_test() -> MemoryJournal:
    assert isinstance(TencentProvider.journal, MemoryJournal)
    return TencentProvider.journal


def forget_all() -> None:
    """All that a process remembers between two calls; a new worker knows none of it."""
    clients.forget()
    writes._task_times.clear()


class ClbHarness(Harness):
    """Load balancers in a region of their own, beside one of another program."""

    clb: ClbWorld
    ids: dict[int, str]
    uses: ClassVar[Mapping[str, PortUse]] = {
        "held": PortUse("udp", TARGET),
        "reserved": PortUse("tcp"),
    }

    def __init__(self, **settings: float) -> None:
        super().__init__(
            TencentProvider,
            makes_things=True,
            sees_slots=True,
            has_ports=True,
            options={"region", "endpoint", "health_check", "certificate", "load_balancer"},
        )
        self.settings = settings

    @contextmanager
    def world_of_its_own(self, request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
        self.clb, self.ids = ClbWorld(**self.settings), {}  # type: ignore[arg-type]
        theirs = self.clb.add_balancer({"berth-installation": "x", "berth-pool": "other"})
        self.clb.add_listener(theirs.id, "TCP", FIRST_PORT)
        with serve(self.clb) as server:
            given = {
                "region": self.clb.region,
                "endpoint": server.endpoint,
                "load_balancer": {"vpc_id": "vpc-12345678"},
            }
            self.good_options = dict(TencentProvider.read_options(given, "provider", Faults()))
            yield

    def pool(self, *members: MemberSnapshot) -> PoolSnapshot:
        made = super().pool(*members)
        return replace(made, installation="x", ports=(FIRST_PORT, FIRST_PORT + 49))

    def member(
        self, state: str = "ready", number: int = 1, *, is_overdue: bool = False
    ) -> MemberSnapshot:
        found = super().member(state, number, is_overdue=is_overdue)
        slots = tuple(
            replace(
                slot,
                lane=LANES[STATES.index(slot.state)],
                number=FIRST_PORT + slot.number,
                use=self.uses.get(slot.state),
            )
            for slot in found.slots
        )
        known = "" if state == "creating" else self.ids.get(number, "")
        return replace(found, slots=slots, external_id=known)

    def there(self, number: int = 1) -> MemberSnapshot:
        creating = replace(self.member("creating", number), slots=())
        report = self.provider().sync(self.pool(creating), creating)
        assert report.is_ready
        self.ids[number] = report.external_id
        return self.member("ready", number)

    def outside(self) -> Any:
        return self.clb.state()

    def foreign(self) -> Any:
        (theirs, *_) = self.clb.balancers
        return self.clb.state()[theirs]

    def count_made(self) -> int:
        return len(self.clb.balancers) - 1

    def put_foreign(self, member: MemberSnapshot, slot: SlotSnapshot) -> None:
        self.clb.add_listener(member.external_id, slot.lane.upper(), slot.number)

    def fail_next(self, error: ProviderError, *, after: bool = False) -> None:
        code = CODES.get(type(error), "InternalError")
        self.clb.faults.append(
            Fault("CreateLoadBalancer", is_after=True) if after else Fault("*", code)
        )


HARNESSES = {"tencent": ClbHarness(provision_seconds=0.2, write_seconds=0.02)}
