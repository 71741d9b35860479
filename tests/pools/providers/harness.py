"""What the conformance suite needs from each provider: a way to set a scene in its world and to
inspect it afterwards.

A new provider adds a harness, and the suite runs over it. Flags leave out what a world cannot
show.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pools.config.parsing import Faults
from pools.providers.agents import AgentsProvider
from pools.providers.base import MemberSnapshot, PoolSnapshot, Provider, SlotSnapshot
from pools.providers.kubernetes.provider import KubernetesProvider
from pools.providers.local.provider import LocalProvider
from pools.providers.static import StaticProvider
from project.kernel.kubernetes import client
from project.kernel.outbox.operations import ProviderError, QuotaExceeded, Throttled
from tests.kubernetes_cluster.namespace import Space
from tests.pools.providers.fake_providers import CraneProvider, ShelfProvider, World, fresh
from tests.pools.providers.local.helpers import own_home, processes_of

STATES = ("idle", "held", "reserved", "draining", "retired")


@dataclass
class Harness:
    provider: Callable[[], Provider]
    good_options: dict[str, Any] = field(default_factory=dict)
    world: World | None = None
    has_sessions: bool = False  # a slot may still be in use after its claim has left
    makes_things: bool = False
    can_fail: bool = True
    # What drains is clean once the provider finds it empty; else somebody else says so.
    cleans: bool = True

    @contextmanager
    def world_of_its_own(self, request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
        fresh()
        kind: Any = self.provider
        self.world = getattr(kind, "world", None)
        yield

    def pool(self, *members: MemberSnapshot) -> PoolSnapshot:
        return PoolSnapshot(
            id=7,
            name="lab",
            provider=self.provider().kind,
            options=self.good_options,
            members=members,
        )

    def member(
        self, state: str = "ready", number: int = 1, *, is_overdue: bool = False
    ) -> MemberSnapshot:
        """A member with a slot in each state; one that is to go has none that is occupied."""
        states = ("idle", "retired") if state == "deleting" else STATES
        slots = tuple(
            SlotSnapshot(
                id=number * 10 + i,
                lane="slot",
                number=i,
                state=name,
                claim_id=100 + i if name in ("held", "reserved") else None,
                last_claim_id=100 + i,
                generation=50 + i,
                is_overdue=is_overdue and name == "draining",
            )
            for i, name in enumerate(states)
        )
        owned = self.provider().is_owner
        return MemberSnapshot(
            id=number, name=f"m{number}", state=state, is_owned=owned, slots=slots
        )

    def there(self, number: int = 1) -> MemberSnapshot:
        """A member that exists outside and is ready."""
        if self.makes_things:
            creating = replace(self.member("creating", number), slots=())
            self.provider().sync(self.pool(creating), creating)
        return self.member("ready", number)

    def outside(self) -> Any:
        """All of the world that must not change by itself."""
        return None if self.world is None else (dict(self.world.things), set(self.world.sessions))

    def foreign(self) -> Any:
        """What belongs to others."""
        return None if self.world is None else dict(self.world.foreign)

    def count_made(self) -> int:
        """Things that were made, whether they are still there or not."""
        assert self.world is not None
        return self.world.made

    def let_go(self) -> None:
        """Whoever runs what was asked to go lets go of it. Where that takes nobody's word there
        is nothing to do.
        """

    def fail_next(self, error: ProviderError, *, after: bool = False) -> None:
        assert self.world is not None
        (self.world.errors_after if after else self.world.errors).append(error)


class LocalHarness(Harness):
    """Real processes, in a folder that goes with the test."""

    home: Path

    @contextmanager
    def world_of_its_own(self, request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as home, own_home(settings, Path(home)):
            self.home = Path(home)
            yield

    def member(
        self, state: str = "ready", number: int = 1, *, is_overdue: bool = False
    ) -> MemberSnapshot:
        found = super().member(state, number, is_overdue=is_overdue)
        return replace(found, token="berthm_1_x") if state == "creating" else found

    def outside(self) -> Any:
        files = {
            file: file.stat().st_ino
            for file in self.home.rglob("*")
            if file.name.startswith(("token", "process"))
        }
        return files, sorted(os.getsid(pid) for pid in processes_of(self.home))


class KubeHarness(Harness):
    """A namespace of its own on an API server, where nobody runs pods but us."""

    space: Space
    ids: dict[int, str]

    def __init__(self, world: str) -> None:
        super().__init__(KubernetesProvider, makes_things=True, cleans=False)
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
    "agents": Harness(AgentsProvider, can_fail=False, cleans=False),
    "kubernetes": KubeHarness("fake_kube"),
    "kubernetes_on_real_kube": KubeHarness("real_kube"),
    "local": LocalHarness(LocalProvider, makes_things=True, can_fail=False, cleans=False),
    "static": Harness(StaticProvider, can_fail=False),
    "shelf": Harness(ShelfProvider, good_options={"row": 3}, has_sessions=True),
    "crane": Harness(CraneProvider, makes_things=True),
}
