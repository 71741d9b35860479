"""Page tests commit, because a socket gets its changes from the event log."""

import pytest
from django.contrib.auth.models import User

from tests.claims.fixtures import nothing_remembered
from tests.dashboard.helpers import person

__all__ = ["nothing_remembered"]  # fixtures


@pytest.fixture
def ana(transactional_db: None) -> User:
    """An admin of all pools."""
    return person("ana", "admin")
