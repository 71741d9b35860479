"""The `command` executor: runs the commands of the claim for plan and apply."""

from __future__ import annotations

import hashlib

from ..common.errors import TaskFailed
from ..server.client import BerthClient
from ..workdir.folders import digest_file
from .job import Job
from .kept_plan import check_facts, fetch_plan, open_source
from .outcome import StepOutcome, find_errors, name_platform
from .plan_json import most_raw, save_plan_json
from .sources import SourceOrigin, fetch_source

NOT_FOUND, NOT_ALLOWED = 127, 126  # exit codes of a shell
GOOD = (0, 2)  # 2: there are changes, as in `terraform plan -detailed-exitcode`


def plan(job: Job, client: BerthClient) -> StepOutcome:
    command = find_command(job)
    origin = fetch_source(job, client)
    code = job.shell(command, "plan", variables(job))
    output = job.output.hexdigest()
    if code not in GOOD:
        raise failure(job, "plan", code)
    made = StepOutcome("planned", code, facts=list_facts(origin))
    limits, folder = job.work.limits, job.folder
    size = folder.copy_output(
        "plan", folder.saved_plan, limits.plan_bytes, "saved plan", "plan_too_large"
    )
    made.has_plan = size > 0
    raw = folder.top / "shown.json"
    has_changes = not (
        code == 0
        and folder.copy_output("no-changes", folder.top / "none", 1000, "mark", "exit_code") >= 0
    )
    shown_digest = ""
    if (
        folder.copy_output("plan.json", raw, most_raw(limits), "plan as JSON", "plan_too_large")
        >= 0
    ):
        shown = save_plan_json(job, raw, folder.plan_json)
        shown_digest = digest_file(raw)
        raw.unlink()
        made.summary = {
            **shown.summary,
            **({"drift": shown.drift} if job.work.task == "drift_check" else {}),
        }
        has_changes = shown.has_changes if shown.says_changes else has_changes
        made.has_json = True
    made.digest = (
        digest_file(folder.saved_plan)
        if made.has_plan
        else digest_of(origin.digest, output, shown_digest)
    )
    made.outcome = "planned" if has_changes else "no_changes"
    return made


def apply(job: Job, client: BerthClient) -> StepOutcome:
    saved = job.work.plan
    assert saved is not None
    command = find_command(job)
    origin, _ = open_source(job, client, saved)
    facts = list_facts(origin)
    check_facts(saved, facts)
    fetch_plan(job, client, saved)
    code = job.shell(command, "apply", variables(job))
    if code != 0:
        raise failure(job, "apply", code)
    return StepOutcome("applied", code, digest=saved.digest, facts=facts)


def find_command(job: Job) -> str:
    command = job.work.commands.get(job.work.step, "")
    if not command.strip():
        raise TaskFailed("command_not_found", f"The claim names no command for {job.work.step}.")
    return command


def variables(job: Job) -> dict[str, str]:
    out = job.folder.out
    return {
        "BERTH_PLAN_FILE": str(out / "plan"),
        "BERTH_PLAN_JSON": str(out / "plan.json"),
        "BERTH_NO_CHANGES": str(out / "no-changes"),
    }


def list_facts(origin: SourceOrigin) -> dict[str, str]:
    return {"binary": "command", "platform": name_platform(), **origin.facts}


def digest_of(source: str, output: str, shown: str) -> str:
    """The digest of a plan without a file: it covers source, output and the plan as JSON."""
    return hashlib.sha256(f"berth plan\n{source}\n{output}\n{shown}\n".encode()).hexdigest()


def failure(job: Job, stage: str, code: int) -> TaskFailed:
    errors = job.clean(find_errors(job.tail))
    if code in (NOT_FOUND, NOT_ALLOWED):
        return TaskFailed(
            "command_not_found",
            f"The command for {stage} does not run: {errors or f'exit code {code}'}",
            code,
        )
    if "no space left on device" in errors.lower():
        return TaskFailed("disk_full", f"The disk is full: {errors}", code)
    return TaskFailed(
        "exit_code", f"{stage} ended with exit code {code}{f': {errors}' if errors else ''}", code
    )
