"""The `terraform` executor: a `tofu` or `terraform` binary plans into a file and applies exactly
that file.
"""

from __future__ import annotations

import json
import re
import shutil

from ..common.errors import Stopped, TaskFailed
from ..server.client import BerthClient
from ..workdir.folders import digest_file
from .backend import check_backend
from .job import Job
from .kept_plan import check_facts, fetch_plan, open_source
from .outcome import StepOutcome, find_errors, name_platform, strip_ansi
from .plan_json import PlanJson, most_raw, save_plan_json
from .progress import Progress
from .sensitive import find_sensitive
from .sources import SourceOrigin, fetch_source
from .state_rescue import mark_state, rescue_state

BINARIES = ("tofu", "terraform")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}\Z")
LOCK = ".terraform.lock.hcl"
VARIABLES = "berth.auto.tfvars.json"
LOCK_TIMEOUT = "-lock-timeout=20s"
UNCHANGED, CHANGES = 0, 2  # exit codes of `plan -detailed-exitcode`
LARGEST_VERSION = 1_000_000
# "Acquiring state lock" is no sign: slow backends always print it.
LOCKED = ("Error acquiring the state lock", "Error locking state")
UNSAVED = (
    "Failed to save state",
    "Error saving state",
    "Failed to persist state",
    "errored.tfstate",
)
STALE = ("Saved plan is stale", "Saved plan does not match the given state")
CRASHED = (
    "panic: ",
    "Plugin did not respond",
    "failed to respond",
    "plugin crashed",
    "plugin process exited",
    "Failed to load plugin schemas",
    "Request cancelled",
)
APPLIED = re.compile(
    r"Apply complete! Resources: (?:\d+ imported, )?(\d+) added, (\d+) changed, (\d+) destroyed"
)
RESCUED = "; the agent rescued the state and uploads it"
ENVIRONMENT = {"TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1"}


def plan(job: Job, client: BerthClient) -> StepOutcome:
    origin = fetch_source(job, client)
    hide_sensitive(job)
    binary = find_binary(job)
    facts = {**read_version(job, binary), **origin.facts}
    prepare(job, binary, origin)
    facts.update(check_backend(job, origin.inside))
    is_drift = job.work.task == "drift_check"
    out = job.folder.out / "plan"
    argv = [
        binary,
        "plan",
        *(["-refresh-only"] if is_drift else []),
        "-input=false",
        "-detailed-exitcode",
        LOCK_TIMEOUT,
        f"-out={out}",
    ]
    code = job.run(argv, "plan", ENVIRONMENT)
    if code not in (UNCHANGED, CHANGES):
        raise failure(job, "plan", code)
    facts["lock_digest"] = job.folder.digest_of(origin.inside, LOCK)
    made = StepOutcome("no_changes" if code == UNCHANGED else "planned", code, facts=facts)
    size = job.folder.copy_output(
        "plan", job.folder.saved_plan, job.work.limits.plan_bytes, "saved plan", "plan_too_large"
    )
    if size < 0:
        raise TaskFailed(
            "exit_code",
            f"{job.work.binary or binary} reported a plan, but saved none.",
            code,
        )
    made.digest = digest_file(job.folder.saved_plan)
    shown = show(job, binary, str(out))
    made.summary = {**shown.summary, **({"drift": shown.drift} if is_drift else {})}
    made.has_json = True
    made.has_plan = not is_drift
    return made


def apply(job: Job, client: BerthClient) -> StepOutcome:
    saved = job.work.plan
    assert saved is not None
    origin, is_kept = open_source(job, client, saved)
    hide_sensitive(job)
    binary = find_binary(job)
    facts = {**read_version(job, binary), **origin.facts}
    check_facts(saved, facts)
    fetch_plan(job, client, saved)
    if not is_kept:
        prepare(job, binary, origin)
    facts["lock_digest"] = job.folder.digest_of(origin.inside, LOCK)
    check_facts(saved, facts)
    facts.update(check_backend(job, origin.inside))
    code = run_apply(
        job, [binary, "apply", "-input=false", LOCK_TIMEOUT, str(job.folder.out / "plan")]
    )
    if code != 0:
        raise failure(job, "apply", code)
    return StepOutcome(
        "applied", code, digest=saved.digest, summary=read_applied(job.tail), facts=facts
    )


