"""Bodies and answers of the scaling calls for the OpenAPI schema."""

from typing import Any

from rest_framework import serializers

from claims.scaling.orders import MOST_AT_ONCE
from project.kernel.http.api_base import AwareDateTimeField, StrictSerializer
from slots.api.schemas import MEMBER_STATES, NeededReasonBody, PauseBody, ReasonBody

Shape = serializers.Serializer[Any]

VERDICTS = ("grow", "shrink", "hold", "blocked", "paused", "frozen", "failed", "rebuild", "stopped")


class PinBody(PauseBody):
    count = serializers.IntegerField(
        min_value=0, max_value=100_000, help_text="Number of members until then."
    )


class GrowBody(NeededReasonBody):
    count = serializers.IntegerField(min_value=1, max_value=MOST_AT_ONCE, required=False, default=1)


class UnfreezeBody(NeededReasonBody):
    starts_at = AwareDateTimeField(
        required=False,
        allow_null=True,
        default=None,
        help_text="Start of the freeze window, open or future. Default: the open window.",
    )


class RefreezeBody(ReasonBody):
    starts_at = AwareDateTimeField(help_text="Start of the lifted freeze window.")


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
    id = serializers.IntegerField(allow_null=True, help_text="null: a dry run.")
    at = serializers.DateTimeField(allow_null=True)
    last_at = serializers.DateTimeField(allow_null=True)
    times = serializers.IntegerField(help_text="Number of equal decisions in a row.")
    delta = serializers.IntegerField()
    words = serializers.CharField(help_text="Such as +1, −1, no change, +1 delayed, +1 blocked.")
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
    blocked = serializers.CharField(
        allow_blank=True, help_text="Why it cannot be removed now; empty: it can."
    )
    claims = serializers.ListField(child=serializers.IntegerField())


class ReplayBody(StrictSerializer):
    days = serializers.FloatField(min_value=0.01, max_value=7, required=False, default=7.0)
    scaling = serializers.JSONField(
        required=False,
        allow_null=True,
        default=None,
        help_text="Another policy, or other options of the present policy.",
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
    wait_nine_s = serializers.FloatField(
        help_text="90 % of the slots were waited for no longer than this."
    )
    wait_longest_s = serializers.FloatField()
    came = serializers.IntegerField(
        help_text="Slots that claims requested, seen in samples by minute."
    )
    still_waiting = serializers.IntegerField()
    waiting_hours = serializers.FloatField(help_text="Sum over all slots that were waited for.")
    member_hours = serializers.FloatField()
    created = serializers.IntegerField()
    removed = serializers.IntegerField()
    most = serializers.IntegerField()
    points = ReplayPoint(many=True)


class ReplayAnswer(Shape):
    pool = serializers.CharField()
    days = serializers.FloatField()
    minutes = serializers.IntegerField(help_text="Recorded minutes.")
    ready_after_s = serializers.FloatField(
        help_text="Seconds until a new member is ready, from recent members."
    )
    was = OutcomeAnswer()
    now = OutcomeAnswer(help_text="With the present configuration.")
    tried = OutcomeAnswer(allow_null=True)


class FreezeAnswer(Shape):
    pool = serializers.CharField()
    window = serializers.CharField()
    zone = serializers.CharField()
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    is_lifted = serializers.BooleanField(help_text="This occurrence is lifted; later ones are not.")
    lifted_by = serializers.CharField(
        allow_null=True, help_text="null: not lifted, or lifted while it was open."
    )
    lift_reason = serializers.CharField(allow_null=True)


class FreezesAnswer(Shape):
    results = FreezeAnswer(many=True)


class RollAnswer(Shape):
    policy = serializers.CharField(
        help_text="idle: members are renewed once idle; manual: only on an operator's order."
    )
    outdated = serializers.IntegerField(help_text="Members made from an older configuration.")
    is_ordered = serializers.BooleanField()
    paused_until = serializers.DateTimeField(allow_null=True)
    pause_reason = serializers.CharField(allow_blank=True)
    stopped_at = serializers.DateTimeField(
        allow_null=True, help_text="A new member was not ready in time. Order the roll to continue."
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
    min = serializers.IntegerField(help_text="Now; a schedule may change it.")
    max = serializers.IntegerField()
    window = serializers.CharField(allow_blank=True)
    verdict = serializers.CharField(
        allow_null=True, help_text="Verdict of the last decision; null: no decision yet."
    )
    words = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField(allow_null=True)
    times = serializers.IntegerField()
    created_in_an_hour = serializers.IntegerField()
    removed_in_an_hour = serializers.IntegerField()
    needs_look = serializers.BooleanField(help_text="The roll has stopped, or the policy failed.")
    orders = OrdersAnswer()


class ScalingLinesAnswer(Shape):
    results = ScalingLine(many=True)


class ScalingAnswer(Shape):
    pool = serializers.CharField()
    policy = serializers.DictField(
        allow_null=True,
        help_text="As in the configuration; null: no scaling.",
    )
    min = serializers.IntegerField(help_text="Now; a schedule may change it.")
    max = serializers.IntegerField()
    window = serializers.CharField(allow_blank=True, help_text="The open window of the schedule.")
    orders = OrdersAnswer()
    now = DecisionAnswer(allow_null=True, help_text="Dry run of the next decision.")
    next_to_go = GoingAnswer(many=True)
    decisions = DecisionAnswer(many=True)
