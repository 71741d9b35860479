"""Decisions are tested through their services with real commits, so that commit hooks run."""

from tests.claims.fixtures import nothing_remembered, tables

__all__ = ["nothing_remembered", "tables"]  # fixtures
