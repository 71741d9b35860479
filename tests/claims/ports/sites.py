"""Port pools on the strict clouds of AWS and Tencent, through services, rows and operations."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from claims.allocation.claim_view import ClaimView
from claims.ports.backends import BackendRequest, set_backend
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.models import Operation
from project.kernel.outbox.operations import perform_due
from slots.sync.watcher import observe_pool
from tests.claims.helpers import again
from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.harness import SUBNETS, name_endpoints, use_cloud
from tests.pools.providers.aws.scene import CERTIFICATE, OTHER_CERTIFICATE
from tests.pools.providers.tencent.clb_world import ClbWorld
from tests.pools.providers.tencent.harness import serve
from tests.waiting import wait_until


@dataclass
class Site:
    """A cloud, and the pools that use it."""

    cloud: Any  # Cloud or ClbWorld
    provider: dict[str, Any]
    slots: dict[str, Any]
    certificates: tuple[str, str]  # of the pool, and another one
    list_certificates: Callable[[], list[str]]  # of the listeners outside
    change_certificate: Callable[[str], None]  # of all listeners, by another program

    @property
    def kind(self) -> str:
        return str(self.provider["kind"])

    def config(self, **options: Any) -> dict[str, Any]:
        return {
            "name": "games",
            "provider": {**self.provider, **options},
            "slots": {"ports": "30000-30049", **self.slots},
            "members": {"max": 1, "list": ["one"]},
            "certificates": list(self.certificates),
            "backends": {"networks": ["10.0.0.0/16"], "ports": "1-65535"},
        }

    def make(self, **options: Any) -> Pool:
        pool = create_pool(self.config(**options))
        self.work_until(lambda: Member.objects.filter(state="ready").exists())
        observe_pool(pool)
        return pool

    def work_until(self, read: Callable[[], object]) -> None:
        def step() -> object:
            Operation.objects.update(due_at="2020-01-01T00:00:00Z")
            perform_due(self.kind)
            return read()

        wait_until(step, lambda: list(Operation.objects.values("error", "attempts")))


@contextmanager
def on_aws() -> Iterator[Site]:
    cloud = Cloud()
    cloud.certificates |= {CERTIFICATE, OTHER_CERTIFICATE}

    def change(certificate: str) -> None:
        for each in cloud.listeners.values():
            each.certificates = (certificate,)

    with use_cloud(cloud) as address:
        place = {"region": cloud.region, **name_endpoints(address)}
        yield Site(
            cloud,
            {"kind": "aws", "subnets": SUBNETS, **place},
            {"shared": True},
            (CERTIFICATE, OTHER_CERTIFICATE),
            lambda: [each.certificates[0] for each in cloud.listeners.values()],
            change,
        )


@contextmanager
def on_tencent() -> Iterator[Site]:
    world = ClbWorld()

    def change(certificate: str) -> None:
        for each in world.listeners():
            each.certificate = certificate

    with serve(world) as server:
        place = {"region": world.region, "endpoint": server.endpoint}
        yield Site(
            world,
            {"kind": "tencent", "load_balancer": {"vpc_id": "vpc-12345678"}, **place},
            {"protocols": ["tcp", "udp"]},
            ("cert-1", "cert-2"),
            lambda: [each.certificate for each in world.listeners()],
            change,
        )


SITES = {"aws": on_aws, "tencent": on_tencent}


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with SITES[request.param]() as found:
        yield found


def route(claim: ClaimView) -> ClaimView:
    backend = BackendRequest("10.0.1.7", port=8443 + claim.slots[0].number % 100)
    return set_backend(claim_id=claim.id, generation=claim.generation, backend=backend)


def is_ready(*claims: ClaimView) -> bool:
    return all(each["is_met"] for claim in claims for each in again(claim).conditions)
