"""The harness of the provider forwarder for the conformance suite: real processes and sockets."""

import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pools.providers.base import (
    MemberSnapshot,
    PoolSnapshot,
    PortTarget,
    PortUse,
    SlotSnapshot,
)
from pools.providers.forwarder.forwarder_folder import FOLDER
from pools.providers.forwarder.options import FIELDS, FREE
from pools.providers.forwarder.provider import ForwarderProvider
from project.kernel.outbox.operations import ProviderError
from tests.pools.providers.forwarder.helpers import (
    LOCALHOST,
    QUIET,
    free_ports,
    own_home,
    processes_in,
)
from tests.pools.providers.harness import (
    FailingCalls,
    Harness,
    disk_full_after_the_start,
    no_descriptors,
)

SLOTS = 20  # ports between the first ports of two members


class FailingForwarderProvider(FailingCalls, ForwarderProvider):
    """The real provider on a machine whose next calls fail."""

    faults: ClassVar[list[Callable[[], AbstractContextManager[None]]]] = []


class ForwarderHarness(Harness):
    """Members have ports that no program of this machine uses."""

    home: Path
    first: int
    taken: list[socket.socket]

    @contextmanager
    def world_of_its_own(self, request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as home, own_home(settings, Path(home)):
            self.home, self.first, self.taken = Path(home), free_ports(3 * SLOTS), []
            FailingForwarderProvider.faults.clear()
            theirs = self.home / FOLDER / "theirs"
            theirs.mkdir(parents=True)
            (theirs / "notes").write_text("not Berth's")
            yield
            for each in self.taken:
                each.close()
            assert not FailingForwarderProvider.faults, "a fault met no call"

    def pool(self, *members: MemberSnapshot) -> PoolSnapshot:
        ports = (self.first, self.first + 3 * SLOTS - 1)
        return replace(super().pool(*members), installation="lab", ports=ports)

    def member(
        self, state: str = "ready", number: int = 1, *, is_overdue: bool = False
    ) -> MemberSnapshot:
        """A slot in each state and lane; the held ones have a target."""
        found = super().member(state, number, is_overdue=is_overdue)
        slots = []
        for slot in found.slots:
            port = self.first + number * SLOTS + slot.number
            use = PortUse("tcp", PortTarget(LOCALHOST, 9)) if slot.claim_id else None
            slots.append(replace(slot, lane="tcp", number=port, use=use))
        return replace(found, slots=tuple(slots))

    def outside(self) -> Any:
        return processes_in(self.home), {
            file: file.stat().st_ino for file in self.home.rglob("*.json")
        }

    def foreign(self) -> Any:
        theirs = self.home / FOLDER / "theirs"
        return {str(file): file.read_text() for file in theirs.iterdir()}

    def count_made(self) -> int:
        """Each start leaves a line, also of a process that finds another there and ends."""
        logs = (self.home / FOLDER).glob("*/forwarder.log")
        return sum(len(file.read_text().splitlines()) for file in logs)

    def put_foreign(self, member: MemberSnapshot, slot: SlotSnapshot) -> None:
        self.taken.append(socket.create_server((LOCALHOST, slot.number)))

    def fail_next(self, error: ProviderError, *, after: bool = False) -> None:
        FailingForwarderProvider.faults.append(
            disk_full_after_the_start if after else no_descriptors
        )


HARNESSES = {
    "forwarder": ForwarderHarness(
        FailingForwarderProvider,
        good_options=QUIET | {"proxy_protocol": "v2"},
        makes_things=True,
        failures=[ProviderError("too many open files")],
        sees_slots=True,
        has_ports=True,
        options=set(FIELDS),
        free_options=FREE,
    )
}
