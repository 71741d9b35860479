"""The field `run` of a claim: what an agent executes. The parser and the JSON Schema derive from
the declared fields; the parser reports all faults at once.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from claims.tasks.git_urls import host_of
from claims.tasks.run_values import (
    Command,
    Files,
    GitUrl,
    SecretName,
    SourceFolder,
)
from pools.config.durations import DAY, SECOND
from pools.config.fields import Fields, Object, Option, option, required
from pools.config.parsing import (
    Choice,
    Described,
    Duration,
    Faults,
    ListOf,
    Pattern,
    Schema,
    field_path,
    kind_of,
    read_mapping,
    show_value,
)
from pools.config.task_spec import ENV, PROGRAM, read_env

COMMAND, TERRAFORM = "command", "terraform"
EXECUTORS = (COMMAND, TERRAFORM)
DISCARD = "discard"  # of `state`: Berth applies a module without a backend and deletes its state
STEPS = ("plan", "apply")
APPLYING = "plan_and_apply"
SOURCES = ("files", "archive", "git")

MOST_SECRETS = 50
MOST_VARIABLES = 200
LONGEST_VARIABLES = 64_000  # characters of all variables as JSON

DIGEST = re.compile(r"[0-9a-f]{64}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
REF = re.compile(r"(?!.*\.\.)(?!.*(?:/|\.lock)$)[A-Za-z0-9_][A-Za-z0-9._/+@-]*")
LONGEST_REF = 200


@dataclass(frozen=True, slots=True)
class RunSource:
    kind: str = "none"  # none, files, archive, git
    files: tuple[tuple[str, str], ...] = ()
    digest: str = ""  # of an uploaded archive
    url: str = ""
    ref: str = ""
    path: str = ""  # the working folder inside the source

    @property
    def host(self) -> str:
        return host_of(self.url)


@dataclass(frozen=True, slots=True)
class RunRequest:
    executor: str
    commands: tuple[tuple[str, str], ...] = ()
    source: RunSource = RunSource()
    binary: str = ""
    variables: str = "{}"  # canonical JSON
    env: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    timeout: float | None = None
    state: str = ""  # "discard": the state is deleted after the apply
    where: str = field(default="run", compare=False)

    def as_body(self) -> dict[str, object]:
        """The body of the task's row. Files and archives have rows of their own, and the body
        names secrets without their values.
        """
        body: dict[str, object] = {
            "commands": dict(self.commands), "variables": json.loads(self.variables),
            "env": dict(self.env), "secrets": list(self.secrets),
        }  # fmt: skip
        source = {k: v for k in ("url", "ref", "path") if (v := getattr(self.source, k))}
        kind = "archive" if self.source.kind == "files" else self.source.kind
        body["source"] = {"kind": kind, **source}
        if self.binary:
            body["binary"] = self.binary
        if self.timeout is not None:
            body["timeout"] = self.timeout
        if self.state:
            body["state"] = self.state
        return {k: v for k, v in body.items() if v not in ({}, [])}

    def digest(self) -> str:
        """Digest of the request: a repeated idempotency key must come with an equal request."""
        return hashlib.sha256(
            repr((self.executor, self.as_body(), self.source)).encode("utf-8", "surrogatepass")
        ).hexdigest()


# -- fields ----------------------------------------------------------------------------------------

FOLDER = Option(SourceFolder(), "The working folder inside the source.")


@dataclass(frozen=True, slots=True)
class GitSource:
    url: str = required(
        GitUrl(), "https or ssh, from a host that the pool allows, without a password."
    )
    ref: str = option(
        Pattern(
            REF,
            "Write main, v1.2, or the 40 digits of a commit.",
            what="a branch, tag or commit",
            missing="",
            longest=LONGEST_REF,
        ),
        "",
        "A branch, tag or commit. Default: the default branch.",
    )
    path: str = option(SourceFolder(), "", FOLDER.text)


SOURCE = Fields(
    {
        "files": Option(
            Files(),
            "Texts by path, in total at most 1 MB. A text that begins with #! is executable.",
        ),
        "archive": Option(
            Pattern(
                DIGEST,
                "Upload the archive to /api/v1/sources/ and give the digest of the answer.",
                what="a digest",
                missing="",
            ),
            "",
        ),
        "git": Option(Object(GitSource), ""),
        "path": FOLDER,
    }
)
COMMANDS = Fields(dict.fromkeys(STEPS, Option(Command(), "")))
RUN = Fields(
    {
        "executor": Option(Choice(EXECUTORS), "", is_required=True),
        "commands": Option(
            Described(COMMANDS.schema()),
            "For the executor command: run by `sh -c` in the source.",
        ),
        "source": Option(Described(SOURCE.schema()), "At most one of files, archive and git."),
        "binary": Option(
            Described({"type": "string", "maxLength": 255}),
            "For terraform: tofu, terraform or a path. Default: the binary of the pool.",
        ),
        "variables": Option(Described({"type": "object", "maxProperties": MOST_VARIABLES}), ""),
        "env": Option(Described(ENV.schema()), ""),
        "secrets": Option(
            ListOf(SecretName(), "names", MOST_SECRETS, "[DB_PASSWORD]; the pool keeps the values"),
            "Names (not values) of the pool's secrets that the task gets as environment variables.",
        ),
        "timeout": Option(
            Duration(SECOND, DAY), "Time limit of each step. Default: the limit of the pool."
        ),
        "state": Option(
            Described({"type": "string", "enum": [DISCARD]}),
            "For plan_and_apply of terraform: the state is deleted, and the next run creates all "
            "resources again. Without it, a module without a backend is rejected after init. The "
            "backend `local` counts as no backend, because the folder of a task is deleted.",
        ),
    }
)


RUN_SCHEMA: Schema = RUN.schema() | {
    "description": (
        "What an agent executes. A task needs it in pools with agents; other pools reject it."
    )
}


# -- parsing ---------------------------------------------------------------------------------------


def read_run(value: object, where: str, task: str, faults: Faults) -> RunRequest | None:
    """None: the value is missing or is no mapping."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        read_mapping(value, where, RUN, faults)
        return None
    executor = value.get("executor")
    found = RUN.read(
        value,
        where,
        faults,
        {
            "executor": _read_executor,
            "commands": partial(_read_commands, executor, task),
            "source": partial(_read_source, executor),
            "binary": partial(_read_binary, executor),
            "variables": _read_variables,
            "env": _read_env,
            "state": partial(_read_state, executor, task),
        },
    )
    secrets = tuple(dict.fromkeys(found.pop("secrets", ())))
    return RunRequest(**found, secrets=secrets, where=where)


