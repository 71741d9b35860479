"""Bodies and answers about plans and decisions, as the schema shows them."""

from rest_framework import serializers

from claims.allocation.api import schemas
from claims.allocation.api.schemas import BIGINT, REASON, Json, Shape, body
from claims.tasks.approvals.lost_apply import SETTLED
from claims.tasks.approvals.services import MOST

DIGEST: Json = {
    "type": "string",
    "pattern": "^[0-9a-fA-F]{0,64}$",
    "description": "Of the plan that was read: a decision about another one is refused.",
}
COMMENT: Json = REASON | {"description": "Seen by whoever asked for it, and kept."}
APPROVE_BODY: Json = body(("digest",), digest=DIGEST, comment=COMMENT)
REJECT_BODY: Json = body(("digest", "comment"), digest=DIGEST, comment=COMMENT | {"minLength": 1})
LONGER: Json = schemas.DURATION | {
    "description": "How much longer, like 90m, 4h, 1d.",
    "example": "4h",
}
EXTEND_BODY: Json = body(("for", "reason"), **{"for": LONGER, "reason": REASON | {"minLength": 1}})
VERDICT: Json = body(
    ("claim", "digest", "approve"),
    claim=BIGINT,
    digest=DIGEST,
    approve={"type": "boolean", "description": "true: yes. false: no, which needs a comment."},
    comment=COMMENT,
)
BULK_BODY: Json = body(
    ("decisions",), decisions={"type": "array", "items": VERDICT, "minItems": 1, "maxItems": MOST}
)
SETTLE_BODY: Json = body(
    ("what", "reason"),
    what={
        "type": "string",
        "enum": list(SETTLED),
        "description": "What became of the apply, as far as a person can say.",
    },
    reason=REASON | {"minLength": 1},
    claim=BIGINT
    | {
        "description": (
            "Whose apply this is about. By now another one may be lost: then it is refused."
        )
    },
)
RAW: Json = {"type": "string", "format": "binary"}
TERRAFORM: Json = {
    "type": "object",
    "additionalProperties": True,
    "description": "As `show -json` writes it, redacted by the agent.",
}


class SaidAnswer(Shape):
    by = serializers.CharField()
    is_yes = serializers.BooleanField()
    counts = serializers.BooleanField(help_text="As an approval at this moment.")
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
    is_stale = serializers.BooleanField(help_text="It can't be applied any more.")
    member = serializers.CharField(allow_blank=True, help_text="On which it was made.")
    summary = serializers.DictField(help_text="add, change, destroy, replace; drift.")
    facts = serializers.DictField(help_text="What it was made with.")
    size = serializers.IntegerField(help_text="Bytes of the saved plan.")
    has_file = serializers.BooleanField()
    has_json = serializers.BooleanField()
    destroys = serializers.BooleanField(help_text="It destroys or replaces something.")
    discards_state = serializers.BooleanField(
        help_text="Its run says state: discard: the next run makes everything again."
    )
    mismatch = serializers.CharField(
        allow_blank=True,
        help_text=(
            "How its list of changes contradicts what its agent counts: it cannot be approved."
        ),
    )
    needed = serializers.IntegerField(help_text="How many must say yes.")
    given = serializers.IntegerField(help_text="How many approvals count at this moment.")
    may_own = serializers.BooleanField(help_text="The yes of whoever asked for the claim counts.")
    approvals = SaidAnswer(many=True)


class PendingAnswer(Shape):
    claim = serializers.IntegerField()
    pool = serializers.CharField()
    workspace = serializers.CharField(allow_null=True)
    owner = serializers.CharField(allow_blank=True)
    requested_by = serializers.CharField(allow_blank=True)
    reserved_since = serializers.DateTimeField(allow_null=True, help_text="Since when it waits.")
    expires_at = serializers.DateTimeField()
    member = serializers.CharField(
        allow_blank=True, help_text="On which its slot waits; empty: none does."
    )
    is_parked = serializers.BooleanField(help_text="It waits without a slot.")
    held_for_s = serializers.FloatField(
        allow_null=True, help_text="Seconds its slot has waited with it."
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
    outcome = serializers.CharField(allow_blank=True, help_text="Of the run; empty: it runs.")
    code = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)
    requested_by = serializers.CharField(allow_blank=True)
    settled = serializers.JSONField(
        allow_null=True, help_text="What a person has said of an apply that was lost."
    )


class WorkspaceHistory(Shape):
    results = HistoryAnswer(many=True)
    next = serializers.CharField(allow_null=True)
