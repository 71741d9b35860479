"""The field `run` of a claim: what an agent executes. The parser reports all faults at once."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from claims.tasks.git_urls import URL_RULE, host_of, is_git_url
from claims.tasks.source_paths import why_not_path
from pools.config.parsing import (
    Faults,
    field_path,
    kind_of,
    read_choice,
    read_duration,
    read_mapping,
    show_value,
)
from pools.config.spec import DAY, SECOND
from pools.config.task_spec import BINARY, ENV_NAME, OURS, read_env

COMMAND, TERRAFORM = "command", "terraform"
EXECUTORS = (COMMAND, TERRAFORM)
FIELDS = (
    "executor",
    "commands",
    "source",
    "binary",
    "variables",
    "env",
    "secrets",
    "timeout",
    "state",
)
DISCARD = "discard"  # of `state`: Berth applies a module without a backend and deletes its state
STEPS = ("plan", "apply")
APPLYING = "plan_and_apply"
SOURCES = ("files", "archive", "git")

LONGEST_COMMAND = 8_000
MOST_SECRETS = 50
MOST_VARIABLES = 200
LONGEST_VARIABLES = 64_000  # characters of all variables as JSON
MOST_FILES = 200
MOST_TEXT = 1_000_000  # bytes of inline files

DIGEST = re.compile(r"[0-9a-f]{64}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+@-]{0,199}")


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


def read_run(value: object, where: str, task: str, faults: Faults) -> RunRequest | None:
    """None: the value is missing or is no mapping."""
    if value is None:
        return None
    given = read_mapping(value, where, FIELDS, faults)
    if not isinstance(value, Mapping):
        return None
    if given.get("executor") is None:
        faults.add(
            field_path(where, "executor"),
            "`executor` is required.",
            f"Known: {', '.join(EXECUTORS)}.",
        )
    executor = read_choice(given, where, "executor", faults, EXECUTORS, "")
    return RunRequest(
        executor=executor,
        commands=_read_commands(
            given.get("commands"), field_path(where, "commands"), executor, task, faults
        ),
        source=_read_source(given.get("source"), field_path(where, "source"), executor, faults),
        binary=_read_binary(given.get("binary"), field_path(where, "binary"), executor, faults),
        variables=_read_variables(given.get("variables"), field_path(where, "variables"), faults),
        env=tuple(sorted(read_env(given.get("env"), field_path(where, "env"), faults).items())),
        secrets=_read_secrets(given.get("secrets"), field_path(where, "secrets"), faults),
        timeout=read_duration(given, where, "timeout", faults, SECOND, DAY),
        state=_read_state(given.get("state"), field_path(where, "state"), executor, task, faults),
        where=where,
    )


def _read_commands(
    value: object, where: str, executor: str, task: str, faults: Faults
) -> tuple[tuple[str, str], ...]:
    if executor == TERRAFORM:
        if value:
            faults.add(
                where,
                "Terraform needs no commands.",
                "Leave them out, or choose the executor command.",
            )
        return ()
    given = read_mapping({} if value is None else value, where, STEPS, faults)
    found = {}
    for step in STEPS:
        text = given.get(step)
        if text is None:
            continue
        if not isinstance(text, str) or not text.strip():
            faults.add(
                field_path(where, step),
                f"{'This is empty' if text == '' else f'This is {kind_of(text)}'}, not a command.",
                "Put it in quotes.",
            )
        elif len(text) > LONGEST_COMMAND or "\x00" in text:
            faults.add(
                field_path(where, step),
                "The command is too long or contains a NUL character.",
                f"Use at most {LONGEST_COMMAND} characters, or a file of the source.",
            )
        else:
            found[step] = text
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


def _read_source(value: object, where: str, executor: str, faults: Faults) -> RunSource:
    given = read_mapping({} if value is None else value, where, (*SOURCES, "path"), faults)
    kinds = [kind for kind in SOURCES if given.get(kind) is not None]
    if len(kinds) > 1:
        faults.add(where, f"There are {' and '.join(kinds)}.", "Give one of them.")
        return RunSource()
    if not kinds:
        if executor == TERRAFORM and not faults.found:
            faults.add(
                where, "Terraform needs files to plan.", "Give files, an archive or a git URL."
            )
        elif given.get("path") is not None:
            faults.add(field_path(where, "path"), "A path needs a source.", "Leave the path out.")
        return RunSource()
    path = _read_folder(given.get("path"), field_path(where, "path"), faults)
    if kinds == ["files"]:
        return RunSource(
            "files",
            files=_read_files(given["files"], field_path(where, "files"), faults),
            path=path,
        )
    if kinds == ["archive"]:
        digest = given["archive"]
        if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
            faults.add(
                field_path(where, "archive"),
                f"{show_value(digest)} is not a digest.",
                "Upload the archive to /api/v1/sources/ and give the digest of the answer.",
            )
            return RunSource()
        return RunSource("archive", digest=digest, path=path)
    return _read_git(given["git"], field_path(where, "git"), path, faults)


def _read_git(value: object, where: str, path: str, faults: Faults) -> RunSource:
    given = read_mapping(
        value,
        where,
        ("url", "ref", "path"),
        faults,
        required=("url",) if isinstance(value, Mapping) else (),
    )
    url = given.get("url")
    if url is not None and not is_git_url(url):
        faults.add(field_path(where, "url"), f"{show_value(url)} is not a valid git URL.", URL_RULE)
        url = None
    ref = given.get("ref")
    if ref is not None and (
        not isinstance(ref, str)
        or not REF.fullmatch(ref)
        or ".." in ref
        or ref.endswith((".lock", "/"))
    ):
        faults.add(
            field_path(where, "ref"),
            f"{show_value(ref)} is not a branch, tag or commit.",
            "Write main, v1.2, or the 40 digits of a commit.",
        )
        ref = None
    inner = _read_folder(given.get("path"), field_path(where, "path"), faults)
    return RunSource("git", url=url or "", ref=ref or "", path=inner or path)


def _read_files(value: object, where: str, faults: Faults) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping) or not value:
        what = "empty" if isinstance(value, Mapping) else kind_of(value)
        faults.add(where, f"This is {what}; files are paths with texts.", "Write {main.tf: ...}.")
        return ()
    if len(value) > MOST_FILES:
        faults.add(
            where,
            f"{len(value)} files are too many.",
            f"Use at most {MOST_FILES}, or upload an archive.",
        )
        return ()
    found: dict[str, str] = {}
    for path, text in value.items():
        wrong = why_not_path(path) if isinstance(path, str) else "This is not a path."
        if wrong:
            faults.add(
                field_path(where, show_value(path)), wrong, "Write it like modules/net/main.tf."
            )
        elif not isinstance(text, str):
            faults.add(
                field_path(where, show_value(path)),
                f"This is {kind_of(text)}, not text.",
                "Put it in quotes, or upload other files as an archive.",
            )
        else:
            found[path] = text
    if (size := sum(len(text.encode("utf-8", "replace")) for text in found.values())) > MOST_TEXT:
        faults.add(
            where, f"{size} bytes are too many.", f"Use at most {MOST_TEXT}, or upload an archive."
        )
    folders = {
        "/".join(path.split("/")[:i]) for path in found for i in range(1, path.count("/") + 1)
    }
    for path in sorted(folders & set(found)):
        faults.add(
            field_path(where, show_value(path)),
            "This path is a file and a folder at once.",
            "Rename the file or the folder.",
        )
    return tuple(sorted(found.items()))


def _read_folder(value: object, where: str, faults: Faults) -> str:
    if value is None or value in ("", "."):
        return ""
    text = value.rstrip("/") if isinstance(value, str) else ""
    if not isinstance(value, str) or why_not_path(text):
        faults.add(
            where,
            f"{show_value(value)} is not a folder inside the source.",
            "Write it like envs/prod.",
        )
        return ""
    return text


def _read_binary(value: object, where: str, executor: str, faults: Faults) -> str:
    if value is None or value == "":
        return ""
    if executor == COMMAND:
        faults.add(
            where,
            "The executor command uses no binary.",
            "Leave it out, or choose the executor terraform.",
        )
    elif not isinstance(value, str) or len(value) > 255 or not BINARY.fullmatch(value):
        faults.add(
            where,
            f"{show_value(value)} is not a program.",
            "Write its name, like tofu or terraform, or its full path.",
        )
    else:
        return value
    return ""


def _read_state(value: object, where: str, executor: str, task: str, faults: Faults) -> str:
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


def _read_secrets(value: object, where: str, faults: Faults) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > MOST_SECRETS:
        way_out = "Write only the names, like [DB_PASSWORD]; the pool keeps the values."
        faults.add(where, f"This is not a list of up to {MOST_SECRETS} names.", way_out)
        return ()
    for i, name in enumerate(value):
        if (
            not isinstance(name, str)
            or not ENV_NAME.fullmatch(name)
            or len(name) > 63
            or name.startswith(OURS)
        ):
            # The text may be the value of a secret, so the message does not repeat it.
            faults.add(
                f"{where}[{i}]",
                "This is not the name of a secret.",
                "Use letters, digits and underscores, no digit first.",
            )
    return tuple(dict.fromkeys(name for name in value if isinstance(name, str)))
