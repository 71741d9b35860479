"""Answers of the event calls for the OpenAPI schema."""

from typing import Any

from rest_framework import serializers

Shape = serializers.Serializer[Any]


class EventAnswer(Shape):
    position = serializers.CharField(
        help_text="Position in the log. Send it as `after` to read the events that follow."
    )
    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    verb = serializers.CharField()
    actor = serializers.CharField(
        help_text="ana, ana/ci (her token named ci), allocate, finalize, system."
    )
    before = serializers.CharField(allow_blank=True)
    after = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)
    pool = serializers.CharField(allow_null=True)
    pool_id = serializers.IntegerField(allow_null=True)
    member = serializers.CharField(allow_null=True)
    member_id = serializers.IntegerField(allow_null=True)
    slot_id = serializers.IntegerField(allow_null=True)
    claim_id = serializers.IntegerField(allow_null=True)
    generation = serializers.IntegerField(allow_null=True)
    # The metaclass removes the attribute, so it does not hide `Serializer.data`.
    data = serializers.JSONField(allow_null=True)  # type: ignore[assignment]


class EventPage(Shape):
    results = EventAnswer(many=True)
    next = serializers.CharField(
        allow_null=True,
        help_text="Address of the next page: older events, or newer ones with `after`; null: none.",
    )
    position = serializers.CharField(help_text="Send it as `after` to follow the log from here.")
