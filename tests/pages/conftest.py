"""Pages are tested on real commits: what a socket hears comes out of the log."""

import pytest

from claims.explaining import forget_explanations
from claims.routes import forget_routes


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    forget_routes()
    forget_explanations()
