"""Invariants of claims for the doctor. It trusts no trigger and no constraint: it reads rows."""

from claims.checks import files, holding, runs, states, tasks, waiting, workspaces

__all__ = ["files", "holding", "runs", "states", "tasks", "waiting", "workspaces"]
