"""OpenAPI schemas of bodies and answers about claims. claims.allocation.requests.claim_request
parses the bodies; the views build the answers.
"""

from typing import Any

from rest_framework import serializers

from claims.allocation.requests.claim_request import (
    REQUEST_FIELDS,
    claim_fields,
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
    "description": "The claim's generation. A call with an old generation changes nothing. Once an "
    "evacuation has moved the claim, its former generation is accepted, too."
}
REASON: Json = {
    "type": "string",
    "maxLength": LONGEST_REASON,
    "description": "The reason, shown in the events.",
}
DURATION: Json = {
    "type": "string",
    "pattern": r"^[0-9]+(\.[0-9]+)?(s|m|h|d)$",
    "description": "Like 30s, 2m, 8h, 7d. Default: the limit of the pool.",
    "example": "8h",
}


def body(required: tuple[str, ...] = (), **properties: Json) -> Json:
    schema: Json = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": list(required)} if required else {})


CLAIM_BODY: Json = claim_fields(tuple(list_kinds())).schema()
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
PRIORITY_BODY: Json = body(
    ("priority",), priority=REQUEST_FIELDS["priority"].schema(), reason=REASON
)
RESIZE_BODY: Json = body(
    ("generation", "size"),
    generation=GENERATION,
    size=REQUEST_FIELDS["size"].schema() | {"description": "Slots in each pool; fewer than now."},
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
    from_s = serializers.FloatField(help_text="Seconds from now, with probability one half.")
    to_s = serializers.FloatField(help_text="Seconds from now, with probability nine in ten.")


class WaitAnswer(Shape):
    code = serializers.CharField(
        help_text="Stable, for programs: full, pool_not_found, pool_paused, workspace_busy, ..."
    )
    text = serializers.CharField()
    unblock = serializers.ListField(
        child=serializers.CharField(), help_text="Changes that would end the wait."
    )
    place = serializers.IntegerField(
        allow_null=True, help_text="Position in the queue, from 1; null: not queued."
    )
    start = StartAnswer(allow_null=True)
    start_note = serializers.CharField(
        allow_blank=True, help_text="Why there is no estimate, or on what it depends."
    )
    blockers = serializers.ListField(
        child=serializers.IntegerField(), help_text="Claims whose end would help."
    )
    facts = serializers.DictField(help_text="The numbers behind the text.")


class ApprovalFacts(Shape):
    plan = serializers.IntegerField()
    digest = serializers.CharField(
        help_text="Digest of the plan. Send it with the approval or rejection."
    )
    summary = serializers.DictField(help_text="add, change, destroy, replace.")
    since = serializers.DateTimeField(allow_null=True, help_text="Start of the wait.")
    needed = serializers.IntegerField(help_text="Required approvals.")
    given = serializers.IntegerField(help_text="Approvals that count at this moment.")


class ConditionAnswer(Shape):
    type = serializers.ChoiceField(("allocated", "programmed", "ready"))
    is_met = serializers.BooleanField()
    is_failed = serializers.BooleanField(help_text="Not met, and waiting does not help.")
    since = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField(allow_blank=True, help_text="Why it is not met.")


class PortAnswer(Shape):
    port = serializers.IntegerField(allow_null=True, help_text="Of the program, if named.")
    protocol = serializers.CharField(allow_blank=True)
    pool = serializers.CharField()
    member = serializers.CharField(allow_null=True, help_text="The load balancer.")
    number = serializers.IntegerField(allow_null=True, help_text="The port of the load balancer.")
    end = serializers.IntegerField(allow_null=True, help_text="The last port of a segment.")
    address = serializers.CharField(
        allow_null=True, help_text="`host:port` or `[v6]:port`; null until it is known."
    )
    addresses = serializers.ListField(child=serializers.CharField())
    listener = serializers.CharField(allow_null=True, help_text="Its id at the provider.")
    target = serializers.CharField(allow_null=True, help_text="As the provider sees it.")
    health = serializers.CharField(
        allow_null=True, help_text="healthy, unhealthy, initial, draining or unchecked."
    )
    ready = serializers.BooleanField()
    conditions = ConditionAnswer(many=True)


class BackendAnswer(Shape):
    ip = serializers.CharField()
    ports = serializers.ListField(
        child=serializers.IntegerField(), help_text="For each part or number of the claim."
    )


class ClaimAnswer(Shape):
    id = serializers.IntegerField()
    pool = serializers.CharField(allow_null=True, help_text="The first of its pools.")
    pools = serializers.ListField(child=serializers.CharField())
    kind = serializers.CharField(allow_blank=True)
    size = serializers.IntegerField(help_text="Slots in each pool.")
    state = serializers.ChoiceField(CLAIM_STATES)
    outcome = serializers.ChoiceField(OUTCOME_NAMES, help_text="How the claim ended.")
    generation = serializers.IntegerField(
        help_text="Changes with each hand-over. Calls about the hold must name it."
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
        allow_null=True, help_text="The plan that waits for its approval, if any."
    )
    ports = PortAnswer(
        many=True,
        help_text=(
            "The ports of a claim with `ports`, also while it waits; of other claims of ports once "
            "they hold them. The answer to a new claim without `ports` leaves them out."
        ),
    )
    conditions = ConditionAnswer(many=True, help_text="Of a claim of ports.")
    backend = BackendAnswer(allow_null=True, help_text="Where its ports send traffic.")
    wait = WaitAnswer(
        allow_null=True, help_text="Why the claim waits, and what would end the wait."
    )


class ItemAnswer(Shape):
    status = serializers.IntegerField(help_text="The status of a single call for this item.")
    body = serializers.DictField(help_text="The claim, or the problem.")


class BulkAnswer(Shape):
    results = ItemAnswer(many=True, help_text="One for each item, in their order.")


class WorkspaceShareAnswer(Shape):
    pool = serializers.CharField()
    is_allowed = serializers.BooleanField(
        help_text=(
            "False: the pool used the workspace before it belonged to a pool; an operator decides."
        )
    )
    allowed_at = serializers.DateTimeField(allow_null=True)
    allowed_by = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)


class WorkspaceAnswer(Shape):
    name = serializers.CharField()
    pool = serializers.CharField(allow_null=True, help_text="The pool of the workspace.")
    shared_with = WorkspaceShareAnswer(
        many=True, help_text="Other pools that use the workspace and that the caller may read."
    )
    is_locked = serializers.BooleanField()
    locked_at = serializers.DateTimeField(allow_null=True)
    locked_by = serializers.CharField(allow_blank=True)
    lock_reason = serializers.CharField(allow_blank=True)
    running = serializers.IntegerField(allow_null=True, help_text="The serial claim under way.")
    live = serializers.IntegerField(help_text="Claims that have not ended.")
    blocked = serializers.IntegerField()
    lost_claim = serializers.IntegerField(
        allow_null=True, help_text="The claim of a lost apply whose outcome is not recorded yet."
    )
    rescued_states = serializers.ListField(
        child=serializers.DictField(),
        help_text=(
            "Terraform states that a backend did not store and no user has settled, like "
            "`state` of a run."
        ),
    )


class WorkspacePage(Shape):
    results = WorkspaceAnswer(many=True)
    next = serializers.CharField(allow_null=True)
