"""Bodies and answers about claims, as the schema shows them. Bodies of claims are read by
claims.allocation.requests.claim_request, answers are built by hand.
"""

from typing import Any

from rest_framework import serializers

from claims.allocation.requests.claim_request import (
    FIELDS,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MOST_LABELS,
    MOST_POOLS,
    MOST_SLOTS,
    TASKS,
)
from claims.kinds import list_kinds
from claims.states import CLAIM, OUTCOMES
from project.kernel.validation import LONGEST_REASON

Shape = serializers.Serializer[Any]
Json = dict[str, object]

CLAIM_STATES = tuple(CLAIM.states)
OUTCOME_NAMES = ("", *OUTCOMES)
BIGINT: Json = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
GENERATION: Json = BIGINT | {
    "description": "As the claim said it: a call about a hold that is over changes nothing."
}
REASON: Json = {
    "type": "string",
    "maxLength": LONGEST_REASON,
    "description": "Why; it stands in the events.",
}
DURATION: Json = {
    "type": "string",
    "pattern": r"^[0-9]+(\.[0-9]+)?(s|m|h|d)$",
    "description": "Like 30s, 2m, 8h, 7d. Left out: as the pool says.",
    "example": "8h",
}
POOL_NAME: Json = {
    "type": "string",
    "pattern": r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$",
    "example": "env-test",
}


def body(required: tuple[str, ...] = (), **properties: Json) -> Json:
    schema: Json = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": list(required)} if required else {})


def as_json(schema: Json) -> Json:
    return {"application/json": schema}


KIND_WORDS = (
    "What the layout serves; left out: its only kind. `tcp_udp` takes the same number in TCP "
    "and in UDP of one member: two slots where the pool has both protocols, one listener "
    "where it is shared."
)
CLAIM_PROPERTIES: dict[str, Json] = {
    "pool": POOL_NAME | {"description": "It need not exist yet: then the claim waits for it."},
    "pools": {
        "type": "array",
        "items": POOL_NAME,
        "minItems": 1,
        "maxItems": MOST_POOLS,
        "description": "Slots in each of them, or none.",
    },
    "kind": {"type": "string", "pattern": r"^([a-z][a-z0-9_-]{0,31})?$", "description": KIND_WORDS},
    "size": {
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_SLOTS,
        "default": 1,
        "description": "Slots in each pool, all or none; of tcp_udp: numbers.",
    },
    "owner": {
        "type": "string",
        "maxLength": 160,
        "description": "For whom: pod:UID, workspace:NAME, what you like.",
    },
    "key": {"type": "string", "maxLength": 120, "description": "As the header Idempotency-Key."},
    "priority": {
        "type": "integer",
        "minimum": LOWEST_PRIORITY,
        "maximum": HIGHEST_PRIORITY,
        "default": 0,
    },
    "contiguous": {"type": "boolean", "description": "Numbers in a row, on one member."},
    "on_one_member": {"type": "boolean"},
    "same_number": {"type": "boolean", "description": "The same number in every pool."},
    "selector": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "maxProperties": MOST_LABELS,
        "description": "Labels that the member carries.",
    },
    "workspace": {
        "type": "string",
        "maxLength": 120,
        "pattern": r"^([A-Za-z0-9]([A-Za-z0-9._/-]{0,118}[A-Za-z0-9])?)?$",
    },
    "task": {"type": "string", "enum": list(TASKS)},
    "acknowledge_within": DURATION
    | {"description": "Else it ends as unacknowledged. Left out: as the pool says."},
    "heartbeat_within": DURATION
    | {"description": "Else it ends as expired. Left out: as the pool says."},
    "hold_for": DURATION | {"description": "Then it ends as expired. Left out: as the pool says."},
    "retry": {
        "type": "boolean",
        "description": (
            "Stand in line again once its member is lost. Left out: a plan does, others do not."
        ),
    },
    "slot": BIGINT | {"description": "This very slot, for operators; it never waits."},
    **{kind.field: kind.schema for kind in list_kinds()},
}
if missing := set(FIELDS) - set(CLAIM_PROPERTIES):
    raise AssertionError(f"the schema of a claim does not say what {missing} is")
CLAIM_BODY: Json = body((), **CLAIM_PROPERTIES)
BULK_BODY: Json = body(
    ("claims",), claims={"type": "array", "items": CLAIM_BODY, "minItems": 1, "maxItems": 1000}
)
HOLD: Json = body(("id", "generation"), id=BIGINT, generation=GENERATION)
BULK_RELEASE_BODY: Json = body(
    ("claims",), claims={"type": "array", "items": HOLD, "minItems": 1, "maxItems": 1000}
)
RELEASE_BODY: Json = body(("generation",), generation=GENERATION, reason=REASON)
GENERATION_BODY: Json = body(("generation",), generation=GENERATION)
REASON_BODY: Json = body((), reason=REASON)
SHARE_BODY: Json = body(
    ("pool", "reason"),
    pool={"type": "string", "minLength": 1, "maxLength": 63},
    reason=REASON | {"minLength": 1},
)
NEEDED_REASON_BODY: Json = body(("reason",), reason=REASON | {"minLength": 1})
PRIORITY_BODY: Json = body(("priority",), priority=CLAIM_PROPERTIES["priority"], reason=REASON)
RESIZE_BODY: Json = body(
    ("generation", "size"),
    generation=GENERATION,
    size=CLAIM_PROPERTIES["size"] | {"description": "Slots in each pool; fewer than now."},
)


