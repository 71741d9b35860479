"""Tables that several connections see: committed, and emptied before and after each test."""

from collections.abc import Iterator

import pytest

from pools.lifecycle.services import create_pool
from pools.models import Pool
from tests.claims.fixtures import nothing_remembered
from tests.database import helpers

__all__ = ["nothing_remembered"]  # fixtures


@pytest.fixture
def tables(db: None) -> Iterator[None]:
    """Used by actors with connections of their own. Django's connection of the main thread stays
    in the test's transaction, unused.
    """
    helpers.empty()  # rows of a test that committed
    yield
    helpers.empty()


@pytest.fixture
def pool(db: None) -> Pool:
    return create_pool(
        {"name": "lab", "slots": 2, "members": {"list": [{"name": "a"}, {"name": "b"}]}}
    )


@pytest.fixture
def drains(pool: Pool) -> Pool:
    """A pool whose slots drain after a release."""
    Pool.objects.update(queue="local")
    pool.refresh_from_db()
    return pool
