"""The harness of the provider local for the conformance suite."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pools.providers.base import MemberSnapshot
from pools.providers.local.agent_folder import FOLDER
from pools.providers.local.provider import LocalProvider
from project.kernel.outbox.operations import ProviderError
from tests.pools.providers.harness import (
    FailingCalls,
    Harness,
    disk_full_after_the_start,
    no_descriptors,
)
from tests.pools.providers.local.helpers import is_up, own_home, processes_of
from tests.waiting import wait_until


class FailingProvider(FailingCalls, LocalProvider):
    """The real provider on a machine whose next calls fail."""

    faults: ClassVar[list[Callable[[], AbstractContextManager[None]]]] = []


class LocalHarness(Harness):
    """Real processes, in a folder that goes with the test."""

    home: Path

    @contextmanager
    def world_of_its_own(self, request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as home, own_home(settings, Path(home)):
            self.home = Path(home)
            FailingProvider.faults.clear()
            theirs = self.home / FOLDER / "theirs"
            theirs.mkdir(parents=True)
            (theirs / "notes").write_text("not Berth's")
            yield
            assert not FailingProvider.faults, "a fault met no call"

    def member(
        self, state: str = "ready", number: int = 1, *, is_overdue: bool = False
    ) -> MemberSnapshot:
        found = super().member(state, number, is_overdue=is_overdue)
        return replace(found, token="berthm_1_x") if state == "creating" else found

    def there(self, number: int = 1) -> MemberSnapshot:
        """The agent has started its children: the set of processes is complete."""
        found = super().there(number)
        wait_until(lambda: is_up(number), "the agent is not up")
        return found

    def outside(self) -> Any:
        files = {
            file: file.stat().st_ino
            for file in self.home.rglob("*")
            if file.name.startswith(("token", "process"))
        }
        # Each agent has a session; its starting children share it.
        return files, {os.getsid(pid) for pid in processes_of(self.home)}

    def foreign(self) -> Any:
        theirs = self.home / FOLDER / "theirs"
        return {str(file): file.read_text() for file in theirs.iterdir()}

    def count_made(self) -> int:
        """Each start of an agent leaves a line, also of one that finds another there and ends."""
        wait_until(lambda: is_up(1), "the agent is not up")
        starts = (self.home / FOLDER).glob("*/starts")
        return sum(len(file.read_text().splitlines()) for file in starts)

    def fail_next(self, error: ProviderError, *, after: bool = False) -> None:
        FailingProvider.faults.append(disk_full_after_the_start if after else no_descriptors)


HARNESSES = {
    "local": LocalHarness(
        FailingProvider,
        makes_things=True,
        failures=[ProviderError("too many open files")],
        cleans=False,
        options={"env"},
    )
}
