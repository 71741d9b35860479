"""Providers for tests, each over a small world in memory; the product ships no fakes.

`shelf` has a queue: members exist, slots have sessions that must end before a slot is clean, and
cleaning may fail. `crane` creates its members outside and deletes them again, beside foreign
objects that it must leave alone. It creates a listener for each slot that a claim holds, and
reports the listeners.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pools.config.fields import Fields, Option
from pools.config.parsing import Described, Faults
from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    Provider,
    Seen,
    SeenSlot,
)
from project.kernel.outbox.budgets import CallBudget
from project.kernel.outbox.operations import NotFoundOutside, PermanentError, ProviderError


@dataclass
class World:
    sessions: set[int] = field(default_factory=set)  # slots with a session
    # Slots whose session doesn't end by being asked.
    stubborn: set[int] = field(default_factory=set)
    vanished: set[str] = field(default_factory=set)  # members that have gone outside
    sick: set[str] = field(default_factory=set)  # members that are there and not ready
    # What the crane made: token -> name outside.
    things: dict[str, str] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=lambda: {"theirs": "thing-of-somebody-else"})
    errors: list[ProviderError] = field(default_factory=list)  # raised by the next calls, one each
    # The same, once the call has had its effect.
    errors_after: list[ProviderError] = field(default_factory=list)
    # What the crane made in the places of slots: (token, lane, number) -> id of the listener.
    listeners: dict[tuple[str, str, int], str] = field(default_factory=dict)
    foreign_listeners: set[tuple[str, str, int]] = field(default_factory=set)
    # Further attributes of a listener, such as its health and its target.
    details: dict[tuple[str, str, int], dict[str, object]] = field(default_factory=dict)
    budget: CallBudget | None = None
    calls: int = 0
    made: int = 0

    def call(self) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)

    def end_call(self) -> None:
        if self.errors_after:
            raise self.errors_after.pop(0)


class ShelfProvider(Provider):
    kind: ClassVar[str] = "shelf"
    queue: ClassVar[str] = "shelf"
    option_fields: ClassVar[Fields] = Fields({name: Option(Described({}), "") for name in ("row",)})
    world: ClassVar[World] = World()

    @classmethod
    def read_options(
        cls, options: Mapping[str, Any], where: str, faults: Faults
    ) -> Mapping[str, Any]:
        read = dict(super().read_options(options, where, faults))
        if "row" in read and not isinstance(read["row"], int):
            faults.add(f"{where}.row", "This is not a number.", "Use a whole number.")
            del read["row"]
        return read

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        self.world.call()
        if member.name in self.world.vanished:
            raise NotFoundOutside(f"{member.name} is not on the shelf")
        for slot in member.slots:
            if slot.state == "draining" and slot.is_overdue:
                self.world.sessions.discard(slot.id)
                self.world.stubborn.discard(slot.id)
        draining = {slot.id for slot in member.slots if slot.state == "draining"}
        self.world.end_call()
        return MemberReport(
            clean=frozenset(draining - self.world.sessions - self.world.stubborn),
            is_gone=member.state == "deleting",
            is_ready=member.name not in self.world.sick,
        )

    def look(self, pool: PoolSnapshot) -> Observation:
        self.world.call()
        there = [m for m in pool.members if m.name not in self.world.vanished]
        return Observation(
            tuple(
                Seen(m.id, is_ready=m.name not in self.world.sick, why="door open") for m in there
            )
        )


class CraneProvider(Provider):
    kind: ClassVar[str] = "crane"
    queue: ClassVar[str] = "crane"
    is_owner: ClassVar[bool] = True
    world: ClassVar[World] = World()

    @classmethod
    def call_budget(cls, options: Mapping[str, Any]) -> CallBudget | None:
        return cls.world.budget

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        """Looks for its token before it creates: a call that timed out may have had its effect."""
        self.world.call()
        token = f"{pool.name}/{member.id}"
        if member.state == "deleting":
            self.world.things.pop(token, None)
            self.world.end_call()
            return MemberReport(is_gone=True)
        if token not in self.world.things:
            if member.state != "creating":
                raise NotFoundOutside(f"{token} is not there")
            self.world.made += 1
            self.world.things[token] = f"thing-{self.world.made}"
        for slot in member.slots:
            place = (token, slot.lane, slot.number)
            if place in self.world.foreign_listeners:
                continue
            if slot.state in ("held", "reserved"):
                self.world.listeners.setdefault(place, f"listener-{slot.number}")
            else:
                self.world.listeners.pop(place, None)
        self.world.end_call()
        return MemberReport(
            clean=frozenset(slot.id for slot in member.slots if slot.state == "draining"),
            is_ready=True,
            external_id=self.world.things[token],
            slots=self.see_slots(token),
        )

    def see_slots(self, token: str) -> tuple[SeenSlot, ...]:
        ours = [
            SeenSlot(lane, number, {"listener": name, **self.world.details.get(place, {})})
            for place, name in self.world.listeners.items()
            for owner, lane, number in [place]
            if owner == token
        ]
        foreign = [
            SeenSlot(lane, number, is_foreign=True)
            for owner, lane, number in self.world.foreign_listeners
            if owner == token
        ]
        return (*ours, *foreign)

    def look(self, pool: PoolSnapshot) -> Observation:
        self.world.call()
        tokens = {f"{pool.name}/{m.id}": m for m in pool.members}
        return Observation(
            tuple(
                Seen(m.id, external_id=self.world.things[t], slots=self.see_slots(t))
                for t, m in tokens.items()
                if t in self.world.things
            ),
            strays={
                int(t.partition("/")[2]): thing
                for t, thing in self.world.things.items()
                if t.partition("/")[0] == pool.name and t not in tokens
            },
        )

    @classmethod
    def name_adopted(cls, pool: str, stray: str, member_id: int) -> str | None:
        return f"adopted-{member_id}" if stray.startswith("thing-") else None

    def remove_strays(self, pool: PoolSnapshot, member_ids: Collection[int]) -> None:
        self.world.call()
        for member_id in member_ids:
            self.world.things.pop(f"{pool.name}/{member_id}", None)


class BrokenProvider(ShelfProvider):
    """Never succeeds: what it is asked stays open and visible."""

    kind: ClassVar[str] = "broken"
    queue: ClassVar[str] = "broken"

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        raise PermanentError("the drawer is jammed")


ALL = (
    "pools.providers.static.provider.StaticProvider",
    "tests.pools.providers.fake_providers.ShelfProvider",
    "tests.pools.providers.fake_providers.CraneProvider",
    "tests.pools.providers.fake_providers.BrokenProvider",
)


def fresh() -> None:
    """Empty worlds."""
    ShelfProvider.world = World()
    BrokenProvider.world = World()
    CraneProvider.world = World()
