"""Fixtures for tests that use the services of claims."""

import pytest

from claims.allocation.requests.resolve import forget_routes
from claims.allocation.wait_reason import forget_explanations


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    forget_routes()
    forget_explanations()
