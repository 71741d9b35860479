"""Bodies and answers about scaling, as the schema shows them."""

from typing import Any

from rest_framework import serializers

from claims.services.overrides import MOST_AT_ONCE
from slots.api_shapes import MEMBER_STATES, NeededReasonBody, PauseBody

Shape = serializers.Serializer[Any]

VERDICTS = ("grow", "shrink", "hold", "blocked", "paused", "frozen", "failed", "rebuild", "stopped")


class PinBody(PauseBody):
    count = serializers.IntegerField(min_value=0, max_value=100_000, help_text="Members, until then.")


class GrowBody(NeededReasonBody):
    count = serializers.IntegerField(min_value=1, max_value=MOST_AT_ONCE, required=False, default=1)


class CheckAnswer(Shape):
    is_met = serializers.BooleanField()
    text = serializers.CharField()
    note = serializers.CharField(allow_blank=True)


class GaugeAnswer(Shape):
    value = serializers.FloatField()
    low = serializers.FloatField()
    high = serializers.FloatField()


class JudgedAnswer(Shape):
    id = serializers.IntegerField()
    name = serializers.CharField()
    why = serializers.CharField(allow_blank=True)


class DecisionAnswer(Shape):
    id = serializers.IntegerField(allow_null=True, help_text="null: it was not made.")
    at = serializers.DateTimeField(allow_null=True)
    last_at = serializers.DateTimeField(allow_null=True)
    times = serializers.IntegerField(help_text="Equal ones in a row are counted.")
    delta = serializers.IntegerField()
    words = serializers.CharField(help_text="+1, −1, hold, +1 blocked.")
    verdict = serializers.CharField(help_text=", ".join(VERDICTS))
    reason = serializers.CharField()
    inputs = serializers.DictField()
    checks = CheckAnswer(many=True)
    gauge = GaugeAnswer(allow_null=True)
    chosen = JudgedAnswer(many=True)
    spared = JudgedAnswer(many=True)


class GoingAnswer(Shape):
    id = serializers.IntegerField()
    name = serializers.CharField()
    state = serializers.ChoiceField(MEMBER_STATES)
    blocked = serializers.CharField(allow_blank=True, help_text="What keeps it; empty: nothing.")
    claims = serializers.ListField(child=serializers.IntegerField())


class RollAnswer(Shape):
    policy = serializers.CharField(help_text="idle: renewed once they are; manual: once somebody says so.")
    outdated = serializers.IntegerField(help_text="Members made from another configuration than the present one.")
    is_ordered = serializers.BooleanField()
    paused_until = serializers.DateTimeField(allow_null=True)
    pause_reason = serializers.CharField(allow_blank=True)
    stopped_at = serializers.DateTimeField(allow_null=True, help_text="A new member did not become ready. Order the roll to go on.")
    stop_reason = serializers.CharField(allow_blank=True)


class OrdersAnswer(Shape):
    pin_count = serializers.IntegerField(allow_null=True)
    pin_until = serializers.DateTimeField(allow_null=True)
    pin_reason = serializers.CharField(allow_blank=True)
    paused_until = serializers.DateTimeField(allow_null=True)
    pause_reason = serializers.CharField(allow_blank=True)
    frozen_until = serializers.DateTimeField(allow_null=True)
    freeze_reason = serializers.CharField(allow_blank=True)
    unfrozen_until = serializers.DateTimeField(allow_null=True)
    roll = RollAnswer()


class ScalingAnswer(Shape):
    pool = serializers.CharField()
    policy = serializers.DictField(allow_null=True, help_text="As its configuration says it; null: members come and go by hand.")
    min = serializers.IntegerField(help_text="At this moment: a schedule may say otherwise than the pool.")
    max = serializers.IntegerField()
    window = serializers.CharField(allow_blank=True, help_text="Of the schedule, if one is open.")
    orders = OrdersAnswer()
    now = DecisionAnswer(allow_null=True, help_text="What would be decided now. Nothing is changed by asking.")
    next_to_go = GoingAnswer(many=True)
    decisions = DecisionAnswer(many=True)
