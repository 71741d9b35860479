"""Schemas of bodies and answers about members and slots. The answers
read the attributes of rows and dataclasses.
"""

import functools
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from rest_framework import serializers

from pools.config.spec import MEMBER_FIELDS
from pools.states import MEMBER
from project.kernel.http.api_base import AwareDateTimeField, StrictSerializer, TextInput
from project.kernel.validation import LONGEST_REASON
from slots.states import SLOT

Shape = serializers.Serializer[Any]
Schema = dict[str, Any]
REASON = "Reason, recorded in the event log."

MEMBER_STATES = tuple(MEMBER.states)
SLOT_STATES = tuple(SLOT.states)
COST = MEMBER_FIELDS["deletion_cost"]
OWN_SLOTS: Schema = {
    "oneOf": [{"type": "integer", "minimum": 1}, {"type": "array", "items": {"type": "string"}}],
    "description": "Slots of this member: a number, or classes like [any, plan, plan].",
}


def show_rows(shape: type[Shape], rows: Iterable[object]) -> list[dict[str, object]]:
    """The fields of rows, for long lists. A serializer would convert each value: a list of 50
    members would take 1.5 times as long.
    """
    return [{name: read(row) for name, read in list_readers(shape)} for row in rows]


@functools.cache
def list_readers(shape: type[Shape]) -> list[tuple[str, Callable[[object], object]]]:
    return [(name, attrgetter(f.source or name)) for name, f in shape().fields.items()]


class ReasonBody(StrictSerializer):
    reason = TextInput(
        max_length=LONGEST_REASON,
        required=False,
        allow_blank=True,
        default="",
        help_text=REASON,
    )


class NeededReasonBody(StrictSerializer):
    reason = TextInput(max_length=LONGEST_REASON, help_text=REASON)


class PauseBody(NeededReasonBody):
    until = AwareDateTimeField(help_text="End of the pause, with an offset.")


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
        help_text="An older incarnation is refused. Default: the current one.",
    )
    load = serializers.DictField(
        required=False, allow_null=True, default=None, help_text="Facts to show with the member."
    )


class BeatAnswer(Shape):
    member_id = serializers.IntegerField()
    state = serializers.ChoiceField(MEMBER_STATES)
    incarnation = serializers.IntegerField()
    next_within_s = serializers.FloatField(
        source="next_within",
        allow_null=True,
        help_text="Seconds until the member goes offline; null: the pool expects no heartbeats.",
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
    pool = serializers.CharField(source="pool.name")
    name = serializers.CharField()
    state = serializers.ChoiceField(MEMBER_STATES)
    is_cordoned = serializers.BooleanField()
    is_leaving = serializers.BooleanField(help_text="The member is removed once it is empty.")
    note = serializers.CharField(
        allow_blank=True, help_text="Reason why the member is cordoned or leaves."
    )
    labels = serializers.DictField(child=serializers.CharField())
    deletion_cost = serializers.IntegerField(help_text=COST.text)
    external_id = serializers.CharField(allow_blank=True)
    addresses = serializers.ListField(
        child=serializers.CharField(), help_text="Host names and IPs that reach its ports."
    )
    outside = serializers.CharField(
        allow_blank=True, help_text="What the provider waits for, or its last error."
    )
    restarts = serializers.IntegerField(
        help_text="Restarts in a row; reset once the member has been ready for ten minutes."
    )
    gave_up_at = serializers.DateTimeField(
        allow_null=True, help_text="Time since which the member is no longer restarted."
    )
    is_outdated = serializers.BooleanField(
        help_text="Created from an older configuration of the pool; renewed once it is idle."
    )
    incarnation = serializers.IntegerField()
    own = serializers.DictField(source="spec", help_text="Configuration of this member alone.")
    drain_until = serializers.DateTimeField(
        allow_null=True, help_text="Deadline of its drain, after which its claims are evicted."
    )
    drain_by = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField()


class MemberDetailAnswer(MemberAnswer):
    heard_at = serializers.DateTimeField(
        source="heartbeat.at", allow_null=True, help_text="Time of the last heartbeat."
    )
    load = serializers.JSONField(source="heartbeat.load", allow_null=True)
    slots = MemberSlot(many=True)


class HolderAnswer(Shape):
    claim_id = serializers.IntegerField(allow_null=True)
    slot_id = serializers.IntegerField(source="id")
    lane = serializers.CharField()
    number = serializers.IntegerField()
    state = serializers.CharField()


class RemovalAnswer(Shape):
    member_id = serializers.IntegerField()
    state = serializers.ChoiceField(
        MEMBER_STATES,
        help_text="gone or deleting: the member was empty. Else it leaves after its holders.",
    )
    holders = HolderAnswer(many=True)


class SlotAnswer(Shape):
    id = serializers.IntegerField()
    pool = serializers.CharField(source="pool.name")
    member = serializers.CharField(source="member.name")
    member_id = serializers.IntegerField()
    lane = serializers.CharField()
    number = serializers.IntegerField()
    state = serializers.ChoiceField(SLOT_STATES)
    is_open = serializers.BooleanField(help_text="Whether pool and member take claims.")
    claim_id = serializers.IntegerField(allow_null=True)
    generation = serializers.IntegerField()
    last_claim_id = serializers.IntegerField(allow_null=True)
    drain_until = serializers.DateTimeField(allow_null=True)
    changed_at = serializers.DateTimeField()


class HeldByAnswer(Shape):
    slot_id = serializers.IntegerField()
    at = serializers.DateTimeField(help_text="The requested time.")
    is_known = serializers.BooleanField(help_text="Whether the log has an event before that time.")
    claim_id = serializers.IntegerField(allow_null=True, help_text="null: the slot was free.")
    generation = serializers.IntegerField(allow_null=True)
    since = serializers.DateTimeField(allow_null=True, help_text="Time of that event.")
    verb = serializers.CharField(allow_null=True)
    actor = serializers.CharField(allow_null=True)


LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
PORTS: Schema = {
    "type": "string",
    "pattern": r"^\d+-\d+$",
    "description": 'Fewer ports than the pool has, like "30000-30049".',
}
MEMBER_PROPERTIES: dict[str, Schema] = {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"},
    "labels": LABELS,
    "slots": OWN_SLOTS,
    "external_id": {
        "type": "string",
        "maxLength": 255,
        "description": "Id outside of Berth, for example an ARN.",
    },
    "deletion_cost": COST.kind.schema() | {"description": COST.help},
    "ports": PORTS,
    "foreign": {
        "type": "array",
        "items": {"type": "integer", "minimum": 1, "maximum": 65535},
        "description": "Ports that are used outside of Berth.",
    },
}
DECLARED_MEMBER: Schema = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": MEMBER_PROPERTIES,
}
REASON_PROPERTY: Schema = {"type": "string", "maxLength": LONGEST_REASON}
MEMBERS_BODY: Schema = {
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


def as_nullable(schema: Schema) -> Schema:
    if "oneOf" in schema:
        return schema | {"oneOf": [schema["oneOf"][0] | {"nullable": True}, *schema["oneOf"][1:]]}
    return schema | {"nullable": True}


MEMBER_CHANGES: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        name: as_nullable(schema) for name, schema in MEMBER_PROPERTIES.items() if name != "name"
    }
    | {"reason": REASON_PROPERTY},
    "description": "A missing field stays as it is; null takes the default or the pool's value.",
}
