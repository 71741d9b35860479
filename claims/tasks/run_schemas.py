"""Answers about runs and their logs, as the schema shows them."""

from typing import Any

from rest_framework import serializers

Shape = serializers.Serializer[Any]


class LogSize(Shape):
    next = serializers.IntegerField(help_text="Pieces so far.")
    bytes = serializers.IntegerField()
    lines = serializers.IntegerField()
    left_out = serializers.IntegerField(
        help_text="Bytes that were not kept, between its head and its tail."
    )


class RescuedAnswer(Shape):
    claim = serializers.IntegerField()
    generation = serializers.IntegerField()
    member = serializers.CharField(help_text="Whose agent rescued it.")
    status = serializers.ChoiceField(
        ("kept", "on_agent", "lost", "settled"),
        help_text="kept: the server has it, sealed. on_agent: only the agent has it, and "
        "its member is not removed. lost: gone with the agent. settled: given "
        "up, and deleted.",
    )
    size = serializers.IntegerField()
    digest = serializers.CharField(
        allow_blank=True, help_text="sha256; empty: the server does not have it."
    )
    noted_at = serializers.DateTimeField()
    kept_at = serializers.DateTimeField(allow_null=True)


class RunAnswer(Shape):
    generation = serializers.IntegerField()
    step = serializers.ChoiceField(("plan", "apply"))
    member_id = serializers.IntegerField()
    member = serializers.CharField()
    place = serializers.CharField(allow_blank=True, help_text="Lane and number of its slot: any-0.")
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    outcome = serializers.CharField(allow_blank=True, help_text="As the agent told it, or lost.")
    code = serializers.CharField(
        allow_blank=True, help_text="Why, typed: exit_code, timeout, source_failed, ..."
    )
    reason = serializers.CharField(allow_blank=True)
    way_out = serializers.CharField(
        allow_blank=True, help_text="What a person can do about it. Empty: nothing is known."
    )
    exit_code = serializers.IntegerField(allow_null=True)
    facts = serializers.DictField(
        help_text="binary, version, platform, lock_digest, source_digest, commit."
    )
    state = RescuedAnswer(
        allow_null=True, help_text="A Terraform state that the backend of this apply did not take."
    )
    log = LogSize()


class LogPiece(Shape):
    seq = serializers.IntegerField()
    first_line = serializers.IntegerField(
        help_text="Number of the line that its first character belongs to, from 0."
    )
    lines = serializers.IntegerField(help_text="Line breaks in it.")
    left_out = serializers.IntegerField(help_text="Bytes before it that were not kept.")
    text = serializers.CharField(allow_blank=True)
    at = serializers.DateTimeField()


class LogAnswer(Shape):
    chunks = LogPiece(many=True)
    next = serializers.IntegerField(
        help_text="How many pieces are known with these: send it as `after`."
    )
    more = serializers.BooleanField(help_text="There is more by now.")
    is_whole = serializers.BooleanField(help_text="The run is over and this is its end.")
    lines = serializers.IntegerField()
    bytes = serializers.IntegerField()
    left_out = serializers.IntegerField()
