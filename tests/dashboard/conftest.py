"""Page tests commit, because a socket gets its changes from the event log."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.claims.fixtures import nothing_remembered
from tests.dashboard.helpers import person

__all__ = ["nothing_remembered"]  # fixtures


@pytest.fixture
def ana(transactional_db: None) -> User:
    """An admin of all pools."""
    return person("ana", "admin")


@pytest.fixture
def other(browser: Any, site: str) -> Iterator[Any]:
    """A second window, of somebody else."""
    context = browser.new_context(base_url=site, viewport={"width": 1440, "height": 900})
    yield context.new_page()
    context.close()
