"""The harness of the provider kubernetes for the conformance suite."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from pools.config.parsing import Faults
from pools.providers.base import MemberSnapshot
from pools.providers.kubernetes.provider import KubernetesProvider
from project.kernel.kubernetes import client
from project.kernel.outbox.operations import ProviderError, QuotaExceeded, Throttled
from tests.kubernetes_cluster.namespace import Space
from tests.pools.providers.harness import Harness


class KubeHarness(Harness):
    """A namespace of its own on an API server, where only the tests run pods."""

    space: Space
    ids: dict[int, str]

    def __init__(self, world: str) -> None:
        super().__init__(
            KubernetesProvider,
            makes_things=True,
            cleans=False,
            options={"context", "namespace", "url", "template", "agent"},
            free_options={"template.resources", "template.grace"},
        )
        self.fixture = world

    @contextmanager
    def world_of_its_own(self, request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
        self.space, self.ids = Space(request.getfixturevalue(self.fixture)).make(), {}
        template = {"image": "registry.example/agent:1"}
        self.good_options = {
            "context": "gated",
            "namespace": self.space.name,
            "url": "http://berth.example",
            "template": template,
        }
        self.good_options = dict(
            KubernetesProvider.read_options(self.good_options, "provider", Faults())
        )
        self.space.create_pod("theirs", labels={"app": "other"})
        self.space.create("secrets", {"metadata": {"name": "theirs"}, "stringData": {"a": "b"}})
        told = {name: os.environ.pop(name, None) for name in ("BERTH_KUBECONFIG", "KUBECONFIG")}
        os.environ["BERTH_KUBECONFIG"] = str(self.space.world.kubeconfig)
        client.forget()
        try:
            yield
        finally:
            os.environ.pop("BERTH_KUBECONFIG")
            os.environ.update({name: value for name, value in told.items() if value is not None})
            client.forget()
            self.space.world.heal()
            self.space.remove()

    def member(
        self, state: str = "ready", number: int = 1, *, is_overdue: bool = False
    ) -> MemberSnapshot:
        found = super().member(state, number, is_overdue=is_overdue)
        return (
            replace(found, token="berthm_1_x")
            if state == "creating"
            else replace(found, external_id=self.ids.get(number, ""))
        )

    def there(self, number: int = 1) -> MemberSnapshot:
        creating = replace(self.member("creating", number), slots=())
        self.ids[number] = self.provider().sync(self.pool(creating), creating).external_id
        self.space.run(self.ids[number].partition("/")[0])
        return self.member("ready", number)

    def outside(self) -> Any:
        things = [thing for plural in ("pods", "secrets") for thing in self.space.things(plural)]
        return [
            (
                thing["metadata"]["name"],
                thing["metadata"]["uid"],
                thing["metadata"]["resourceVersion"],
            )
            for thing in things
        ]

    def foreign(self) -> Any:
        return [self.space.get("theirs", plural) for plural in ("pods", "secrets")]

    def count_made(self) -> int:
        return len(self.space.pods()) - 1

    def let_go(self) -> None:
        for pod in self.space.pods():
            if "deletionTimestamp" in pod["metadata"]:
                self.space.confirm_deletion(pod["metadata"]["name"])

    def fail_next(self, error: ProviderError, *, after: bool = False) -> None:
        world = self.space.world
        if after:
            world.refuse("create", 0, plural="pods", is_after=True)
        elif isinstance(error, Throttled):
            world.refuse("*", 429, retry_after=1)
        elif isinstance(error, QuotaExceeded):
            world.refuse(
                "*",
                403,
                message=(
                    "pods is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, "
                    "limited: pods=3"
                ),
            )
        else:
            world.refuse("*", 500)


HARNESSES = {
    "kubernetes": KubeHarness("fake_kube"),
    "kubernetes_on_real_kube": KubeHarness("real_kube"),
}
