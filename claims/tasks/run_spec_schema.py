"""`run` of a claim, as the schema shows it. It is read by claims.tasks.run_spec."""

from typing import Any

from claims.tasks.run_spec import (
    DISCARD,
    EXECUTORS,
    LONGEST_COMMAND,
    MOST_FILES,
    MOST_SECRETS,
    MOST_VARIABLES,
)

Json = dict[str, Any]

COMMAND: Json = {"type": "string", "maxLength": LONGEST_COMMAND}
PATH: Json = {
    "type": "string",
    "maxLength": 1024,
    "description": "The folder inside it in which to begin.",
}


def fields(required: tuple[str, ...] = (), **properties: Json) -> Json:
    schema: Json = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": list(required)} if required else {})


GIT: Json = fields(
    ("url",),
    url={
        "type": "string",
        "maxLength": 500,
        "description": "https or ssh, from a host that the pool allows; no password in it.",
    },
    ref={
        "type": "string",
        "maxLength": 200,
        "description": "A branch, tag or commit. Left out: its default branch.",
    },
    path=PATH,
)
SOURCE: Json = fields(
    files={
        "type": "object",
        "additionalProperties": {"type": "string"},
        "maxProperties": MOST_FILES,
        "description": "Texts by path, a megabyte in all. What begins with #! may be executed.",
    },
    archive={
        "type": "string",
        "pattern": "^[0-9a-f]{64}$",
        "description": "As POST /api/v1/sources/ answered it.",
    },
    git=GIT,
    path=PATH,
) | {"description": "Files, an archive or a git URL: one of them, or none."}
RUN: Json = fields(
    ("executor",),
    executor={"type": "string", "enum": list(EXECUTORS)},
    commands=fields(plan=COMMAND, apply=COMMAND)
    | {"description": "For the executor command: run by `sh -c` in the source."},
    source=SOURCE,
    binary={
        "type": "string",
        "maxLength": 255,
        "description": "For terraform: tofu, terraform, a path. Left out: as the pool says.",
    },
    variables={"type": "object", "maxProperties": MOST_VARIABLES},
    env={"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 100},
    secrets={
        "type": "array",
        "items": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,62}$"},
        "maxItems": MOST_SECRETS,
        "description": (
            "Names of the pool's secrets that the task gets as environment. Never values."
        ),
    },
    state={
        "type": "string",
        "enum": [DISCARD],
        "description": "For plan_and_apply of terraform: nothing of the state is kept, and the "
        "next run makes everything again. Left out: a module without a backend "
        "is refused after init; `local` counts as none, because the folder of a "
        "task is deleted.",
    },
    timeout={
        "type": "string",
        "pattern": r"^[0-9]+(\.[0-9]+)?(s|m|h|d)$",
        "description": "Of each step. Left out: as the pool says.",
    },
) | {
    "description": (
        "What an agent does, in a pool with agents: there a task needs it, elsewhere it is refused."
    )
}
