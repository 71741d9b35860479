"""Bodies and answers of the agents' API. The parser and the OpenAPI schema of a body derive from
one declaration. Other modules parse the bodies in `Json`.
"""

from dataclasses import dataclass

from rest_framework import serializers

from claims.allocation.api.schemas import body
from claims.states import CLAIM
from claims.tasks.logs.logs import CHUNK_BYTES, MOST_AT_ONCE
from claims.tasks.runs.interrupt import Interrupt
from claims.tasks.runs.services import ReportedRun
from claims.tasks.states.services import ReportedState
from claims.tasks.task_result import OUTCOMES
from pools.config.fields import Object, option, required
from pools.config.parsing import Faults, Integer, ListOf, Schema, Text
from project.kernel.http.api_base import BIGINT

Shape = serializers.Serializer[object]
Json = dict[str, object]

MOST_RUNS = 1000
COUNT: Json = {"type": "integer", "minimum": 0}
EMPTY: Json = body(())
TEXT = Text(120)


class Boot(Text):
    """The name of a start of the agent."""

    def read(self, value: object, where: str, faults: Faults) -> str | None:
        found = Text.read(self, value, where, faults)
        if found != "":
            return found
        way_out = "Send a random text that differs with each start of the agent."
        faults.add(where, f"`{where}` is required.", way_out)
        return None

    def schema(self) -> Schema:
        return Text.schema(self) | {"minLength": 1}


@dataclass(frozen=True, slots=True)
class HelloBody:
    boot: str = required(Boot(120), "A random text that differs with each start of the agent.")
    version: str = option(TEXT, "", "")
    python: str = option(TEXT, "", "")
    platform: str = option(TEXT, "", "Like linux_amd64.")
    host: str = option(TEXT, "", "")
    pid: int = option(Integer(0, 2**31 - 1), 0, "")
    runs: tuple[ReportedRun, ...] = option(
        ListOf(Object(ReportedRun), "runs", MOST_RUNS, "[{claim: 1, generation: 2, ...}]"),
        (),
        "The runs that the agent knows.",
    )
    states: tuple[ReportedState, ...] | None = option(
        ListOf(Object(ReportedState), "states", MOST_RUNS, "[{claim: 1, generation: 2, ...}]"),
        None,
        "Rescued states that are not uploaded yet. Leave the field out if the agent does not "
        "track rescued states.",
    )


@dataclass(frozen=True, slots=True)
class StoppedSlot:
    slot: int = required(Integer(1, BIGINT), "")
    generation: int = required(Integer(0, BIGINT), "")


@dataclass(frozen=True, slots=True)
class StoppedSlots:
    slots: tuple[StoppedSlot, ...] = required(
        ListOf(Object(StoppedSlot), "slots", MOST_RUNS, "[{slot: 1, generation: 2}]"), ""
    )


@dataclass(frozen=True, slots=True)
class Started:
    boot: str = required(Boot(40), "The text that `hello` sent.")


