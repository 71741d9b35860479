"""Doctor checks of claims. They read rows and rely on no trigger or constraint."""

from claims.checks import files, holding, ports, runs, states, tasks, waiting, workspaces

__all__ = ["files", "holding", "ports", "runs", "states", "tasks", "waiting", "workspaces"]
