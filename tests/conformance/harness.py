"""What the suite needs to know of a provider: how to set a scene in its world, and how to look at it afterwards.

Whoever adds a provider adds a harness, and the suite runs over it. What a world can't show is left out by its flags.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pools.providers.agents import AgentsProvider
from pools.providers.base import MemberSnapshot, PoolSnapshot, Provider, SlotSnapshot
from pools.providers.local import LocalProvider
from pools.providers.static import StaticProvider
from project.kernel.operations import ProviderError
from tests.conformance.worlds import CraneProvider, ShelfProvider, World, fresh
from tests.local.kit import own_home, processes_of

STATES = ("idle", "held", "reserved", "draining", "retired")


@dataclass
class Harness:
    provider: Callable[[], Provider]
    good_options: dict[str, Any] = field(default_factory=dict)
    world: World | None = None
    has_sessions: bool = False  # a slot may still be in use after its claim has left
    makes_things: bool = False
    can_fail: bool = True
    cleans: bool = True  # what drains is clean once the provider finds it empty; else somebody else says so

    @contextmanager
    def world_of_its_own(self, settings: Any) -> Iterator[None]:
        fresh()
        kind: Any = self.provider
        self.world = getattr(kind, "world", None)
        yield

    def pool(self, *members: MemberSnapshot) -> PoolSnapshot:
        return PoolSnapshot(id=7, name="lab", provider=self.provider().kind, options=self.good_options, members=members)

    def member(self, state: str = "ready", number: int = 1, *, is_overdue: bool = False) -> MemberSnapshot:
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
        return MemberSnapshot(id=number, name=f"m{number}", state=state, is_owned=owned, slots=slots)

    def there(self, number: int = 1) -> MemberSnapshot:
        """A member that exists outside and is ready."""
        if self.makes_things:
            creating = replace(self.member("creating", number), slots=())
            self.provider().sync(self.pool(creating), creating)
        return self.member("ready", number)

    def outside(self) -> Any:
        """All of the world that must not change by itself."""
        return None if self.world is None else (dict(self.world.things), set(self.world.sessions))

    def fail_next(self, error: ProviderError, *, after: bool = False) -> None:
        assert self.world is not None
        (self.world.errors_after if after else self.world.errors).append(error)


class LocalHarness(Harness):
    """Real processes, in a folder that goes with the test."""

    home: Path

    @contextmanager
    def world_of_its_own(self, settings: Any) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as home, own_home(settings, Path(home)):
            self.home = Path(home)
            yield

    def member(self, state: str = "ready", number: int = 1, *, is_overdue: bool = False) -> MemberSnapshot:
        found = super().member(state, number, is_overdue=is_overdue)
        return replace(found, token="berthm_1_x") if state == "creating" else found

    def outside(self) -> Any:
        files = {file: file.stat().st_ino for file in self.home.rglob("*") if file.name.startswith(("token", "process"))}
        return files, sorted(os.getsid(pid) for pid in processes_of(self.home))


HARNESSES = {
    "agents": Harness(AgentsProvider, can_fail=False, cleans=False),
    "local": LocalHarness(LocalProvider, makes_things=True, can_fail=False, cleans=False),
    "static": Harness(StaticProvider, can_fail=False),
    "shelf": Harness(ShelfProvider, good_options={"row": 3}, has_sessions=True),
    "crane": Harness(CraneProvider, makes_things=True),
}
