"""Claims are tested through their services, on a real database and with real commits: what
happens after the commit counts, too.
"""

from tests.api.conftest import caller
from tests.claims.fixtures import nothing_remembered, tables
from tests.dashboard.conftest import other

__all__ = ["caller", "nothing_remembered", "other", "tables"]  # fixtures
