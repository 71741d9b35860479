"""OpenAPI schema of the field `run` of a claim; `claims.tasks.run_spec` parses the field."""

from claims.tasks.run_spec import (
    DISCARD,
    EXECUTORS,
    LONGEST_COMMAND,
    MOST_FILES,
    MOST_SECRETS,
    MOST_VARIABLES,
)

Json = dict[str, object]

COMMAND: Json = {"type": "string", "maxLength": LONGEST_COMMAND}
PATH: Json = {
    "type": "string",
    "maxLength": 1024,
    "description": "The working folder inside the source.",
}


def fields(required: tuple[str, ...] = (), **properties: Json) -> Json:
    schema: Json = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": list(required)} if required else {})


GIT: Json = fields(
    ("url",),
    url={
        "type": "string",
        "maxLength": 500,
        "description": "https or ssh, from a host that the pool allows, without a password.",
    },
    ref={
        "type": "string",
        "maxLength": 200,
        "description": "A branch, tag or commit. Default: the default branch.",
    },
    path=PATH,
)
SOURCE: Json = fields(
    files={
        "type": "object",
        "additionalProperties": {"type": "string"},
        "maxProperties": MOST_FILES,
        "description": "Texts by path, in total at most 1 MB. A text that begins with #! is "
        "executable.",
    },
    archive={
        "type": "string",
        "pattern": "^[0-9a-f]{64}$",
        "description": "The digest that POST /api/v1/sources/ returned.",
    },
    git=GIT,
    path=PATH,
) | {"description": "At most one of files, archive and git."}
RUN: Json = fields(
    ("executor",),
    executor={"type": "string", "enum": list(EXECUTORS)},
    commands=fields(plan=COMMAND, apply=COMMAND)
    | {"description": "For the executor command: run by `sh -c` in the source."},
    source=SOURCE,
    binary={
        "type": "string",
        "maxLength": 255,
        "description": "For terraform: tofu, terraform or a path. Default: the binary of the pool.",
    },
    variables={"type": "object", "maxProperties": MOST_VARIABLES},
    env={"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 100},
    secrets={
        "type": "array",
        "items": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,62}$"},
        "maxItems": MOST_SECRETS,
        "description": (
            "Names (not values) of the pool's secrets that the task gets as environment variables."
        ),
    },
    state={
        "type": "string",
        "enum": [DISCARD],
        "description": "For plan_and_apply of terraform: the state is deleted, and the next run "
        "creates all resources again. Without it, a module without a backend is rejected after "
        "init. The backend `local` counts as no backend, because the folder of a task is deleted.",
    },
    timeout={
        "type": "string",
        "pattern": r"^[0-9]+(\.[0-9]+)?(s|m|h|d)$",
        "description": "Time limit of each step. Default: the limit of the pool.",
    },
) | {
    "description": (
        "What an agent executes. A task needs it in pools with agents; other pools reject it."
    )
}