HELLO = Object(HelloBody)
STOPPED = Object(StoppedSlots)
STARTED = Object(Started)
INTERRUPTED = Object(Interrupt)
HEARTBEAT: Json = body(
    (),
    load={
        "type": "object",
        "description": "Shown on the page of the member; up to 4,000 characters.",
    },
)
LOG_PIECE: Json = {
    "type": "object",
    "required": ["seq", "text"],
    "properties": {
        "seq": {"type": "integer", "minimum": 0, "maximum": 2**31 - 2},
        "text": {"type": "string", "description": f"Up to {CHUNK_BYTES} bytes."},
        "lines": COUNT,
        "left_out": COUNT | {"description": "Bytes before the chunk that were not kept."},
    },
}
LOG: Json = {
    "oneOf": [
        LOG_PIECE,
        {
            "type": "object",
            "required": ["chunks"],
            "properties": {
                "chunks": {
                    "type": "array",
                    "items": LOG_PIECE,
                    "minItems": 1,
                    "maxItems": MOST_AT_ONCE,
                }
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
            "description": "Error code: exit_code, timeout, source_failed, ...",
        },
        "reason": {"type": "string"},
        "digest": {"type": "string", "description": "sha256 of the saved plan."},
        "summary": {
            "type": "object",
            "description": "add, change, destroy, replace, drift. A summary that contradicts the "
            "list of changes prevents approval. Default: the counts of the list.",
        },
        "facts": {
            "type": "object",
            "description": "binary, version, platform, lock_digest, source_digest, commit.",
        },
        "log": {
            "type": "object",
            "description": "next, bytes, lines, left_out: the size of the whole log.",
        },
        "state": {
            "type": "object",
            "properties": {"size": COUNT},
            "description": (
                "A state that neither the backend nor the server accepted: only the agent has it."
            ),
        },
        "left_running": COUNT
        | {
            "description": (
                "Processes that cannot be ended. The slot drains until the agent reports it as "
                "`stopped`."
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
    place = serializers.CharField(help_text="Lane and number of the slot, like any-0.")
    task = serializers.CharField()


class AgentStopAnswer(Shape):
    slot = serializers.IntegerField()
    generation = serializers.IntegerField()


class AgentOrdersAnswer(Shape):
    version = serializers.CharField(help_text="Send it as `have`.")
    orders = AgentOrderAnswer(
        many=True,
        help_text="Tasks to run. The agent ends each running generation that is in no list.",
    )
    stop = AgentStopAnswer(
        many=True, help_text="Generations to end; report the slots as stopped afterwards."
    )
    keep = serializers.ListField(
        child=serializers.IntegerField(),
        help_text="Claims that wait with their plan: keep their work directory.",
    )
    is_leaving = serializers.BooleanField(
        help_text="The member gets no new claims and is removed once it is empty."
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
    beat_s = serializers.FloatField(help_text="Longest interval between two calls.")
    wait_s = serializers.FloatField(help_text="The `wait` to send when reading orders.")
    grace_s = serializers.FloatField(help_text="Seconds from TERM to KILL.")
    limits = AgentLimits()
    server = serializers.CharField(help_text="Version of the server.")
    draining = serializers.BooleanField(help_text="Same as is_leaving.")


class WorkAnswer(Shape):
    claim = serializers.IntegerField()
    generation = serializers.IntegerField()
    step = serializers.ChoiceField(("plan", "apply"))
    task = serializers.CharField()
    executor = serializers.CharField()
    workspace = serializers.CharField(allow_blank=True)
    requested_by = serializers.CharField(allow_blank=True)
    source = serializers.DictField(  # type: ignore[assignment]  # the metaclass takes the name away
        help_text="kind: none, archive (digest) or git (url, ref); path inside the source."
    )
    commands = serializers.DictField(child=serializers.CharField())
    binary = serializers.CharField()
    variables = serializers.DictField()
    env = serializers.DictField(child=serializers.CharField())
    secrets = serializers.DictField(
        child=serializers.CharField(allow_null=True),
        help_text="Values by name; null: the pool has no secret of that name.",
    )
    timeout_s = serializers.FloatField()
    stop_timeout_s = serializers.FloatField(
        help_text="Seconds from SIGINT to TERM when an apply is ended."
    )
    limits = serializers.DictField(child=serializers.IntegerField())
    git_hosts = serializers.ListField(child=serializers.CharField())
    state = serializers.CharField(
        allow_blank=True,
        help_text="discard: a module without a backend is applied. Empty: it is rejected.",
    )
    plan = serializers.DictField(
        allow_null=True, help_text="The plan to apply: digest, size, facts, summary, has_file."
    )


class LogNext(Shape):
    next = serializers.IntegerField(help_text="Number of the next chunk.")


class PlanSize(Shape):
    size = serializers.IntegerField()


class StateAnswer(Shape):
    is_kept = serializers.BooleanField(
        help_text="False: an operator gave the state up, and the agent deletes its copy."
    )
    digest = serializers.CharField(allow_blank=True, help_text="sha256 of the stored state.")


class PlanResources(Shape):
    resources = serializers.IntegerField(help_text="Number of resources in the plan.")


class SettledAnswer(Shape):
    state = serializers.ChoiceField(tuple(CLAIM.states), help_text="State of the claim.")
    outcome = serializers.CharField(allow_blank=True)
    keep = serializers.BooleanField(help_text="The apply needs the work directory again.")
