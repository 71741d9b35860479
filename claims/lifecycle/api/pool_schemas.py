"""Bodies and answers of the pool calls for the OpenAPI schema. `pools.config.spec` parses a
configuration; `claims.lifecycle.api.pools` builds the answers.
"""

from rest_framework import serializers

from claims.allocation.api.schemas import DURATION, POOL_NAME, Json, Shape, body
from pools.config.placement import placement_schema
from pools.states import POOL

POOL_STATES = tuple(POOL.states)


class SlotCountsAnswer(Shape):
    total = serializers.IntegerField()
    open = serializers.IntegerField(help_text="Free and available to new claims.")
    closed = serializers.IntegerField(help_text="Free, but the pool or member takes no claims.")
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
    """An error of the provider."""

    code = serializers.CharField(
        help_text=(
            "unavailable, unauthorised, misconfigured, throttled, quota, conflict, "
            "permanent, waiting, ..."
        )
    )
    detail = serializers.CharField(help_text="The fault and the way out.")
    since = serializers.DateTimeField()
    members = serializers.IntegerField(help_text="Members with the error; 0: the whole pool.")


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
        help_text="Error of the provider; null: none. It disappears once the fault is fixed.",
    )
    created_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField()


class PoolDetailAnswer(PoolAnswer):
    config = serializers.DictField(help_text="As in a pool file, and as PUT accepts it.")


LABELS: Json = {"type": "object", "additionalProperties": {"type": "string"}}
LAYOUT: Json = {
    "description": "3, or [any, plan, plan], or node, or ports with protocols or shared, or "
    "classes with the kinds that each accepts. Required, unless the members run the Berth agent: "
    "there the default is [any, plan, plan].",
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
            shared={
                "type": "boolean",
                "description": "One listener per number serves any protocol.",
            },
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
        "description": "Number of approvals that an apply needs.",
    },
    own={
        "type": "boolean",
        "description": "The requester may approve. Default: true if one approval is needed.",
    },
    expires=DURATION,
    notice=DURATION,
    hold={
        "oneOf": [DURATION, {"type": "string", "enum": ["always"]}],
        "description": "How long a plan that waits for its approval keeps its slot.",
    },
) | {"description": "Rules for the approval of plans."}
TASK: Json = body(
    timeout=DURATION,
    log=SIZE,
    plan=SIZE,
    cpu=DURATION,
    memory=SIZE,
    binary={"type": "string", "maxLength": 255, "example": "tofu"},
    env={"type": "object", "additionalProperties": {"type": "string"}},
    git=body(hosts={"type": "array", "items": {"type": "string"}}),
) | {"description": "Limits of a task, in pools whose members run the Berth agent."}
CLOCK: Json = {"type": "string", "pattern": r"^\d{1,2}:\d{2}$", "example": "22:00"}
WINDOW: dict[str, Json] = {
    "from": CLOCK,
    "to": CLOCK,
    "zone": {"type": "string", "example": "Europe/Berlin", "description": "Default: UTC."},
    "days": {
        "oneOf": [
            {"type": "string", "example": "mon-fri"},
            {"type": "array", "items": {"type": "string"}},
        ],
        "description": "Days on which the window begins. Default: every day.",
    },
    "name": {"type": "string", "maxLength": 63},
}
LIMIT: Json = {"type": "integer", "minimum": 0}
SCALING: Json = {
    "description": (
        "How the number of members follows demand, if the provider creates them. The policy "
        "defines further options."
    ),
    "oneOf": [
        {"type": "string", "example": "on_demand"},
        {
            "type": "object",
            "required": ["policy"],
            "properties": {
                "policy": {
                    "type": "string",
                    "description": "fixed, utilisation, warm, on_demand, or a custom policy.",
                    "example": "warm",
                },
                "cooldown": body(up=DURATION, down=DURATION),
                "step": {
                    "type": "object",
                    "description": "Members per decision, up and down: a number, or all.",
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
        "When members that were made from an older configuration are renewed: once they are idle, "
        "or only on an operator's order."
    ),
    "oneOf": [
        {"type": "string", "enum": ["idle", "manual"]},
        body(policy={"type": "string", "enum": ["idle", "manual"]}, ready_within=DURATION),
    ],
}
CONFIG_PROPERTIES: dict[str, Json] = {
    "kind": {"type": "string", "enum": ["Pool"]},
    "name": POOL_NAME,
    "group": {"type": "string", "maxLength": 63, "description": "Heading on the overview."},
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
        labels=LABELS | {"description": "Labels of members that scaling creates."},
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
            "description": "Highest priority for claimants.",
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
        "A JSON merge patch (RFC 7396) of the configuration: missing fields keep their value, "
        "null removes a field."
    ),
    "properties": {name: {} for name in CONFIG_PROPERTIES},
    "additionalProperties": False,
}
