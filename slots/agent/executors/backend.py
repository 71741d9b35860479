"""Finds the backend of a Terraform module as `init` has recorded it, from any syntax and override,
and refuses a run that would lose the state.
"""

from __future__ import annotations

import json

from ..common.errors import TaskFailed
from ..workdir.folders import open_plain, open_subfolder
from .job import Job

DATA, RECORD = ".terraform", "terraform.tfstate"
LARGEST = 1_000_000  # bytes of the record
LOCAL = "local"  # the state is a file in the folder of the task, which is deleted
KEEPING = "plan_and_apply"  # only this task changes the state
DISCARD = "discard"  # `state` of a run that needs no kept state
WAY_OUT = (
    'Name a backend in the module, like `terraform { backend "s3" {} }`. If the state is not '
    "needed, say `state: discard` in the run."
)


def find_backend(job: Job, inside: str) -> str:
    """The type of the effective backend; `cloud` for a cloud block; empty without a backend."""
    try:
        with open_subfolder(job.folder.source, f"{inside}/{DATA}") as folder, open_plain(
            RECORD, folder
        ) as file:
            found = json.loads(file.read(LARGEST + 1)[:LARGEST])
    except (OSError, TaskFailed, ValueError, RecursionError):
        return ""
    parts = (
        [found.get(name) for name in ("backend", "state_store")] if isinstance(found, dict) else []
    )
    types = [str(part.get("type") or "") for part in parts if isinstance(part, dict)]
    return next((name[:100] for name in types if name), "")


def check_backend(job: Job, inside: str) -> dict[str, str]:
    """Check the backend between init and plan or apply; returns its fact for the run. A module
    without a backend is refused, unless the run says `state: discard`.
    """
    backend = find_backend(job, inside)
    is_kept = backend not in ("", LOCAL)
    if job.work.task != KEEPING:
        return {"backend": backend} if backend else {}
    if job.work.state == DISCARD:
        if is_kept:
            raise TaskFailed(
                "has_backend",
                f"The run says `state: discard`, and the {backend} backend of the module "
                "keeps the state. Leave `state` out of the run.",
            )
        job.log_line(
            "Berth: the state is not kept (state: discard); the next run creates everything again"
        )
        return {"backend": DISCARD}
    if not is_kept:
        what = "The backend of the module is `local`" if backend else "The module has no backend"
        text = (
            f"{what}: the state would be deleted with the folder of this task, and the next run "
            "would create everything again."
        )
        raise TaskFailed("no_backend", f"{text} {WAY_OUT}")
    return {"backend": backend}
