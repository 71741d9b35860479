"""Tables that several connections see: committed, emptied before and after."""

from collections.abc import Iterator

import pytest

from pools.models import Pool
from pools.services import create_pool
from tests.claims.fixtures import nothing_remembered
from tests.model import kit

__all__ = ["nothing_remembered"]  # fixtures


@pytest.fixture
def tables(db: None) -> Iterator[None]:
    """Used by actors with connections of their own. Django's connection of the main thread stays in the test's transaction, unused."""
    kit.empty()  # what is left by somebody who commits
    yield
    kit.empty()


@pytest.fixture
def pool(db: None) -> Pool:
    return create_pool({"name": "lab", "slots": 2, "members": {"list": [{"name": "a"}, {"name": "b"}]}})


@pytest.fixture
def drains(pool: Pool) -> Pool:
    """Something outside is to be cleaned."""
    Pool.objects.update(queue="local")
    pool.refresh_from_db()
    return pool
