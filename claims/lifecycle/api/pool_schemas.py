"""Bodies and answers about pools, as the schema shows them. Configurations are read by
pools.config.spec, answers are built by hand.
"""

from rest_framework import serializers

from claims.allocation.api.schemas import DURATION, POOL_NAME, Json, Shape, body
from pools.config.placement import placement_schema
from pools.states import POOL

POOL_STATES = tuple(POOL.states)


class SlotCountsAnswer(Shape):
    total = serializers.IntegerField()
    open = serializers.IntegerField(help_text="Free, for the next who asks.")
    closed = serializers.IntegerField(help_text="Free, but pool or member is not willing.")
    held = serializers.IntegerField()
    reserved = serializers.IntegerField()
    draining = serializers.IntegerField()
    retired = serializers.IntegerField()


class MemberCountsAnswer(Shape):
    total = serializers.IntegerField()
    ready = serializers.IntegerField()
    cordoned = serializers.IntegerField()
    leaving = serializers.IntegerField()
    offline = serializers.IntegerField()
    creating = serializers.IntegerField()
    deleting = serializers.IntegerField()


class TroubleAnswer(Shape):
    """What goes wrong outside."""

    code = serializers.CharField(
        help_text=(
            "unavailable, unauthorised, misconfigured, throttled, quota, conflict, "
            "permanent, waiting, ..."
        )
    )
    detail = serializers.CharField(help_text="What is wrong and what to do.")
    since = serializers.DateTimeField()
    members = serializers.IntegerField(help_text="Concerned; 0: the whole pool.")


class PoolAnswer(Shape):
    id = serializers.IntegerField()
    name = serializers.CharField()
    group = serializers.CharField(allow_blank=True)
    description = serializers.CharField(allow_blank=True)
    provider = serializers.CharField()
    state = serializers.ChoiceField(POOL_STATES)
    revision = serializers.IntegerField(help_text="Rises with each change of configuration.")
    paused_until = serializers.DateTimeField(allow_null=True)
    pause_reason = serializers.CharField(allow_blank=True)
    slots = SlotCountsAnswer()
    members = MemberCountsAnswer()
    waiting = serializers.IntegerField()
    blocked = serializers.IntegerField()
    trouble = TroubleAnswer(
        allow_null=True,
        help_text="Of its provider; null: none. It goes by itself once that is mended.",
    )
    created_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField()


class PoolDetailAnswer(PoolAnswer):
    config = serializers.DictField(help_text="As a file says it, and as PUT takes it.")


