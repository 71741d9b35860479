"""The event log as the schema shows it."""

from typing import Any

from rest_framework import serializers

Shape = serializers.Serializer[Any]


class EventAnswer(Shape):
    position = serializers.CharField(
        help_text="Where it stands in the log; `after` reads on from there."
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
    # The metaclass takes the name away.
    data = serializers.JSONField(allow_null=True)  # type: ignore[assignment]


class EventPage(Shape):
    results = EventAnswer(many=True)
    next = serializers.CharField(
        allow_null=True,
        help_text="Older ones; null: there are none. With `after`: the ones that follow.",
    )
    position = serializers.CharField(help_text="To follow the log from here: send it as `after`.")
