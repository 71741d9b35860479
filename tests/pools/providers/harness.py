"""What the conformance suite needs from each provider: a way to set a scene in its world and to
inspect it afterwards.

A new provider adds `tests/pools/providers/<kind>/harness.py` with `HARNESSES`, and the suite runs
over them. Flags leave out what a world cannot show.
"""

import errno
import resource
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    Provider,
    SlotSnapshot,
)
from project.kernel.embedded import detached
from project.kernel.outbox.operations import ProviderError, QuotaExceeded, Throttled
from tests.pools.providers.fake_providers import CraneProvider, ShelfProvider, World, fresh

STATES = ("idle", "held", "reserved", "draining", "retired")


@contextmanager
def disk_full_after_the_start() -> Iterator[None]:
    """A process is started, and its record cannot be written."""

    def refuse(folder: Path, process: detached.Process) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detached, "adopt", refuse)
        yield


class FailingCalls(Provider):
    """Before a real provider in a class: its next calls meet the faults, each call one."""

    faults: ClassVar[list[Callable[[], AbstractContextManager[None]]]]

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        with self.next_fault():
            return super().sync(pool, member)  # type: ignore[safe-super]

    def look(self, pool: PoolSnapshot) -> Observation:
        with self.next_fault():
            return super().look(pool)  # type: ignore[safe-super]

    def next_fault(self) -> AbstractContextManager[None]:
        return self.faults.pop(0)() if self.faults else nullcontext()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open no further file, also if another thread closes one meanwhile: only the
    three standard streams are below the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@dataclass
class Harness:
    provider: Callable[[], Provider]
    good_options: dict[str, Any] = field(default_factory=dict)
    world: World | None = None
    has_sessions: bool = False  # a slot may still be in use after its claim has left
    makes_things: bool = False
    # The errors that its world can raise. Empty: the provider makes no call that could fail.
    failures: Sequence[ProviderError] = (
        Throttled("slow down", retry_after=2.0),
        QuotaExceeded("full"),
        ProviderError("no answer"),
    )
    # The provider finds out that a draining slot is clean; else an agent reports it.
    cleans: bool = True
    sees_slots: bool = False  # it reports the objects in the places of slots
    has_ports: bool = False  # its members are load balancers (test_port_conformance.py)
    # The options whose rights have been reviewed: `options` need `configure` in all pools, but for
    # `free_options`, which an admin of the pool may change.
    options: Collection[str] = ()
    free_options: Collection[str] = ()

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
        """Objects that are not Berth's."""
        return None if self.world is None else dict(self.world.foreign)

    def count_made(self) -> int:
        """Things that were made, whether they are still there or not."""
        assert self.world is not None
        return self.world.made

    def let_go(self) -> None:
        """The outside ends the objects whose deletion was requested; empty where a deletion needs
        no confirmation.
        """

    def put_foreign(self, member: MemberSnapshot, slot: SlotSnapshot) -> None:
        """Put an object that is not Berth's into the place of a slot."""
        assert self.world is not None
        token = f"{self.pool(member).name}/{member.id}"
        self.world.foreign_listeners.add((token, slot.lane, slot.number))

    def fail_next(self, error: ProviderError, *, after: bool = False) -> None:
        assert self.world is not None
        (self.world.errors_after if after else self.world.errors).append(error)


def list_harnesses() -> dict[str, Harness]:
    """The harnesses of fake providers, and those of each `<kind>/harness.py` beside this file."""
    found: dict[str, Harness] = {
        "shelf": Harness(
            ShelfProvider, good_options={"row": 3}, has_sessions=True, options={"row"}
        ),
        "crane": Harness(CraneProvider, makes_things=True, sees_slots=True),
    }
    for path in sorted(Path(__file__).parent.glob("*/harness.py")):
        found |= import_module(f"{__package__}.{path.parent.name}.harness").HARNESSES
    return found
