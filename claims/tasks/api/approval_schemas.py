"""OpenAPI schemas of plans and decisions."""

from rest_framework import serializers

from claims.allocation.api import schemas
from claims.allocation.api.schemas import BIGINT, REASON, Json, Shape, body
from claims.tasks.approvals.lost_apply import SETTLED
from claims.tasks.approvals.services import MAX_VOTES

DIGEST: Json = {
    "type": "string",
    "pattern": "^[0-9a-fA-F]{0,64}$",
    "description": "Digest of the plan that you read. A decision on another plan is rejected.",
}
COMMENT: Json = REASON | {"description": "Stored and shown to the requester."}
APPROVE_BODY: Json = body(("digest",), digest=DIGEST, comment=COMMENT)
REJECT_BODY: Json = body(("digest", "comment"), digest=DIGEST, comment=COMMENT | {"minLength": 1})
LONGER: Json = schemas.DURATION | {
    "description": "The extension, like 90m, 4h, 1d.",
    "example": "4h",
}
EXTEND_BODY: Json = body(("for", "reason"), **{"for": LONGER, "reason": REASON | {"minLength": 1}})
VERDICT: Json = body(
    ("claim", "digest", "approve"),
    claim=BIGINT,
    digest=DIGEST,
    approve={
        "type": "boolean",
        "description": "true approves, false rejects and needs a comment.",
    },
    comment=COMMENT,
)
BULK_BODY: Json = body(
    ("decisions",),
    decisions={"type": "array", "items": VERDICT, "minItems": 1, "maxItems": MAX_VOTES},
)
SETTLE_BODY: Json = body(
    ("what", "reason"),
    what={
        "type": "string",
        "enum": list(SETTLED),
        "description": "The outcome of the apply.",
    },
    reason=REASON | {"minLength": 1},
    claim=BIGINT
    | {
        "description": (
            "The claim of the lost apply. The call is rejected if another apply was lost since."
        )
    },
)
RAW: Json = {"type": "string", "format": "binary"}
TERRAFORM: Json = {
    "type": "object",
    "additionalProperties": True,
    "description": "The output of `show -json`, redacted by the agent.",
}


class VoteAnswer(Shape):
    by = serializers.CharField()
    is_yes = serializers.BooleanField()
    counts = serializers.BooleanField(help_text="The approval counts at this moment.")
    why_not = serializers.CharField(
        allow_blank=True, help_text="Why an approval does not count at this moment."
    )
    comment = serializers.CharField(allow_blank=True)
    via = serializers.CharField(allow_blank=True)
    at = serializers.DateTimeField()


class PlanAnswer(Shape):
    id = serializers.IntegerField()
    claim = serializers.IntegerField()
    digest = serializers.CharField(allow_blank=True)
    generation = serializers.IntegerField()
    made_at = serializers.DateTimeField()
    is_stale = serializers.BooleanField(help_text="The plan can no longer be applied.")
    member = serializers.CharField(allow_blank=True, help_text="The member that made the plan.")
    summary = serializers.DictField(help_text="add, change, destroy, replace; drift.")
    facts = serializers.DictField(help_text="Versions and digests of the plan step.")
    size = serializers.IntegerField(help_text="Bytes of the saved plan.")
    has_file = serializers.BooleanField()
    has_json = serializers.BooleanField()
    destroys = serializers.BooleanField(help_text="The plan destroys or replaces resources.")
    discards_state = serializers.BooleanField(
        help_text="The run has state: discard, so the next run creates all resources again."
    )
    mismatch = serializers.CharField(
        allow_blank=True,
        help_text=(
            "How the list of changes contradicts the agent's counts. Such a plan cannot be "
            "approved."
        ),
    )
    needed = serializers.IntegerField(help_text="Required approvals.")
    given = serializers.IntegerField(help_text="Approvals that count at this moment.")
    may_own = serializers.BooleanField(help_text="The requester may approve.")
    approvals = VoteAnswer(many=True)


class PendingAnswer(Shape):
    claim = serializers.IntegerField()
    pool = serializers.CharField()
    workspace = serializers.CharField(allow_null=True)
    owner = serializers.CharField(allow_blank=True)
    requested_by = serializers.CharField(allow_blank=True)
    reserved_since = serializers.DateTimeField(
        allow_null=True, help_text="When the plan began to wait."
    )
    expires_at = serializers.DateTimeField()
    member = serializers.CharField(
        allow_blank=True, help_text="The member of the reserved slot; empty without a slot."
    )
    is_parked = serializers.BooleanField(help_text="The claim waits without a slot.")
    held_for_s = serializers.FloatField(
        allow_null=True, help_text="Seconds since the slot was reserved."
    )
    destroys = serializers.BooleanField()
    plan = PlanAnswer()


class HistoryAnswer(Shape):
    claim = serializers.IntegerField()
    generation = serializers.IntegerField()
    step = serializers.ChoiceField(("plan", "apply"))
    member = serializers.CharField()
    place = serializers.CharField(allow_blank=True)
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    outcome = serializers.CharField(
        allow_blank=True, help_text="Outcome of the run; empty while the run is active."
    )
    code = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)
    requested_by = serializers.CharField(allow_blank=True)
    settled = serializers.JSONField(
        allow_null=True, help_text="The recorded outcome of a lost apply."
    )


class WorkspaceHistory(Shape):
    results = HistoryAnswer(many=True)
    next = serializers.CharField(allow_null=True)
