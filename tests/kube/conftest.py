"""Fixtures of the tests over clusters."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slots.controllers import Watcher
from tests.conformance.harness import KubeHarness


@pytest.fixture(scope="module")
def target() -> Iterator[Path]:
    """Where tasks write. They may be other users than we are, so it is everybody's."""
    found = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="berth-test-"))
    found.chmod(0o777)
    yield found
    shutil.rmtree(found)


@pytest.fixture
def bench(request: pytest.FixtureRequest, settings: Any) -> Iterator[KubeHarness]:
    """On the cluster in memory."""
    bench = KubeHarness("fake_kube")
    with bench.world_of_its_own(request, settings):
        yield bench


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    watcher = Watcher()
    yield watcher
    watcher.close()
