"""Drains are tested through their services, on a real database; commit hooks run."""

from tests.claims.fixtures import nothing_remembered

__all__ = ["nothing_remembered"]  # fixtures
