"""Prepares an apply from its plan: in the folder of the plan if this agent still has it, else from
the same source, and only with the approved plan.
"""

from __future__ import annotations

from ..common.errors import TaskFailed
from ..server.client import BerthClient
from ..server.protocol import SavedPlan
from ..workdir.folders import Folder, digest_file
from .git import check_path
from .job import Job
from .sources import SourceOrigin, download, enter_folder, fetch_source

COMPARED = {
    "binary": "program",
    "version": "version",
    "platform": "platform",
    "lock_digest": "lock file",
    "source_digest": "source",
}


def open_source(job: Job, client: BerthClient, saved: SavedPlan) -> tuple[SourceOrigin, bool]:
    """The source of a plan, and whether it is the kept folder of the plan. A source that was
    fetched again must equal the planned one.
    """
    commit = str(saved.facts.get("commit") or "")
    inside = adopt_kept_folder(job)
    if inside is None:
        origin = fetch_source(job, client, commit)
        check_facts(saved, {"source_digest": origin.digest})
        return origin, False
    enter_folder(job, inside)
    return SourceOrigin(str(saved.facts.get("source_digest") or ""), commit, inside), True


def adopt_kept_folder(job: Job) -> str | None:
    """Make the job work in the kept folder of its plan; returns the path inside the source. None:
    this agent does not have the folder.
    """
    saved = job.work.plan
    record = job.state.kept(job.work.claim, saved.digest) if saved else None
    if record is None:
        return None
    folder = Folder(job.folder.top.with_name(record.name))
    if not folder.is_there:
        return None
    inside = check_path(job.work.source.path)
    job.folder = folder
    job.adopt_folder()
    folder.chown(job.user)
    job.log_line("Berth: in the folder of the plan")
    return inside


def fetch_plan(job: Job, client: BerthClient, saved: SavedPlan) -> None:
    """Put the saved plan into the task's folder, from the agent's copy or from the server. A plan
    with another digest is refused.
    """
    if not saved.has_file:
        return
    copy = job.folder.saved_plan
    if not copy.is_file() or digest_file(copy) != saved.digest:
        download(job, client, f"{job.record.path}plan/", copy, job.work.limits.plan_bytes)
        if digest_file(copy) != saved.digest:
            raise plan_again_error(
                "The saved plan on the server is not the approved plan.", "plan_differs"
            )
    job.folder.copy_input("plan", copy, job.user)


def check_facts(saved: SavedPlan, facts: dict[str, str]) -> None:
    """Compare the facts that both sides have. Raises a TaskFailed that asks for a new plan."""
    for name, words in COMPARED.items():
        planned, here = saved.facts.get(name), facts.get(name)
        if name == "lock_digest" and "version" in saved.facts and not planned:
            planned = ""  # a plan with a version and no digest had no lock file
        if planned is not None and here is not None and planned != here:
            what = f"{planned or 'none'} when planned, {here or 'none'} here"
            short = words if name.endswith("digest") else f"{words} ({what})"
            raise plan_again_error(f"The plan was made with another {short}.")


def plan_again_error(reason: str, code: str = "binary_differs") -> TaskFailed:
    return TaskFailed(code, f"{reason} The task is planned again.", outcome="plan_again")
