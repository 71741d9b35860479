"""Invariants of claims for the doctor. It trusts no trigger and no constraint: it reads rows."""

from claims.checks import files, holding, tasks, waiting

__all__ = ["files", "holding", "tasks", "waiting"]
