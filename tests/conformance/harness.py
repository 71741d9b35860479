"""What the suite needs to know of a provider: how to set a scene in its world, and how to look at it afterwards.

Whoever adds a provider adds a harness, and the suite runs over it. What a world can't show is left out by its flags.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pools.providers.base import MemberSnapshot, PoolSnapshot, Provider, SlotSnapshot
from pools.providers.static import StaticProvider
from project.kernel.operations import ProviderError
from tests.conformance.worlds import CraneProvider, ShelfProvider, World, fresh

STATES = ("idle", "held", "reserved", "draining", "retired")


@dataclass
class Harness:
    provider: Callable[[], Provider]
    good_options: dict[str, Any] = field(default_factory=dict)
    world: World | None = None
    has_sessions: bool = False  # a slot may still be in use after its claim has left
    makes_things: bool = False
    can_fail: bool = True

    def begin(self) -> None:
        fresh()
        kind: Any = self.provider
        self.world = getattr(kind, "world", None)

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


HARNESSES = {
    "static": Harness(StaticProvider, can_fail=False),
    "shelf": Harness(ShelfProvider, good_options={"row": 3}, has_sessions=True),
    "crane": Harness(CraneProvider, makes_things=True),
}
