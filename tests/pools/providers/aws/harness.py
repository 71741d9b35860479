"""The harness of the provider aws for the conformance suites: a strict ELBv2 behind HTTP."""

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from pools.config.parsing import Faults
from pools.providers.aws import account, look
from pools.providers.aws.loose_groups import forget_groups
from pools.providers.aws.options import ENDPOINTS, FIELDS, HEALTH_FIELDS
from pools.providers.aws.port_targets import UNFINISHED
from pools.providers.aws.provider import AwsProvider
from pools.providers.base import MemberSnapshot, PoolSnapshot, PortTarget, PortUse, SlotSnapshot
from pools.providers.server_faults import forget_faults
from project.kernel.outbox.operations import ProviderError, QuotaExceeded, Throttled
from tests.pools.providers.aws.elbv2_cloud import REGION, Cloud
from tests.pools.providers.aws.elbv2_server import serve
from tests.pools.providers.harness import Harness
from tests.pools.providers.pacers import UnlimitedPacer

FIRST = 30000  # the port of slot 0
SUBNETS = ["subnet-00000000", "subnet-00000001"]
atexit.register(account.forget_clients)


@contextmanager
def use_cloud(cloud: Cloud) -> Iterator[str]:
    """The provider's calls go to this cloud, with credentials of their own and without limits.
    Clients stay for the next cloud at the address; a test that changes credentials forgets them.
    """
    pacer = AwsProvider.pacer
    forget_reads()
    with pytest.MonkeyPatch.context() as patch, serve(cloud) as address:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
        AwsProvider.pacer = UnlimitedPacer()
        try:
            yield address
        finally:
            AwsProvider.pacer = pacer
            forget_reads()


def forget_reads() -> None:
    """All that a process remembers of an account between two calls."""
    account._identities.clear()
    forget_objects()


def forget_objects() -> None:
    look.forget_looks()
    UNFINISHED.clear()
    forget_groups()
    forget_faults()


def name_endpoints(address: str) -> dict[str, str]:
    """The options that lead the calls of all services to this address."""
    return dict.fromkeys(ENDPOINTS.values(), address)


def make_options(address: str, **more: Any) -> dict[str, Any]:
    given = {"region": REGION, **name_endpoints(address), "subnets": SUBNETS, **more}
    faults = Faults()
    found = dict(AwsProvider.read_options(given, "provider", faults))
    assert not faults.found, faults.found
    return found


def put_foreign_listener(cloud: Cloud, balancer: str, port: int, **tags: str) -> str:
    """The ARN of a listener that another program made, with a target group of its own."""
    with cloud.lock:
        there = cloud.balancer(balancer)
        used = {each.name for each in cloud.groups.values()}
        group = cloud.operations["CreateTargetGroup"](
            cloud,
            {
                "Name": next(name for n in count() if (name := f"theirs-{n}") not in used),
                "Protocol": "TCP",
                "Port": port,
                "VpcId": there.vpc,
                "TargetType": "ip",
            },
        )["TargetGroups"][0]["TargetGroupArn"]
        action = {"Type": "forward", "TargetGroupArn": group}
        params = {
            "LoadBalancerArn": balancer,
            "Port": port,
            "Protocol": "TCP",
            "DefaultActions": [action],
            "Tags": [{"Key": name, "Value": value} for name, value in tags.items()],
        }
        made = cloud.operations["CreateListener"](cloud, params)
        arn: str = made["Listeners"][0]["ListenerArn"]
        return arn


def put_balancer(cloud: Cloud, name: str, **tags: str) -> str:
    """The ARN of a network load balancer that another program made."""
    params = {
        "Name": name,
        "Type": "network",
        "Subnets": SUBNETS,
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    with cloud.lock:
        made = cloud.operations["CreateLoadBalancer"](cloud, params)
    arn: str = made["LoadBalancers"][0]["LoadBalancerArn"]
    return arn


class AwsHarness(Harness):
    """Load balancers that are provisioned at once, and targets that are healthy at once."""

    cloud: Cloud
    address: str
    theirs: str

    def __init__(self) -> None:
        super().__init__(
            AwsProvider,
            makes_things=True,
            sees_slots=True,
            has_ports=True,
            options=set(FIELDS),
            free_options={
                *(f"health_check.{name}" for name in HEALTH_FIELDS.keys() - {"port", "path"}),
                "deregistration_delay",
            },
        )

    @contextmanager
    def world_of_its_own(self, request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
        self.cloud = Cloud()
        with use_cloud(self.cloud) as self.address:
            self.good_options = make_options(self.address)
            self.theirs = put_balancer(self.cloud, "theirs", team="other")
            put_foreign_listener(self.cloud, self.theirs, 443)
            self.made_before = self.cloud.made["CreateLoadBalancer"]
            yield

    def pool(self, *members: MemberSnapshot) -> PoolSnapshot:
        return replace(super().pool(*members), installation="b-test", ports=(FIRST, FIRST + 100))

    def member(
        self, state: str = "ready", number: int = 1, *, is_overdue: bool = False
    ) -> MemberSnapshot:
        """A member with a port in each state. The held ports are used."""
        found = super().member(state, number, is_overdue=is_overdue)
        return replace(found, slots=tuple(map(self.as_port, found.slots)))

    def as_port(self, slot: SlotSnapshot) -> SlotSnapshot:
        use = PortUse("tcp", PortTarget(f"10.0.0.{10 + slot.number}", 8080))
        is_used = slot.state in ("held", "reserved")
        return replace(slot, lane="port", number=FIRST + slot.number, use=use if is_used else None)

    def outside(self) -> Any:
        return self.cloud.outside()

    def foreign(self) -> Any:
        """The objects without Berth's tags."""
        return [
            {arn: each for arn, each in kind.items() if "berth-pool" not in each[-1]}
            for kind in self.cloud.outside()
        ]

    def count_made(self) -> int:
        return self.cloud.made["CreateLoadBalancer"] - self.made_before

    def put_foreign(self, member: MemberSnapshot, slot: SlotSnapshot) -> None:
        (arn,) = (
            arn
            for arn, each in self.cloud.balancers.items()
            if each.tags.get("berth-member") == str(member.id)
        )
        put_foreign_listener(self.cloud, arn, slot.number)

    def fail_next(self, error: ProviderError, *, after: bool = False) -> None:
        if after:
            self.cloud.fail(action="CreateLoadBalancer", is_after=True)
        elif isinstance(error, Throttled):
            self.cloud.fail("ThrottlingException")
        elif isinstance(error, QuotaExceeded):
            self.cloud.fail("TooManyListeners")
        else:
            self.cloud.fail("InternalFailure", status=500)


HARNESSES = {"aws": AwsHarness()}