def _read_executor(value: object, where: str, faults: Faults) -> str:
    if value is None:
        faults.add(where, "`executor` is required.", f"Known: {', '.join(EXECUTORS)}.")
        return ""
    return Choice(EXECUTORS).read(value, where, faults) or ""


def _read_commands(
    executor: object, task: str, value: object, where: str, faults: Faults
) -> tuple[tuple[str, str], ...]:
    if executor == TERRAFORM:
        if value:
            faults.add(
                where,
                "Terraform needs no commands.",
                "Leave them out, or choose the executor command.",
            )
        return ()
    found = COMMANDS.read({} if value is None else value, where, faults)
    given = value if isinstance(value, Mapping) else {}
    if executor == COMMAND:
        needed = STEPS if task == APPLYING else STEPS[:1]
        for step in needed:
            if given.get(step) is None:
                faults.add(
                    field_path(where, step),
                    f"The {step} needs a command.",
                    "Write the command, like ./plan.sh.",
                )
        if "apply" not in needed and "apply" in found:
            faults.add(
                field_path(where, "apply"),
                f"A task of {task or 'this kind'} never applies.",
                "Leave it out, or choose plan_and_apply.",
            )
    return tuple(sorted(found.items()))


def _read_source(executor: object, value: object, where: str, faults: Faults) -> RunSource:
    found = SOURCE.read({} if value is None else value, where, faults)
    given = value if isinstance(value, Mapping) else {}
    kinds = [kind for kind in SOURCES if given.get(kind) is not None]
    if len(kinds) > 1:
        faults.add(where, f"There are {' and '.join(kinds)}.", "Give one of them.")
    elif not kinds:
        if executor == TERRAFORM and not faults.found:
            faults.add(
                where, "Terraform needs files to plan.", "Give files, an archive or a git URL."
            )
        elif given.get("path") is not None:
            faults.add(field_path(where, "path"), "A path needs a source.", "Leave the path out.")
        return RunSource()
    git = found.get("git") or GitSource("")
    return RunSource(
        kinds[0],
        found.get("files", ()),
        found.get("archive", ""),
        git.url,
        git.ref,
        git.path or found.get("path", ""),
    )


def _read_binary(executor: object, value: object, where: str, faults: Faults) -> str:
    if value is None or value == "":
        return ""
    if executor == COMMAND:
        faults.add(
            where,
            "The executor command uses no binary.",
            "Leave it out, or choose the executor terraform.",
        )
        return ""
    return PROGRAM.read(value, where, faults) or ""


def _read_env(value: object, where: str, faults: Faults) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(read_env(value, where, faults).items()))


def _read_state(executor: object, task: str, value: object, where: str, faults: Faults) -> str:
    if value is None or value == "":
        return ""
    if value != DISCARD:
        faults.add(
            where,
            f"{show_value(value)} is not a valid value.",
            f"Write {DISCARD}, or leave it out: the backend of the module keeps the state.",
        )
    elif executor == COMMAND:
        faults.add(
            where,
            "The executor command has no Terraform state.",
            "Leave it out, or choose the executor terraform.",
        )
    elif task != APPLYING:
        faults.add(
            where,
            f"A task of {task or 'this kind'} changes no state.",
            "Leave it out, or choose plan_and_apply.",
        )
    else:
        return DISCARD
    return ""


def _read_variables(value: object, where: str, faults: Faults) -> str:
    if value is None:
        return "{}"
    if not isinstance(value, Mapping):
        faults.add(
            where,
            f"This is {kind_of(value)}; variables are names with values.",
            "Write them like {region: eu-1}.",
        )
        return "{}"
    if len(value) > MOST_VARIABLES:
        faults.add(
            where,
            f"{len(value)} variables are too many.",
            f"Use at most {MOST_VARIABLES}, or a file in the source.",
        )
        return "{}"
    for name in value:
        if not isinstance(name, str) or not VARIABLE.fullmatch(name):
            faults.add(
                field_path(where, show_value(name)),
                "This is not a valid name of a variable.",
                "Use letters, digits, dashes and underscores.",
            )
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        faults.add(where, "A value is not JSON.", "Use texts, numbers, lists and mappings.")
        return "{}"
    if len(text) > LONGEST_VARIABLES:
        faults.add(
            where,
            f"{len(text)} characters are too many.",
            f"Use at most {LONGEST_VARIABLES}, or a file in the source.",
        )
        return "{}"
    return text
