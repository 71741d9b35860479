"""Doctor checks of claims. They read rows and rely on no trigger or constraint."""

from claims.checks import (
    evacuations,
    files,
    holding,
    ports,
    runs,
    states,
    tasks,
    waiting,
    workspaces,
)

__all__ = [
    "evacuations",
    "files",
    "holding",
    "ports",
    "runs",
    "states",
    "tasks",
    "waiting",
    "workspaces",
]
