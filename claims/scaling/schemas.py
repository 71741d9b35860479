"""Bodies and answers about scaling, as the schema shows them."""

from typing import Any

from rest_framework import serializers

from claims.scaling.orders import MOST_AT_ONCE
from project.kernel.http.api_base import AwareDateTimeField, StrictSerializer
from slots.api.schemas import MEMBER_STATES, NeededReasonBody, PauseBody, ReasonBody

Shape = serializers.Serializer[Any]

VERDICTS = ("grow", "shrink", "hold", "blocked", "paused", "frozen", "failed", "rebuild", "stopped")


class PinBody(PauseBody):
    count = serializers.IntegerField(
        min_value=0, max_value=100_000, help_text="Members, until then."
    )


class GrowBody(NeededReasonBody):
    count = serializers.IntegerField(min_value=1, max_value=MOST_AT_ONCE, required=False, default=1)


class UnfreezeBody(NeededReasonBody):
    starts_at = AwareDateTimeField(
        required=False,
        allow_null=True,
        default=None,
        help_text="When the window begins; it may be to come. Left out: what is open now.",
    )


class RefreezeBody(ReasonBody):
    starts_at = AwareDateTimeField(help_text="When the window begins that is lifted.")


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


class ReplayBody(StrictSerializer):
    days = serializers.FloatField(min_value=0.01, max_value=7, required=False, default=7.0)
    scaling = serializers.JSONField(
        required=False,
        allow_null=True,
        default=None,
        help_text="Another policy, or other options of it.",
    )
    members = serializers.JSONField(
        required=False, allow_null=True, default=None, help_text="Other limits: {max: 13}."
    )


class ReplayPoint(Shape):
    at = serializers.DateTimeField()
    members = serializers.IntegerField()
    waiting = serializers.IntegerField()


class OutcomeAnswer(Shape):
    wait_half_s = serializers.FloatField()
    wait_nine_s = serializers.FloatField(help_text="Nine in ten waited no longer.")
    wait_longest_s = serializers.FloatField()
    came = serializers.IntegerField(
        help_text="Slots that were seen to be asked for, minute by minute."
    )
    still_waiting = serializers.IntegerField()
    waiting_hours = serializers.FloatField(help_text="Of all slots that were waited for.")
    member_hours = serializers.FloatField()
    created = serializers.IntegerField()
    removed = serializers.IntegerField()
    most = serializers.IntegerField()
    points = ReplayPoint(many=True)


class ReplayAnswer(Shape):
    pool = serializers.CharField()
    days = serializers.FloatField()
    minutes = serializers.IntegerField(help_text="That were recorded.")
    ready_after_s = serializers.FloatField(
        help_text="Until a new member is there, as it was lately."
    )
    was = OutcomeAnswer()
    now = OutcomeAnswer(help_text="With the configuration as it is.")
    tried = OutcomeAnswer(allow_null=True)


class FreezeAnswer(Shape):
    pool = serializers.CharField()
    window = serializers.CharField()
    zone = serializers.CharField()
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    is_lifted = serializers.BooleanField(help_text="This once.")
    lifted_by = serializers.CharField(
        allow_null=True, help_text="Of one that was named; null: it was not."
    )
    lift_reason = serializers.CharField(allow_null=True)


class FreezesAnswer(Shape):
    results = FreezeAnswer(many=True)


class RollAnswer(Shape):
    policy = serializers.CharField(
        help_text="idle: renewed once they are; manual: once somebody says so."
    )
    outdated = serializers.IntegerField(
        help_text="Members made from another configuration than the present one."
    )
    is_ordered = serializers.BooleanField()
    paused_until = serializers.DateTimeField(allow_null=True)
    pause_reason = serializers.CharField(allow_blank=True)
    stopped_at = serializers.DateTimeField(
        allow_null=True, help_text="A new member did not become ready. Order the roll to go on."
    )
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


class ScalingLine(Shape):
    pool = serializers.CharField()
    policy = serializers.CharField(allow_null=True)
    members = serializers.IntegerField()
    min = serializers.IntegerField(
        help_text="At this moment: a schedule may say otherwise than the pool."
    )
    max = serializers.IntegerField()
    window = serializers.CharField(allow_blank=True)
    verdict = serializers.CharField(
        allow_null=True, help_text="Of the last decision; null: none was made yet."
    )
    words = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField(allow_null=True)
    times = serializers.IntegerField()
    created_in_an_hour = serializers.IntegerField()
    removed_in_an_hour = serializers.IntegerField()
    needs_look = serializers.BooleanField(help_text="Its roll has stopped, or its policy failed.")
    orders = OrdersAnswer()


class ScalingLinesAnswer(Shape):
    results = ScalingLine(many=True)


class ScalingAnswer(Shape):
    pool = serializers.CharField()
    policy = serializers.DictField(
        allow_null=True,
        help_text="As its configuration says it; null: members come and go by hand.",
    )
    min = serializers.IntegerField(
        help_text="At this moment: a schedule may say otherwise than the pool."
    )
    max = serializers.IntegerField()
    window = serializers.CharField(allow_blank=True, help_text="Of the schedule, if one is open.")
    orders = OrdersAnswer()
    now = DecisionAnswer(
        allow_null=True, help_text="What would be decided now. Nothing is changed by asking."
    )
    next_to_go = GoingAnswer(many=True)
    decisions = DecisionAnswer(many=True)
