"""The form of a new run. Its fields are those of the API call, and all errors appear at their
fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse

from claims.allocation.api.permissions import require_to_create
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import TASKS, parse_claim, read_claim
from claims.tasks.files.sources import SOURCE_BYTES, store_source
from claims.tasks.pages.variables import read_variables
from pools.access.permissions import Identity, require_anywhere
from pools.config.parsing import Faults
from pools.lifecycle.selectors import list_pools, spec_of
from pools.models import Pool
from pools.pages.base import PageRequest, page, signed_in
from pools.providers.base import has_agents
from pools.secrets.services import list_secrets
from project.kernel.errors import BerthError, FieldError, Forbidden, Invalid, NotFound
from project.kernel.ui.confirm import Field, errors_of

KINDS = {
    "plan_and_apply": (
        "plan and apply",
        "Plans, waits for an approval, then applies in the same slot",
    ),
    "plan": ("plan", "Plans and shows what would change; nothing is applied"),
    "drift_check": ("drift check", "Looks for changes outside since the last apply"),
}
EXECUTORS = {
    "command": ("Commands", "A plan command and an apply command, run by the shell"),
    "terraform": ("Terraform or OpenTofu", "init, plan, show and apply of the saved plan"),
}
STATES = [
    ("", "stored in the backend of the module"),
    ("discard", "discarded: the next run creates all resources again"),
]
SOURCES = {
    "none": ("Nothing", "The commands need no files"),
    "files": ("Files written here", "A few small files"),
    "archive": ("An archive", "tar.gz or zip from this machine"),
    "git": ("A git repository", "https or ssh; its commit is recorded"),
}
MOST_FILES = 20
VARIABLES_HELP = (
    'One name=value per line. eu-1 and "3" are text; 3, true, null, ["a", "b"] and {size = 3} '
    "keep their type"
)
MAX_FIELD_LENGTH = 200_000  # characters of a field
# The form field of each field of the call; the longest prefix wins.
PLACES = {
    "pool": "pool", "pools": "pool", "kind": "kind", "task": "kind", "workspace": "workspace",
    "owner": "owner", "priority": "priority", "run": "executor", "run.executor": "executor",
    "run.binary": "binary", "run.state": "state", "run.timeout": "timeout",
    "run.commands": "plan_command", "run.commands.plan": "plan_command",
    "run.commands.apply": "apply_command", "run.source": "source", "run.source.files": "files",
    "run.source.archive": "archive", "run.source.path": "archive_path", "run.source.git": "git_url",
    "run.source.git.url": "git_url", "run.source.git.ref": "git_ref",
    "run.source.git.path": "git_path", "run.variables": "variables", "run.env": "env",
    "run.secrets": "secrets",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunForm:
    """The typed values of the form."""

    values: dict[str, str]
    files: Sequence[tuple[str, str]] = (("", ""),)
    secrets: Sequence[str] = ()

    def get(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)


@signed_in
def run(request: PageRequest) -> HttpResponse:
    identity = request.identity
    require_anywhere(identity, "claim")
    pools = pools_with_agents(identity)
    if request.method != "POST":
        values = {
            name: request.GET.get(name, "")[:120] for name in ("pool", "workspace", "kind", "owner")
        }
        return show(request, pools, RunForm(values))
    typed = read_form(request)
    if request.POST.get("more") == "file":
        return show(request, pools, replace(typed, files=[*typed.files, ("", "")]))
    try:
        body = body_of(request, typed)
        wanted = parse_claim(body, requested_by=identity.requester)
        require_to_create(identity, wanted)
        claim = create_claim(wanted)
    except (Forbidden, NotFound) as error:
        return show(
            request, pools, typed, [FieldError("pool", error.detail, error.way_out)], status=422
        )
    except BerthError as error:
        return show(request, pools, typed, errors_of(error), status=422)
    return HttpResponseRedirect(reverse("claim", args=[claim.id]))


def pools_with_agents(identity: Identity) -> list[Pool]:
    found = list_pools(identity.visible_pools())
    return [
        pool
        for pool in found
        if pool.state != "deleting" and has_agents(spec_of(pool)) and identity.may("claim", pool.pk)
    ]


def read_form(request: PageRequest) -> RunForm:
    paths, texts = request.POST.getlist("file_path"), request.POST.getlist("file_text")
    files = [
        (path.strip(), text.replace("\r\n", "\n")) for path, text in zip(paths, texts, strict=False)
    ][:MOST_FILES]
    values = {
        name: str(value)[:MAX_FIELD_LENGTH]
        for name, value in request.POST.items()
        if name not in ("file_path", "file_text", "secrets")
    }
    return RunForm(values, files or [("", "")], request.POST.getlist("secrets"))


def body_of(request: PageRequest, typed: RunForm) -> dict[str, object]:
    """The form as the body of a call. Raises with the faults of the form and of the body
    together.
    """
    faults = Faults()
    wanted: dict[str, object] = {"executor": typed.get("executor", "command")}
    if wanted["executor"] == "command":
        commands = {
            step: text
            for step in ("plan", "apply")
            if (text := typed.get(f"{step}_command").strip())
        }
        if typed.get("kind") != "plan_and_apply":
            commands.pop("apply", None)
        wanted["commands"] = commands
    else:
        if binary := typed.get("binary").strip():
            wanted["binary"] = binary
        if typed.get("kind") == "plan_and_apply" and (state := typed.get("state").strip()):
            wanted["state"] = state
    variables, wrong = read_variables(typed.get("variables").replace("\r\n", "\n"))
    for fault in wrong:
        faults.add("run.variables", f"Line {fault.line}: {fault.message}", fault.way_out)
    if variables:
        wanted["variables"] = variables
    if pairs := read_pairs(typed.get("env"), "run.env", faults):
        wanted["env"] = pairs
    if typed.secrets:
        wanted["secrets"] = list(typed.secrets)
    if timeout := typed.get("timeout").strip():
        wanted["timeout"] = timeout
    if source := source_of(request, typed, faults):
        wanted["source"] = source
    body: dict[str, object] = {
        "pool": typed.get("pool"),
        "task": typed.get("kind", "plan"),
        "run": wanted,
    }
    for name in ("workspace", "owner"):
        if text := typed.get(name).strip():
            body[name] = text
    if priority := typed.get("priority").strip():
        body["priority"] = (
            int(priority) if priority.lstrip("-").isdecimal() and len(priority) < 5 else priority
        )
    if faults.found:
        known = {fault.field for fault in faults.found}
        _, of_body = read_claim(body, requested_by=request.identity.requester)
        more = [fault for fault in of_body if fault.field not in known]
        raise Invalid(fields=[*faults.found, *more])
    return body


def source_of(request: PageRequest, typed: RunForm, faults: Faults) -> dict[str, object] | None:
    kind = typed.get("source", "none")
    if kind == "files":
        files = {path: text for path, text in typed.files if path or text}
        if not files:
            way_out = "Add a file with a path, or choose another source."
            faults.add("run.source.files", "No file is given.", way_out)
        if len(files) < sum(bool(path or text) for path, text in typed.files):
            fault = "Two files have the same path."
            faults.add("run.source.files", fault, "Give each its own path.")
        return {"files": files}
    if kind == "archive":
        upload = request.FILES.get("archive")
        folder: dict[str, object] = {}
        if path := typed.get("archive_path").strip():
            folder["path"] = path
        if upload is None:
            if known := typed.get("kept_archive"):
                return {"archive": known} | folder
            way_out = "Choose a tar.gz or zip file, or choose another source."
            faults.add("run.source.archive", "No archive is chosen.", way_out)
            return None
        if (size := upload.size or 0) > SOURCE_BYTES:
            faults.add(
                "run.source.archive",
                f"The archive is too large, {size:,} bytes.",
                f"The limit is {SOURCE_BYTES // 1_000_000} MB. Leave out files that the run does "
                "not need.",
            )
            return None
        try:
            kept = store_source(upload.read(), made_by=request.identity.requester)
        except BerthError as error:
            for each in errors_of(error):
                faults.add("run.source.archive", each.message, each.way_out)
            return None
        typed.values["kept_archive"] = kept.digest
        return {"archive": kept.digest} | folder
    if kind == "git":
        parts = {name: typed.get(f"git_{name}").strip() for name in ("url", "ref", "path")}
        return {"git": {name: text for name, text in parts.items() if text}}
    return None


def read_pairs(text: str, where: str, faults: Faults) -> dict[str, str]:
    """Parses lines of the form name=value."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            way_out = "Write one pair per line, like region=eu-1."
            faults.add(where, f"Line {number} is not name=value.", way_out)
        elif name.strip() in found:
            faults.add(where, f"{name.strip()[:40]} is given twice.", "Give each name once.")
        else:
            found[name.strip()] = value.strip()
    return found


