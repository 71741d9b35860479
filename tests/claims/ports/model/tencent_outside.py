"""Load balancers on the strict fake of the CLB API."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from pools.providers.server_faults import forget_faults
from pools.providers.tencent import provider, writes
from pools.providers.tencent.errors import NoAnswer, error_of
from pools.providers.tencent.provider import TencentProvider
from project.kernel.models import PendingCall
from tests.claims.ports.model.outside import (
    FOREIGN_PORTS,
    OTHER_TARGET,
    MortalPacer,
    Outside,
    SeenListener,
)
from tests.pools.providers.tencent.clb_server import Dropped, perform
from tests.pools.providers.tencent.clb_world import (
    ClbWorld,
    FakeBalancer,
    FakeListener,
    Fault,
    Refusal,
)

REGION = "ap-guangzhou"
CODES = {"refused": "InternalError", "throttled": "RequestLimitExceeded"}
POLL, WAIT = 0.002, 0.02  # seconds: tasks end at once, or after the test lets them


class DirectTransport:
    """Calls the fake without HTTP and without the SDK, which other tests use."""

    account = "test"

    def __init__(self, outside: "TencentOutside") -> None:
        self._outside = outside
        self._requests = 0

    def call(self, action: str, parameters: Mapping[str, object]) -> Mapping[str, object]:
        world = self._outside.world
        self._requests += 1
        request = f"{self._requests:08d}-request"
        given = json.loads(json.dumps(parameters))
        with world.lock:
            try:
                answer = perform(world, self.account, action, given, request)
            except Refusal as refusal:
                raise error_of(action, REGION, refusal.code, refusal.message) from None
            except Dropped:
                raise NoAnswer(f"{action} got no answer in {REGION}.") from None
            return {**json.loads(json.dumps(answer)), "RequestId": request}

    def close(self) -> None:
        pass


@dataclass
class TencentOutside(Outside):
    kind: ClassVar[str] = "tencent"
    lanes: ClassVar[tuple[str, ...]] = ("tcp", "udp")
    layout: ClassVar[dict[str, Any]] = {"protocols": ["tcp", "udp"]}
    precreated: ClassVar[dict[str, Any]] = {"precreate": {"tcp": 2, "udp": 2}}
    certificate: ClassVar[str] = "cert-1"
    world: ClbWorld = field(default_factory=ClbWorld)
    pacer: MortalPacer = field(default_factory=MortalPacer)
    users_id: str = ""

    @contextmanager
    def serve(self) -> Iterator[None]:
        transport = DirectTransport(self)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(provider, "transport_for", lambda pool: transport)
            patch.setattr(TencentProvider, "pacer", self.pacer)
            patch.setattr(writes, "FIRST_POLL", POLL)
            patch.setattr(writes, "LATEST_POLL", POLL)
            patch.setattr(writes, "WAIT", WAIT)
            yield

    def begin(self) -> None:
        self.world = ClbWorld()
        self.restart()
        self.users_id = self.world.add_balancer({"team": "other"}).id
        for number in FOREIGN_PORTS:
            self.world.add_listener(self.users_id, "TCP", number)

    def provider(self) -> dict[str, Any]:
        return {
            "kind": "tencent",
            "region": self.world.region,
            "load_balancer": {"vpc_id": "vpc-12345678"},
        }

    def fail(self, fault: str, step: int) -> None:
        if fault == "killed":
            self.pacer.left = step
            return
        code = CODES.get(fault, "")
        is_after = fault == "unanswered after"
        self.world.faults.append(Fault("*", code, skip=step, is_after=is_after))

    def heal(self) -> None:
        self.world.faults.clear()
        self.pacer.forget()

    def restart(self) -> None:
        self.heal()
        writes._task_times.clear()
        forget_faults()

    def pass_time(self) -> None:
        self.world.release_tasks()
        PendingCall.objects.update(until="2020-01-01T00:00:00Z")

    def become_slow(self) -> None:
        self.world.is_holding = True

    def listeners(self) -> list[SeenListener]:
        with self.world.lock:
            self.world.settle()
            return sorted(
                SeenListener(
                    balancer.id,
                    each.lane,
                    each.port,
                    each.id,
                    each.protocol.lower(),
                    tuple(sorted(f"{ip}:{port}" for ip, port in each.targets)),
                    each.name.startswith("berth-"),
                )
                for balancer in self.world.balancers.values()
                for each in balancer.listeners.values()
            )

    def _is_own(self, balancer: FakeBalancer) -> bool:
        return "berth-pool" in balancer.tags

    def own_balancers(self) -> set[str]:
        return {each.id for each in self.world.balancers.values() if self._is_own(each)}

    def find_orphans(self) -> list[str]:
        return []

    def foreign(self) -> Any:
        with self.world.lock:
            self.world.settle()
            return {
                each.id: (
                    None if self._is_own(each) else dict(each.tags),
                    {
                        found.id: (found.protocol, found.port, found.name, dict(found.targets))
                        for found in each.listeners.values()
                        if not found.name.startswith("berth-")
                    },
                )
                for each in self.world.balancers.values()
                if not self._is_own(each) or self._has_foreign(each)
            }

    def _has_foreign(self, balancer: FakeBalancer) -> bool:
        return any(not each.name.startswith("berth-") for each in balancer.listeners.values())

    def add_foreign(self, balancer: str, lane: str, number: int) -> None:
        self.world.add_listener(balancer, lane.upper(), number)

    def _find(self, listener: SeenListener) -> FakeListener:
        return self.world.balancers[listener.balancer].listeners[listener.id]

    def remove_listener(self, listener: SeenListener) -> None:
        with self.world.lock:
            del self.world.balancers[listener.balancer].listeners[listener.id]

    def retarget(self, listener: SeenListener) -> None:
        with self.world.lock:
            found = self._find(listener)
            found.targets.clear()
            found.targets[OTHER_TARGET] = "Close"

    def remove_balancer(self, balancer: str) -> None:
        with self.world.lock:
            del self.world.balancers[balancer]
