"""OpenAPI schemas of the answers about runs and their logs."""

from rest_framework import serializers

Shape = serializers.Serializer[object]


class LogSize(Shape):
    next = serializers.IntegerField(help_text="Number of chunks so far.")
    bytes = serializers.IntegerField()
    lines = serializers.IntegerField()
    left_out = serializers.IntegerField(
        help_text="Bytes between head and tail that were not stored."
    )


class RescuedAnswer(Shape):
    claim = serializers.IntegerField()
    generation = serializers.IntegerField()
    member = serializers.CharField(help_text="The member whose agent rescued the state.")
    status = serializers.ChoiceField(
        ("kept", "on_agent", "lost", "settled"),
        help_text="kept: the server stores the state, encrypted. on_agent: only the agent has the "
        "state, and its member is not removed. lost: the state is gone with its agent. settled: "
        "the state was given up and deleted.",
    )
    size = serializers.IntegerField()
    digest = serializers.CharField(
        allow_blank=True, help_text="sha256; empty: the server does not have the state."
    )
    noted_at = serializers.DateTimeField()
    kept_at = serializers.DateTimeField(allow_null=True)


class RunAnswer(Shape):
    generation = serializers.IntegerField()
    step = serializers.ChoiceField(("plan", "apply"))
    member_id = serializers.IntegerField()
    member = serializers.CharField()
    place = serializers.CharField(
        allow_blank=True, help_text="Lane and number of the slot, like any-0."
    )
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    outcome = serializers.CharField(
        allow_blank=True, help_text="The outcome that the agent reported, or lost."
    )
    code = serializers.CharField(
        allow_blank=True, help_text="Error code: exit_code, timeout, source_failed, ..."
    )
    reason = serializers.CharField(allow_blank=True)
    way_out = serializers.CharField(
        allow_blank=True, help_text="Advice for the error code; empty for unknown codes."
    )
    exit_code = serializers.IntegerField(allow_null=True)
    facts = serializers.DictField(
        help_text="binary, version, platform, lock_digest, source_digest, commit."
    )
    state = RescuedAnswer(
        allow_null=True, help_text="The Terraform state that the backend did not accept."
    )
    log = LogSize()


class LogPiece(Shape):
    seq = serializers.IntegerField()
    first_line = serializers.IntegerField(
        help_text="Number of the line of the first character, from 0."
    )
    lines = serializers.IntegerField(help_text="Line breaks in the chunk.")
    left_out = serializers.IntegerField(help_text="Bytes before the chunk that were not stored.")
    text = serializers.CharField(allow_blank=True)
    at = serializers.DateTimeField()


class LogAnswer(Shape):
    chunks = LogPiece(many=True)
    next = serializers.IntegerField(
        help_text="Send this number as `after` to read the next chunks."
    )
    more = serializers.BooleanField(help_text="More chunks exist.")
    is_whole = serializers.BooleanField(
        help_text="The run has ended, and the answer holds the end of the log."
    )
    lines = serializers.IntegerField()
    bytes = serializers.IntegerField()
    left_out = serializers.IntegerField()