def run_apply(job: Job, argv: list[str]) -> int:
    """Run the apply and rescue its state if it fails. A backend that does not accept the state may
    also be the cause of a stop or a timeout.
    """
    mark_state(job)
    job.progress = Progress(job.work.plan.summary if job.work.plan else {})
    try:
        return job.run(argv, "apply", ENVIRONMENT)
    except Stopped as error:
        raise Stopped(f"{error}{where_rescued(job)}") from error
    except TaskFailed as error:
        where = where_rescued(job)
        if where and job.stop.event.is_set():
            raise Stopped(f"{job.stop.reason}{where}") from error
        raise TaskFailed(
            error.code,
            f"{error.reason.rstrip('.')}{where}." if where else error.reason,
            error.exit_code,
        ) from error


def where_rescued(job: Job) -> str:
    return RESCUED if rescue_state(job.state.folder, job.record) else ""


def hide_sensitive(job: Job) -> None:
    """Mask sensitive values before the first program runs that may print them."""
    job.hide(find_sensitive(job.cwd, job.folder.source, job.work.variables, job.environment))


def prepare(job: Job, binary: str, origin: SourceOrigin) -> None:
    if job.work.variables:
        job.folder.write(origin.inside, VARIABLES, json.dumps(job.work.variables).encode())
        job.folder.chown(job.user)
    has_lock = bool(job.folder.digest_of(origin.inside, LOCK))
    # A lock file in the source pins the providers, so init must not change it.
    argv = [binary, "init", "-input=false", *(["-lockfile=readonly"] if has_lock else [])]
    code = job.run(argv, "init", ENVIRONMENT)
    if code != 0:
        raise failure(job, "init", code)


def show(job: Job, binary: str, saved: str) -> PlanJson:
    raw = job.folder.top / "shown.json"
    most = most_raw(job.work.limits)
    try:
        code = job.run(
            [binary, "show", "-json", saved], "show", ENVIRONMENT, stdout_to=raw, most=most
        )
        if code != 0:
            raise failure(job, "show", code)
        return save_plan_json(job, raw, job.folder.plan_json)
    finally:
        raw.unlink()


def find_binary(job: Job) -> str:
    wanted = job.work.binary
    if wanted and not NAME.match(wanted) and not wanted.startswith("/"):
        raise TaskFailed(
            "command_not_found",
            f"{wanted[:100]!r} is not the name of a program. Use a name like tofu or terraform.",
        )
    for name in (wanted,) if wanted else BINARIES:
        found = shutil.which(name, path=job.environment["PATH"])
        if found:
            return found
    raise TaskFailed(
        "command_not_found",
        f"This agent has no {wanted or 'tofu and no terraform'} on its PATH.",
        127,
    )


def read_version(job: Job, binary: str) -> dict[str, str]:
    raw = job.folder.top / "version.json"
    job.run(
        [binary, "version", "-json"], "version", ENVIRONMENT, stdout_to=raw, most=LARGEST_VERSION
    )
    try:
        text = raw.read_text(errors="replace")
        found = json.loads(text[max(0, text.find("{")) :])
    except (ValueError, RecursionError):
        found = {}
    finally:
        raw.unlink()
    found = found if isinstance(found, dict) else {}
    version = str(found.get("terraform_version") or "")[:100]
    return {
        "binary": binary.rpartition("/")[2],
        "version": version,
        "platform": str(found.get("platform") or name_platform())[:100],
    }


def failure(job: Job, stage: str, code: int) -> TaskFailed:
    text, errors = strip_ansi(job.tail), job.clean(find_errors(job.tail))
    # A rescued state is a sign, too: many errors may have pushed the message out of the tail.
    where = where_rescued(job) if stage == "apply" else ""
    if where or (stage == "apply" and any(sign in text for sign in UNSAVED)):
        return TaskFailed(
            "state_not_saved",
            f"The apply changed resources, and the backend did not accept the state{where}: "
            f"{errors}",
            code,
        )
    if stage == "apply" and any(sign in text for sign in STALE):
        return TaskFailed(
            "stale_plan",
            f"The state has changed since the plan; no change was applied: {errors}",
            code,
        )
    if any(sign in text for sign in CRASHED):
        return TaskFailed("provider_crash", f"A provider crashed: {errors}", code)
    if any(sign in text for sign in LOCKED):
        return TaskFailed(
            "state_locked", f"Another process holds the lock of the state: {errors}", code
        )
    if "no space left on device" in text.lower():
        return TaskFailed("disk_full", f"The disk is full: {errors}", code)
    return TaskFailed(
        "init_failed" if stage == "init" else "exit_code",
        f"{stage} ended with exit code {code}: {errors}",
        code,
    )


def read_applied(tail: bytes) -> dict[str, int]:
    found = APPLIED.search(strip_ansi(tail))
    return dict(zip(("add", "change", "destroy"), map(int, found.groups()))) if found else {}
