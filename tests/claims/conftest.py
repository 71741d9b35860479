"""Claims are tested through their services; commit hooks run."""

from tests.api.conftest import caller
from tests.claims.fixtures import nothing_remembered
from tests.dashboard.conftest import other

__all__ = ["caller", "nothing_remembered", "other"]  # fixtures
