"""Fixtures of the tests under a real `make up`."""

from collections.abc import Iterator

import pytest

from pools.providers.local import agent_folder
from tests.end_to_end.stack import Stack
from tests.pools.providers.local.make_up import folders, up_with


@pytest.fixture(scope="module")
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """With the module's POOL."""
    with up_with(request.module.POOL, tmp_path_factory.mktemp("home")) as stack:
        yield stack
    for folder in folders(stack):
        agent_folder.remove(folder)


@pytest.fixture(scope="module")
def token(stack: Stack) -> str:
    made = stack.manage("token", "create", "admin", "test")
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()
