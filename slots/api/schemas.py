"""Bodies and answers about members and slots, as the schema shows them. Answers are built by
hand in api.py.
"""

from typing import Any

from rest_framework import serializers

from pools.states import MEMBER
from project.kernel.http.api_base import AwareDateTimeField, StrictSerializer
from project.kernel.validation import LONGEST_REASON
from slots.states import SLOT

Shape = serializers.Serializer[Any]

MEMBER_STATES = tuple(MEMBER.states)
SLOT_STATES = tuple(SLOT.states)
OWN_SLOTS: dict[str, Any] = {
    "oneOf": [{"type": "integer", "minimum": 1}, {"type": "array", "items": {"type": "string"}}],
    "description": "Slots of its own: a number, or classes like [any, plan, plan].",
}


class ReasonBody(StrictSerializer):
    reason = serializers.CharField(
        max_length=LONGEST_REASON,
        required=False,
        allow_blank=True,
        default="",
        help_text="Why; others read it.",
    )


class NeededReasonBody(StrictSerializer):
    reason = serializers.CharField(max_length=LONGEST_REASON, help_text="Why; others read it.")


class PauseBody(NeededReasonBody):
    until = AwareDateTimeField(help_text="When it ends by itself, with an offset.")


class PauseAnswer(Shape):
    name = serializers.CharField()
    state = serializers.CharField()
    paused_until = serializers.DateTimeField(allow_null=True)
    pause_reason = serializers.CharField(allow_blank=True)


class BeatBody(StrictSerializer):
    incarnation = serializers.IntegerField(
        min_value=1,
        max_value=2**31 - 1,
        required=False,
        allow_null=True,
        default=None,
        help_text="An older one is refused. Left out: the present.",
    )
    load = serializers.DictField(
        required=False, allow_null=True, default=None, help_text="Whatever is worth showing."
    )


class BeatAnswer(Shape):
    member_id = serializers.IntegerField()
    state = serializers.ChoiceField(MEMBER_STATES)
    incarnation = serializers.IntegerField()
    next_within_s = serializers.FloatField(
        allow_null=True,
        help_text="Seconds until it counts as silent; null: nobody waits for the next one.",
    )


class MemberSlot(Shape):
    id = serializers.IntegerField()
    lane = serializers.CharField()
    number = serializers.IntegerField()
    state = serializers.ChoiceField(SLOT_STATES)
    is_open = serializers.BooleanField()
    claim_id = serializers.IntegerField(allow_null=True)


class MemberAnswer(Shape):
    id = serializers.IntegerField()
    pool = serializers.CharField()
    name = serializers.CharField()
    state = serializers.ChoiceField(MEMBER_STATES)
    is_cordoned = serializers.BooleanField()
    is_leaving = serializers.BooleanField(help_text="It goes when it is empty.")
    note = serializers.CharField(allow_blank=True, help_text="Why it is cordoned or leaves.")
    labels = serializers.DictField(child=serializers.CharField())
    external_id = serializers.CharField(allow_blank=True)
    outside = serializers.CharField(
        allow_blank=True, help_text="What it waits for outside, or what is wrong there, in words."
    )
    restarts = serializers.IntegerField(
        help_text="In a row; forgotten once it has been well for ten minutes."
    )
    gave_up_at = serializers.DateTimeField(
        allow_null=True, help_text="Since when it is not started again by itself."
    )
    is_outdated = serializers.BooleanField(
        help_text="Made from another configuration than its pool has now; renewed once it is idle."
    )
    incarnation = serializers.IntegerField()
    own = serializers.DictField(help_text="What was declared for this member alone.")
    drain_until = serializers.DateTimeField(
        allow_null=True, help_text="It drains: past this moment whoever is still there is put out."
    )
    drain_by = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField()


class MemberDetailAnswer(MemberAnswer):
    heard_at = serializers.DateTimeField(allow_null=True, help_text="Its last heartbeat.")
    load = serializers.JSONField(allow_null=True)
    slots = MemberSlot(many=True)


class HolderAnswer(Shape):
    claim_id = serializers.IntegerField(allow_null=True)
    slot_id = serializers.IntegerField()
    lane = serializers.CharField()
    number = serializers.IntegerField()
    state = serializers.CharField()


class RemovalAnswer(Shape):
    member_id = serializers.IntegerField()
    state = serializers.ChoiceField(
        MEMBER_STATES,
        help_text="gone or deleting: nobody was there. Else it leaves when the holders have.",
    )
    holders = HolderAnswer(many=True)


class SlotAnswer(Shape):
    id = serializers.IntegerField()
    pool = serializers.CharField()
    member = serializers.CharField()
    member_id = serializers.IntegerField()
    lane = serializers.CharField()
    number = serializers.IntegerField()
    state = serializers.ChoiceField(SLOT_STATES)
    is_open = serializers.BooleanField(help_text="Pool and member are willing.")
    claim_id = serializers.IntegerField(allow_null=True)
    generation = serializers.IntegerField()
    last_claim_id = serializers.IntegerField(allow_null=True)
    drain_until = serializers.DateTimeField(allow_null=True)
    changed_at = serializers.DateTimeField()


class HeldByAnswer(Shape):
    slot_id = serializers.IntegerField()
    at = serializers.DateTimeField(help_text="The moment that was asked for.")
    is_known = serializers.BooleanField(
        help_text="Whether the log reaches back that far for this slot."
    )
    claim_id = serializers.IntegerField(allow_null=True, help_text="null: it was free.")
    generation = serializers.IntegerField(allow_null=True)
    since = serializers.DateTimeField(allow_null=True, help_text="When that began.")
    verb = serializers.CharField(allow_null=True)
    actor = serializers.CharField(allow_null=True)


LABELS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}
PORTS: dict[str, Any] = {
    "type": "string",
    "pattern": r"^\d+-\d+$",
    "description": 'Fewer ports than the pool has, like "30000-30049".',
}
MEMBER_PROPERTIES: dict[str, Any] = {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"},
    "labels": LABELS,
    "slots": OWN_SLOTS,
    "external_id": {
        "type": "string",
        "maxLength": 255,
        "description": "What it is outside, an ARN for example.",
    },
    "ports": PORTS,
    "foreign": {
        "type": "array",
        "items": {"type": "integer", "minimum": 1, "maximum": 65535},
        "description": "Numbers that others have.",
    },
}
DECLARED_MEMBER: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": MEMBER_PROPERTIES,
}
REASON_PROPERTY: dict[str, Any] = {"type": "string", "maxLength": LONGEST_REASON}
MEMBERS_BODY: dict[str, Any] = {
    "oneOf": [
        {**DECLARED_MEMBER, "properties": MEMBER_PROPERTIES | {"reason": REASON_PROPERTY}},
        {
            "type": "object",
            "required": ["members"],
            "additionalProperties": False,
            "properties": {
                "members": {"type": "array", "items": DECLARED_MEMBER, "minItems": 1},
                "reason": REASON_PROPERTY,
            },
        },
    ]
}


def as_nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "oneOf" in schema:
        return schema | {"oneOf": [schema["oneOf"][0] | {"nullable": True}, *schema["oneOf"][1:]]}
    return schema | {"nullable": True}


MEMBER_CHANGES: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        name: as_nullable(schema) for name, schema in MEMBER_PROPERTIES.items() if name != "name"
    }
    | {"reason": REASON_PROPERTY},
    "description": "What is left out stays; null goes back to what the pool says.",
}