# -- rendering -------------------------------------------------------------------------------------


def form_field_of(name: str) -> str:
    fits = [
        start for start in PLACES if name == start or name.startswith((f"{start}.", f"{start}["))
    ]
    return PLACES[max(fits, key=len)] if fits else ""


def show(
    request: PageRequest,
    pools: Sequence[Pool],
    typed: RunForm,
    faults: Sequence[FieldError] = (),
    status: int = 200,
) -> HttpResponse:
    at: dict[str, list[FieldError]] = {}
    for fault in faults:
        at.setdefault(form_field_of(fault.field), []).append(fault)
    first = typed.get("pool") or (pools[0].name if pools else "")

    def field(name: str, label: str, kind: str = "text", help: str = "", **more: Any) -> Field:
        errors = tuple(FieldError(name, e.message, e.way_out) for e in at.get(name, ()))
        value = typed.get(name, more.pop("value", ""))
        return Field(name, label, kind, value, help, errors=errors, **more)

    secrets = sorted(
        {secret.name for pool in pools if pool.name == first for secret in list_secrets(pool.pk)}
    )
    fields = [
        field(
            "pool",
            "Pool",
            "select",
            value=first,
            options=[(pool.name, pool.name) for pool in pools],
            is_needed=True,
        ),
        field("workspace", "Workspace", help="One apply at a time in each"),
        field(
            "owner",
            "Owner",
            help="Optional, shown beside the claim’s number: pipeline:42, user:ana",
        ),
        field(
            "plan_command",
            "Plan command",
            help="The command may write $BERTH_PLAN_FILE and $BERTH_PLAN_JSON",
        ),
        field(
            "apply_command",
            "Apply command",
            help="Runs in the same directory once the plan is approved",
        ),
        field("binary", "Binary", help="tofu, terraform, or a path. Empty: the pool’s binary"),
        field(
            "state",
            "State",
            "select",
            "A module without a backend is rejected, unless the state is discarded",
            options=STATES,
        ),
        field("archive_path", "Folder in the archive", help="Empty: the top folder"),
        field("git_url", "URL", help="https://… or ssh://…, on a host that the pool allows"),
        field("git_ref", "Branch, tag or commit"),
        field("git_path", "Folder in the repository"),
        field("variables", "Variables", "textarea", VARIABLES_HELP),
        field(
            "env",
            "Environment",
            "textarea",
            "One NAME=value per line; use Secrets below for secret values",
        ),
        field("timeout", "Time limit", help="Like 45m. Empty: the pool’s limit"),
        field(
            "priority",
            "Priority",
            "number",
            "Higher goes first; up to the pool’s highest priority",
        ),
    ]
    context = {
        "pools": pools,
        "files": typed.files,
        "faults": at,
        "count": len(faults),
        "problems": at.get("", []),
        "kind": typed.get("kind") or "plan_and_apply",
        "kinds": [(value, *words) for value, words in KINDS.items() if value in TASKS],
        "executor": typed.get("executor") or "command",
        "executors": [(value, *words) for value, words in EXECUTORS.items()],
        "source": typed.get("source") or "none",
        "sources": [(value, *words) for value, words in SOURCES.items()],
        "kept": typed.get("kept_archive"),
        "secrets": secrets,
        "chosen_secrets": typed.secrets,
        "most": SOURCE_BYTES // 1_000_000,
        "f": {each.name: each for each in fields},
    }
    return page(request, "claims/tasks/new_run_page.html", "claims", status=status, **context)