LABELS: Json = {"type": "object", "additionalProperties": {"type": "string"}}
LAYOUT: Json = {
    "description": "3, or [any, plan, plan], or node, or ports with protocols or shared, or "
    "classes with what each accepts. Needed, unless members are agents: theirs are "
    "[any, plan, plan] without a word.",
    "oneOf": [
        {"type": "integer", "minimum": 1, "maximum": 65536},
        {"type": "string", "enum": ["node"]},
        {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["any", "plan"]}},
        {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["class", "count", "accepts"],
                "additionalProperties": False,
                "properties": {
                    "class": {"type": "string"},
                    "count": {"type": "integer", "minimum": 1},
                    "accepts": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                },
            },
        },
        body(
            ("ports",),
            ports={"type": "string", "pattern": r"^\d+-\d+$", "example": "30000-30049"},
            protocols={
                "type": "array",
                "items": {"type": "string", "enum": ["tcp", "udp"]},
                "minItems": 1,
            },
            shared={"type": "boolean", "description": "One listener a number serves any protocol."},
            segment={"type": "integer", "minimum": 1},
            quota={"type": "integer", "minimum": 1},
            foreign={"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}},
        ),
    ],
}
SIZE: Json = {
    "type": "string",
    "pattern": r"^\d{1,9}(\.\d{1,3})?[kKmMgGtT]?[bB]$",
    "example": "8MB",
}
APPROVAL: Json = body(
    needed={
        "type": "integer",
        "minimum": 1,
        "maximum": 10,
        "description": "How many must say yes.",
    },
    own={
        "type": "boolean",
        "description": "The yes of whoever asked counts. Left out: while one is enough.",
    },
    expires=DURATION,
    notice=DURATION,
    hold={
        "oneOf": [DURATION, {"type": "string", "enum": ["always"]}],
        "description": "How long the slot waits with its plan.",
    },
) | {"description": "How plans are decided on."}
TASK: Json = body(
    timeout=DURATION,
    log=SIZE,
    plan=SIZE,
    cpu=DURATION,
    memory=SIZE,
    binary={"type": "string", "maxLength": 255, "example": "tofu"},
    env={"type": "object", "additionalProperties": {"type": "string"}},
    git=body(hosts={"type": "array", "items": {"type": "string"}}),
) | {"description": "What a task may take, where members are agents."}
CLOCK: Json = {"type": "string", "pattern": r"^\d{1,2}:\d{2}$", "example": "22:00"}
WINDOW: dict[str, Json] = {
    "from": CLOCK,
    "to": CLOCK,
    "zone": {"type": "string", "example": "Europe/Berlin", "description": "Left out: UTC."},
    "days": {
        "oneOf": [
            {"type": "string", "example": "mon-fri"},
            {"type": "array", "items": {"type": "string"}},
        ],
        "description": "On which it begins. Left out: on each.",
    },
    "name": {"type": "string", "maxLength": 63},
}
LIMIT: Json = {"type": "integer", "minimum": 0}
SCALING: Json = {
    "description": (
        "How the number of members follows demand, where the provider makes them. Options are "
        "those of the policy."
    ),
    "oneOf": [
        {"type": "string", "example": "on_demand"},
        {
            "type": "object",
            "required": ["policy"],
            "properties": {
                "policy": {
                    "type": "string",
                    "description": "fixed, utilisation, warm, on_demand, or one of your own.",
                    "example": "warm",
                },
                "cooldown": body(up=DURATION, down=DURATION),
                "step": {
                    "type": "object",
                    "description": "Members a decision, up and down: a number, or all.",
                },
                "schedule": {
                    "type": "array",
                    "items": body(("from", "to"), **WINDOW, min=LIMIT, max=LIMIT),
                },
                "freeze": {"type": "array", "items": body(("from", "to"), **WINDOW)},
            },
            "additionalProperties": True,
        },
    ],
}
ROLL: Json = {
    "description": (
        "How members are renewed that were made from another configuration: once they are idle, or "
        "when somebody says so."
    ),
    "oneOf": [
        {"type": "string", "enum": ["idle", "manual"]},
        body(policy={"type": "string", "enum": ["idle", "manual"]}, ready_within=DURATION),
    ],
}
CONFIG_PROPERTIES: dict[str, Json] = {
    "kind": {"type": "string", "enum": ["Pool"]},
    "name": POOL_NAME,
    "group": {"type": "string", "maxLength": 63, "description": "Its heading on the overview."},
    "description": {"type": "string", "maxLength": 500},
    "provider": {
        "oneOf": [
            {"type": "string", "example": "static"},
            {
                "type": "object",
                "required": ["kind"],
                "properties": {"kind": {"type": "string"}},
                "additionalProperties": True,
            },
        ]
    },
    "slots": LAYOUT,
    "members": body(
        min={"type": "integer", "minimum": 0},
        max={"type": "integer", "minimum": 0},
        labels=LABELS | {"description": "Of members that are made as demand wants them."},
        list={
            "type": "array",
            "items": {
                "oneOf": [
                    {"type": "string"},
                    body(
                        ("name",),
                        name={"type": "string"},
                        labels=LABELS,
                        slots={
                            "oneOf": [
                                {"type": "integer", "minimum": 1},
                                {"type": "array", "items": {"type": "string"}},
                            ]
                        },
                        external_id={"type": "string", "maxLength": 255},
                        ports={"type": "string"},
                        foreign={"type": "array", "items": {"type": "integer"}},
                    ),
                ]
            },
        },
    ),
    "placement": placement_schema(),
    "lease": body(acknowledge=DURATION, heartbeat=DURATION, hold=DURATION),
    "liveness": body(
        ("heartbeat",),
        heartbeat=DURATION,
        lost={"oneOf": [DURATION, {"type": "string", "enum": ["never"]}]},
    ),
    "priority": body(
        max={
            "type": "integer",
            "minimum": 0,
            "maximum": 99,
            "description": "How far claimants may go.",
        }
    ),
    "drain": body(limit=DURATION),
    "approval": APPROVAL,
    "task": TASK,
    "scaling": SCALING,
    "roll": ROLL,
}
CONFIG_BODY: Json = body(("name",), **CONFIG_PROPERTIES)
PUT_BODY: Json = body((), **CONFIG_PROPERTIES)
PATCH_BODY: Json = {
    "type": "object",
    "description": (
        "A JSON merge patch (RFC 7396) of the configuration: what is left out stays, null "
        "takes a field away."
    ),
    "properties": {name: {} for name in CONFIG_PROPERTIES},
    "additionalProperties": False,
}
