"""Decisions are tested through their services, on a real database and with real commits: what
happens after the commit counts, too.
"""

from tests.claims.fixtures import nothing_remembered, tables

__all__ = ["nothing_remembered", "tables"]  # fixtures
