"""What tests through services of claims begin with."""

import pytest

from claims.explaining import forget_explanations
from claims.routes import forget_routes


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    forget_routes()
    forget_explanations()


@pytest.fixture
def tables(transactional_db: None) -> None:
    """Real commits: several connections and processes see them, and what happens after the commit happens."""
