"""Network load balancers on the strict ELBv2."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from pools.providers.aws import account
from pools.providers.aws.provider import AwsProvider
from tests.claims.ports.model.outside import (
    FOREIGN_PORTS,
    OTHER_TARGET,
    USERS,
    MortalPacer,
    Outside,
    SeenListener,
)
from tests.pools.providers.aws.elbv2_cloud import Cloud, Unanswered
from tests.pools.providers.aws.elbv2_objects import Refusal
from tests.pools.providers.aws.elbv2_server import OPERATIONS
from tests.pools.providers.aws.harness import (
    SUBNETS,
    forget_objects,
    put_balancer,
    put_foreign_listener,
)
from tests.pools.providers.aws.scene import CERTIFICATE

PROTOCOLS = {"TCP": "tcp", "UDP": "udp", "TCP_UDP": "tcp_udp", "TLS": "tcp_ssl"}
KEY = "AKIDTEST"  # of the credentials
DELAY = 400.0  # seconds, more than a target drains


class DirectClient:
    """A client of the fake without HTTP and without botocore, which other tests use."""

    def __init__(self, outside: "AwsOutside") -> None:
        self._outside = outside

    def __getattr__(self, method: str) -> Callable[..., Any]:
        action = "".join(word.title() for word in method.split("_"))
        return partial(self._call, action)

    def _call(self, action: str, **params: Any) -> Any:
        try:
            return drop_nulls(self._outside.cloud.perform(action, deepcopy(params), KEY))
        except Refusal as refusal:
            details = {"Error": {"Code": refusal.code, "Message": str(refusal)}}
            raise ClientError(details, action) from None
        except Unanswered:
            raise ConnectionClosedError(endpoint_url="http://cloud") from None


def drop_nulls(value: Any) -> Any:
    """What is left of an answer on the wire, in objects of its own."""
    if isinstance(value, Mapping):
        return {name: drop_nulls(each) for name, each in value.items() if each is not None}
    return [drop_nulls(each) for each in value] if isinstance(value, list | tuple) else value


@dataclass
class AwsOutside(Outside):
    kind: ClassVar[str] = "aws"
    lanes: ClassVar[tuple[str, ...]] = ("port",)
    layout: ClassVar[dict[str, Any]] = {"shared": True}
    precreated: ClassVar[dict[str, Any]] = {"shared": True, "precreate": {"tcp": 2, "udp": 2}}
    certificate: ClassVar[str] = CERTIFICATE
    cloud: Cloud = field(default_factory=Cloud)
    pacer: MortalPacer = field(default_factory=MortalPacer)
    users_id: str = ""

    @contextmanager
    def serve(self) -> Iterator[None]:
        client = DirectClient(self)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(account, "_client_of", lambda *place: client)
            patch.setattr(AwsProvider, "pacer", self.pacer)
            try:
                yield
            finally:
                self.restart()

    def begin(self) -> None:
        self.cloud = Cloud(operations=OPERATIONS)
        self.pass_time()
        self.cloud.certificates.add(CERTIFICATE)
        self.restart()
        self.users_id = put_balancer(self.cloud, USERS, team="other")
        for number in FOREIGN_PORTS:
            put_foreign_listener(self.cloud, self.users_id, number)

    def provider(self) -> dict[str, Any]:
        return {"kind": "aws", "subnets": SUBNETS, "region": self.cloud.region}

    def fail(self, fault: str, step: int) -> None:
        at = len(self.cloud.log) + 1 + step
        if fault == "killed":
            self.pacer.left = step
        elif fault == "refused":
            self.cloud.fail("InternalFailure", status=500, at=at)
        elif fault == "throttled":
            self.cloud.fail("ThrottlingException", at=at)
        else:
            self.cloud.fail(at=at, is_after=fault == "unanswered after")

    def heal(self) -> None:
        self.cloud.heal()
        self.pacer.forget()

    def restart(self) -> None:
        self.heal()
        forget_objects()

    def pass_time(self) -> None:
        self.cloud.advance(DELAY)
        self.cloud.provisioning = self.cloud.initial = 0.0

    def become_slow(self) -> None:
        self.cloud.provisioning = self.cloud.initial = DELAY / 2

    def is_ours(self, tags: dict[str, str]) -> bool:
        return "berth-pool" in tags

    def listeners(self) -> list[SeenListener]:
        with self.cloud.lock:
            return sorted(
                SeenListener(
                    each.balancer,
                    "port",
                    each.port,
                    each.arn,
                    PROTOCOLS[each.protocol],
                    self._targets_of(each.group),
                    self.is_ours(each.tags),
                )
                for each in self.cloud.listeners.values()
            )

    def _targets_of(self, group: str) -> tuple[str, ...]:
        if (found := self.cloud.groups.get(group)) is None:
            return ()
        self.cloud.forget_drained(found)
        places = (place for place, each in found.targets.items() if not each.is_draining)
        return tuple(sorted(f"{ip}:{port}" for ip, port in places))

    def own_balancers(self) -> set[str]:
        return {arn for arn, each in self.cloud.balancers.items() if self.is_ours(each.tags)}

    def find_orphans(self) -> list[str]:
        """Target groups that do not belong to one listener each."""
        ours = [each for each in self.cloud.listeners.values() if self.is_ours(each.tags)]
        used = Counter(each.group for each in ours)
        groups = {arn for arn, each in self.cloud.groups.items() if self.is_ours(each.tags)}
        wrong = {arn for arn, count in used.items() if count > 1} | (groups ^ set(used))
        return sorted(wrong)

    def foreign(self) -> Any:
        return [
            {arn: each for arn, each in kind.items() if not self.is_ours(each[-1])}
            for kind in self.cloud.outside()
        ]

    def add_foreign(self, balancer: str, lane: str, number: int) -> None:
        put_foreign_listener(self.cloud, balancer, number)

    def remove_listener(self, listener: SeenListener) -> None:
        with self.cloud.lock:
            del self.cloud.listeners[listener.id]

    def retarget(self, listener: SeenListener) -> None:
        with self.cloud.lock:
            group = self.cloud.groups[self.cloud.listeners[listener.id].group]
            for place in list(group.targets):
                del group.targets[place]
            ip, port = OTHER_TARGET
            operation = self.cloud.operations["RegisterTargets"]
            targets = [{"Id": ip, "Port": port}]
            operation(self.cloud, {"TargetGroupArn": group.arn, "Targets": targets})

    def remove_balancer(self, balancer: str) -> None:
        with self.cloud.lock:
            operation = self.cloud.operations["DeleteLoadBalancer"]
            operation(self.cloud, {"LoadBalancerArn": balancer})
