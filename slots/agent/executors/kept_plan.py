"""An apply starts from what was planned: the folder where that happened, or the same things
brought anew; never from something else.
"""

from __future__ import annotations

from ..common.errors import TaskFailed
from ..server.client import BerthClient
from ..server.protocol import SavedPlan
from ..workdir.folders import Folder, digest_file
from .git import check_path
from .job import Job
from .sources import download

COMPARED = {
    "binary": "program",
    "version": "version",
    "platform": "platform",
    "lock_digest": "lock file",
    "source_digest": "source",
}


def find_kept_plan(job: Job) -> str | None:
    """The folder inside the source, where the planned folder is here, untouched since. Then the
    job works there.
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
    job.say("Berth: in the folder of the plan")
    return inside


def fetch_plan(job: Job, client: BerthClient, saved: SavedPlan) -> None:
    """The agent's own copy, or the server's, laid out for the task. Another digest is
    another plan.
    """
    if not saved.has_file:
        return
    copy = job.folder.saved_plan
    if not copy.is_file() or digest_file(copy) != saved.digest:
        download(job, client, f"{job.record.path}plan/", copy, job.work.limits.plan_bytes)
        if digest_file(copy) != saved.digest:
            raise plan_again_error(
                "The saved plan that came from the server is not the one that was approved.",
                "plan_differs",
            )
    job.folder.lay_out("plan", copy, job.user)


def check_facts(saved: SavedPlan, facts: dict[str, str]) -> None:
    """Only what both know is compared."""
    for name, words in COMPARED.items():
        planned, here = saved.facts.get(name), facts.get(name)
        if name == "lock_digest" and "version" in saved.facts and not planned:
            planned = ""  # said by its absence
        if planned is not None and here is not None and planned != here:
            what = f"{planned or 'none'} when planned, {here or 'none'} here"
            short = words if name.endswith("digest") else f"{words} ({what})"
            raise plan_again_error(f"It was planned with another {short}.")


def plan_again_error(reason: str, code: str = "binary_differs") -> TaskFailed:
    return TaskFailed(code, f"{reason} It is to be planned again.", outcome="plan_again")
