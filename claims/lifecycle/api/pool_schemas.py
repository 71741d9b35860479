"""Bodies and answers of the pool calls for the OpenAPI schema. `pools.config.spec` declares the
fields of a configuration; `claims.lifecycle.api.pools` builds the answers.
"""

from typing import get_args

from rest_framework import serializers

from claims.allocation.api.schemas import Json, Shape
from pools.config.spec import FIELDS
from pools.scaling.exhaustion import Kind
from pools.states import POOL

POOL_STATES = tuple(POOL.states)
FORECAST_KINDS: tuple[str, ...] = get_args(Kind)


class SlotCountsAnswer(Shape):
    total = serializers.IntegerField()
    open = serializers.IntegerField(help_text="Free and available to new claims.")
    closed = serializers.IntegerField(help_text="Free, but the pool or member takes no claims.")
    held = serializers.IntegerField()
    reserved = serializers.IntegerField()
    draining = serializers.IntegerField()
    retired = serializers.IntegerField()


class MemberCountsAnswer(Shape):
    total = serializers.IntegerField()
    ready = serializers.IntegerField()
    cordoned = serializers.IntegerField()
    leaving = serializers.IntegerField()
    offline = serializers.IntegerField()
    creating = serializers.IntegerField()
    deleting = serializers.IntegerField()


class TroubleAnswer(Shape):
    """An error of the provider."""

    code = serializers.CharField(
        help_text=(
            "unavailable, unauthorised, misconfigured, throttled, quota, conflict, "
            "permanent, waiting, ..."
        )
    )
    detail = serializers.CharField(help_text="The fault and the way out.")
    since = serializers.DateTimeField()
    members = serializers.IntegerField(help_text="Members with the error; 0: the whole pool.")


class PoolAnswer(Shape):
    id = serializers.IntegerField()
    name = serializers.CharField()
    group = serializers.CharField(allow_blank=True)
    description = serializers.CharField(allow_blank=True)
    provider = serializers.CharField()
    state = serializers.ChoiceField(POOL_STATES)
    revision = serializers.IntegerField(help_text="Rises with each change of configuration.")
    paused_until = serializers.DateTimeField(allow_null=True)
    pause_reason = serializers.CharField(allow_blank=True)
    slots = SlotCountsAnswer()
    members = MemberCountsAnswer()
    waiting = serializers.IntegerField()
    blocked = serializers.IntegerField()
    trouble = TroubleAnswer(
        allow_null=True,
        help_text="Error of the provider; null: none. It disappears once the fault is fixed.",
    )
    created_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField()


class ForecastAnswer(Shape):
    """When the pool has no free slot left, from the samples of the last 6 hours."""

    kind = serializers.ChoiceField(
        FORECAST_KINDS,
        help_text="Only `fills` and `full` tell a time; the other kinds say why there is none.",
    )
    seconds = serializers.FloatField(allow_null=True, help_text="Until the pool is full; or null.")
    rate = serializers.FloatField(allow_null=True, help_text="Slots per hour, net; or null.")
    text = serializers.CharField(help_text='For people: "full in about 3 h 40 min".')


class PoolDetailAnswer(PoolAnswer):
    config = serializers.DictField(help_text="As in a pool file, and as PUT accepts it.")
    forecast = ForecastAnswer()


# The component derives from the fields of a pool: project/schema.py adds it.
PUT_BODY: Json = {"$ref": "#/components/schemas/PoolConfig"}
CONFIG_BODY: Json = {"allOf": [PUT_BODY], "required": ["name"]}
PATCH_BODY: Json = {
    "type": "object",
    "description": (
        "A JSON merge patch (RFC 7396) of the configuration: missing fields keep their value, "
        "null removes a field."
    ),
    "properties": {name: {} for name in FIELDS.tree},
    "additionalProperties": False,
}
