"""Drains are tested through their services, on a real database and with real commits."""

import pytest

from claims.explaining import forget_explanations
from claims.routes import forget_routes


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    forget_routes()
    forget_explanations()


@pytest.fixture
def tables(transactional_db: None) -> None:
    """Real commits: several connections see them, and what happens after the commit happens."""
