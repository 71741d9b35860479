"""Claims are tested through their services with real commits, so that commit hooks run."""

from tests.api.conftest import caller
from tests.claims.fixtures import nothing_remembered, tables
from tests.dashboard.conftest import other

__all__ = ["caller", "nothing_remembered", "other", "tables"]  # fixtures
