"""The harness of the provider local for the conformance suite."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pools.providers.base import MemberSnapshot
from pools.providers.local.provider import LocalProvider
from tests.pools.providers.harness import Harness
from tests.pools.providers.local.helpers import is_up, own_home, processes_of
from tests.waiting import wait_until


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


HARNESSES = {
    "local": LocalHarness(
        LocalProvider, makes_things=True, can_fail=False, cleans=False, options={"env"}
    )
}
