"""Drains are tested through their services, on a real database and with real commits."""

from tests.claims.fixtures import nothing_remembered, tables

__all__ = ["nothing_remembered", "tables"]  # fixtures
