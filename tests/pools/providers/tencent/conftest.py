"""Fixtures of the tests over the fake CLB API."""

from collections.abc import Iterator

import pytest

from tests.pools.providers.tencent.clb_world import ClbWorld
from tests.pools.providers.tencent.harness import serve
from tests.pools.providers.tencent.scene import Scene


@pytest.fixture
def world() -> ClbWorld:
    return ClbWorld()


@pytest.fixture
def scene(world: ClbWorld) -> Iterator[Scene]:
    with serve(world) as server:
        yield Scene(world, server)