class HeldSlotAnswer(Shape):
    id = serializers.IntegerField()
    pool = serializers.CharField()
    member = serializers.CharField()
    member_id = serializers.IntegerField()
    lane = serializers.CharField()
    number = serializers.IntegerField(help_text="The port (first of its segment), or 0, 1, 2.")
    labels = serializers.DictField(child=serializers.CharField(), help_text="Of the member.")


class StartAnswer(Shape):
    from_s = serializers.FloatField(help_text="Seconds from now, as likely as not.")
    to_s = serializers.FloatField(help_text="Nine times in ten.")


class WaitAnswer(Shape):
    code = serializers.CharField(
        help_text="Stable, for programs: full, pool_not_found, pool_paused, workspace_busy, ..."
    )
    text = serializers.CharField()
    unblock = serializers.ListField(
        child=serializers.CharField(), help_text="What would let it start."
    )
    place = serializers.IntegerField(
        allow_null=True, help_text="In line, from 1; null: it stands in none."
    )
    start = StartAnswer(allow_null=True)
    start_note = serializers.CharField(
        allow_blank=True, help_text="Why there is no band, or what it rests on."
    )
    blockers = serializers.ListField(
        child=serializers.IntegerField(), help_text="Claims whose end would help."
    )
    facts = serializers.DictField(help_text="The numbers behind the words.")


class ApprovalFacts(Shape):
    plan = serializers.IntegerField()
    digest = serializers.CharField(
        help_text="Of the plan that is to be decided on: send it with the decision."
    )
    summary = serializers.DictField(help_text="add, change, destroy, replace.")
    since = serializers.DateTimeField(allow_null=True, help_text="Since when it waits.")
    needed = serializers.IntegerField(help_text="How many must say yes.")
    given = serializers.IntegerField(help_text="How many approvals count at this moment.")


class ClaimAnswer(Shape):
    id = serializers.IntegerField()
    pool = serializers.CharField(allow_null=True, help_text="The first of its pools.")
    pools = serializers.ListField(child=serializers.CharField())
    kind = serializers.CharField(allow_blank=True)
    size = serializers.IntegerField(help_text="Slots in each pool.")
    state = serializers.ChoiceField(CLAIM_STATES)
    outcome = serializers.ChoiceField(OUTCOME_NAMES, help_text="How it ended.")
    generation = serializers.IntegerField(
        help_text="New with each hand-over; name it in calls about the hold."
    )
    owner = serializers.CharField(allow_blank=True)
    requested_by = serializers.CharField(allow_blank=True)
    priority = serializers.IntegerField()
    key = serializers.CharField(allow_null=True)
    workspace = serializers.CharField(allow_null=True)
    workspace_pool = serializers.CharField(
        allow_null=True, help_text="The pool that the workspace belongs to."
    )
    task = serializers.CharField(allow_blank=True)
    step = serializers.CharField(allow_blank=True, help_text="Of a task: plan, apply.")
    slots = HeldSlotAnswer(many=True)
    created_at = serializers.DateTimeField()
    bound_at = serializers.DateTimeField(allow_null=True)
    acknowledged_at = serializers.DateTimeField(allow_null=True)
    acknowledge_by = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)
    approval = ApprovalFacts(
        allow_null=True, help_text="Of one that waits for a person; null: it does not."
    )
    wait = WaitAnswer(
        allow_null=True, help_text="Why it waits and what would change that; null: it does not."
    )


class ItemAnswer(Shape):
    status = serializers.IntegerField(help_text="As the single call would have given.")
    body = serializers.DictField(help_text="The claim, or the problem.")


class BulkAnswer(Shape):
    results = ItemAnswer(many=True, help_text="One for each item, in the order asked.")


class WorkspaceShareAnswer(Shape):
    pool = serializers.CharField()
    is_allowed = serializers.BooleanField(
        help_text=(
            "False: the pool used it before workspaces belonged to pools; an operator decides."
        )
    )
    allowed_at = serializers.DateTimeField(allow_null=True)
    allowed_by = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)


class WorkspaceAnswer(Shape):
    name = serializers.CharField()
    pool = serializers.CharField(allow_null=True, help_text="The pool that it belongs to.")
    shared_with = WorkspaceShareAnswer(
        many=True, help_text="Other pools that use it, as far as you see them."
    )
    is_locked = serializers.BooleanField()
    locked_at = serializers.DateTimeField(allow_null=True)
    locked_by = serializers.CharField(allow_blank=True)
    lock_reason = serializers.CharField(allow_blank=True)
    running = serializers.IntegerField(allow_null=True, help_text="Its serial claim under way.")
    live = serializers.IntegerField(help_text="Claims that have not ended.")
    blocked = serializers.IntegerField()
    lost_claim = serializers.IntegerField(
        allow_null=True, help_text="Its apply was lost, and nobody has said what became of it."
    )
    rescued_states = serializers.ListField(
        child=serializers.DictField(),
        help_text=(
            "Terraform states that a backend did not take and nobody has settled; as "
            "`state` of a run."
        ),
    )


class WorkspacePage(Shape):
    results = WorkspaceAnswer(many=True)
    next = serializers.CharField(allow_null=True)
