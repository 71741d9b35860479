"""Bodies and answers of the agents' API, as the schema shows them. Bodies are read by hand."""

from typing import Any

from rest_framework import serializers

from claims.allocation.api.schemas import BIGINT, GENERATION, as_json, body
from claims.states import CLAIM
from claims.tasks.logs.logs import CHUNK_BYTES, MOST_AT_ONCE
from claims.tasks.task_result import OUTCOMES

__all__ = ["as_json"]

Shape = serializers.Serializer[Any]
Json = dict[str, Any]

TEXT: Json = {"type": "string", "maxLength": 120}
COUNT: Json = {"type": "integer", "minimum": 0}
EMPTY: Json = body(())
RUN: Json = body(
    ("claim", "generation", "status"),
    claim=BIGINT, generation=BIGINT, step={"type": "string"},
    status={"type": "string", "enum": ["running", "finished", "lost", "not_started"]},
)  # fmt: skip
KEPT_STATE: Json = body(("claim", "generation"), claim=BIGINT, generation=BIGINT, size=COUNT)
HELLO: Json = body(
    ("boot",),
    version=TEXT,
    python=TEXT,
    platform=TEXT | {"example": "linux_amd64"},
    host=TEXT,
    pid={"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
    boot=TEXT
    | {"minLength": 1, "description": "Random, another one with each start of the agent."},
    runs={
        "type": "array",
        "items": RUN,
        "maxItems": 1000,
        "description": "What it knows of its runs.",
    },
    states={
        "type": "array",
        "items": KEPT_STATE,
        "maxItems": 1000,
        "description": (
            "States that it has rescued and not uploaded yet. Left out: it does not know of "
            "any kind of them."
        ),
    },
)
HEARTBEAT: Json = body(
    (), load={"type": "object", "description": "What is worth showing; up to 4,000 characters."}
)
SLOT: Json = body(("slot", "generation"), slot=BIGINT, generation=GENERATION | {"minimum": 0})
STOPPED: Json = body(("slots",), slots={"type": "array", "items": SLOT, "maxItems": 1000})
STARTED: Json = body(("boot",), boot={"type": "string", "minLength": 1, "maxLength": 40})
INTERRUPTED: Json = body(
    ("why", "wait_s"),
    why={"type": "string", "maxLength": 300},
    wait_s={
        "type": "integer",
        "minimum": 0,
        "maximum": 86_400,
        "description": "Seconds until it is terminated.",
    },
    waits_for={
        "type": "array",
        "items": {"type": "string", "maxLength": 300},
        "maxItems": 20,
        "description": "What it still has to finish.",
    },
    more=COUNT | {"description": "How many more than are named."},
)
PIECE: Json = {
    "type": "object",
    "required": ["seq", "text"],
    "properties": {
        "seq": {"type": "integer", "minimum": 0, "maximum": 2**31 - 2},
        "text": {"type": "string", "description": f"Up to {CHUNK_BYTES} bytes."},
        "lines": COUNT,
        "left_out": COUNT | {"description": "Bytes before it that were not kept."},
    },
}
LOG: Json = {
    "oneOf": [
        PIECE,
        {
            "type": "object",
            "required": ["chunks"],
            "properties": {
                "chunks": {"type": "array", "items": PIECE, "minItems": 1, "maxItems": MOST_AT_ONCE}
            },
        },
    ]
}
RESULT: Json = {
    "type": "object",
    "required": ["outcome"],
    "properties": {
        "outcome": {"type": "string", "enum": list(OUTCOMES)},
        "exit_code": {"type": "integer", "nullable": True},
        "code": {
            "type": "string",
            "description": "Why, typed: exit_code, timeout, source_failed, ...",
        },
        "reason": {"type": "string"},
        "digest": {"type": "string", "description": "sha256 of the saved plan."},
        "summary": {
            "type": "object",
            "description": "add, change, destroy, replace, drift. Where it contradicts the list of "
            "changes the plan cannot be approved; left out, the list is counted.",
        },
        "facts": {
            "type": "object",
            "description": "binary, version, platform, lock_digest, source_digest, commit.",
        },
        "log": {
            "type": "object",
            "description": "next, bytes, lines, left_out: how much log there is in all.",
        },
        "state": {
            "type": "object",
            "properties": {"size": COUNT},
            "description": (
                "The backend did not take the state and neither did the server: only "
                "the agent has it."
            ),
        },
        "left_running": COUNT
        | {
            "description": (
                "Processes of it that cannot be ended: its slot drains until `stopped` "
                "is said of it."
            )
        },
    },
}


class Nothing(Shape):
    """An empty object."""


class AgentOrderAnswer(Shape):
    claim = serializers.IntegerField()
    generation = serializers.IntegerField()
    step = serializers.ChoiceField(("plan", "apply"))
    slot = serializers.IntegerField()
    place = serializers.CharField(help_text="Lane and number of the slot: any-0.")
    task = serializers.CharField()


class AgentStopAnswer(Shape):
    slot = serializers.IntegerField()
    generation = serializers.IntegerField()


class AgentOrdersAnswer(Shape):
    version = serializers.CharField(help_text="Send it as `have`.")
    orders = AgentOrderAnswer(
        many=True,
        help_text="What is to run. A generation that runs and is in no list is to be ended.",
    )
    stop = AgentStopAnswer(
        many=True, help_text="What is to be ended under that generation; then say stopped."
    )
    keep = serializers.ListField(
        child=serializers.IntegerField(),
        help_text="Claims that wait with their plan: keep their work directory.",
    )
    is_leaving = serializers.BooleanField(
        help_text="Nothing new comes, and the member goes once it is empty."
    )


class AgentLimits(Shape):
    chunk_bytes = serializers.IntegerField()
    log_head_bytes = serializers.IntegerField()
    log_tail_bytes = serializers.IntegerField()
    plan_bytes = serializers.IntegerField()
    json_bytes = serializers.IntegerField()
    source_bytes = serializers.IntegerField()


class HelloAnswer(AgentOrdersAnswer):
    member = serializers.CharField()
    member_id = serializers.IntegerField()
    pool = serializers.CharField()
    incarnation = serializers.IntegerField()
    beat_s = serializers.FloatField(help_text="Call at least so often.")
    wait_s = serializers.FloatField(help_text="Ask to wait so long for orders.")
    grace_s = serializers.FloatField(help_text="From TERM to KILL.")
    limits = AgentLimits()
    server = serializers.CharField(help_text="Its version.")
    draining = serializers.BooleanField(help_text="As is_leaving.")


class WorkAnswer(Shape):
    claim = serializers.IntegerField()
    generation = serializers.IntegerField()
    step = serializers.ChoiceField(("plan", "apply"))
    task = serializers.CharField()
    executor = serializers.CharField()
    workspace = serializers.CharField(allow_blank=True)
    requested_by = serializers.CharField(allow_blank=True)
    source = serializers.DictField(  # type: ignore[assignment]  # the metaclass takes the name away
        help_text="kind: none, archive (digest) or git (url, ref); path inside it."
    )
    commands = serializers.DictField(child=serializers.CharField())
    binary = serializers.CharField()
    variables = serializers.DictField()
    env = serializers.DictField(child=serializers.CharField())
    secrets = serializers.DictField(
        child=serializers.CharField(allow_null=True),
        help_text="By name; null: the pool has none of that name.",
    )
    timeout_s = serializers.FloatField()
    stop_timeout_s = serializers.FloatField(
        help_text="From SIGINT to TERM, for an apply that is ended."
    )
    limits = serializers.DictField(child=serializers.IntegerField())
    git_hosts = serializers.ListField(child=serializers.CharField())
    state = serializers.CharField(
        allow_blank=True,
        help_text="discard: a module without a backend is applied. Empty: it is refused.",
    )
    plan = serializers.DictField(
        allow_null=True, help_text="What is to be applied: digest, size, facts, summary, has_file."
    )


class LogNext(Shape):
    next = serializers.IntegerField(help_text="The number of the piece that is next.")


class PlanSize(Shape):
    size = serializers.IntegerField()


class StateAnswer(Shape):
    is_kept = serializers.BooleanField(
        help_text="False: a person has given it up; the agent deletes its copy."
    )
    digest = serializers.CharField(allow_blank=True, help_text="sha256 of what is kept.")


class PlanResources(Shape):
    resources = serializers.IntegerField(help_text="Resources that the plan speaks of.")


class SettledAnswer(Shape):
    state = serializers.ChoiceField(tuple(CLAIM.states), help_text="Of the claim.")
    outcome = serializers.CharField(allow_blank=True)
    keep = serializers.BooleanField(help_text="The work directory is needed again.")
