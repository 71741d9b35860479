"""Invariants of claims for the doctor. It trusts no trigger and no constraint: it reads rows."""

from claims.checks import holding, tasks, waiting

__all__ = ["holding", "tasks", "waiting"]
