"""Bodies and answers about access, as the schema shows them. Answers are built by hand in
api.py; bodies are checked by these.
"""

from typing import Any

from rest_framework import serializers

from pools.access.permissions import ROLES
from pools.access.tokens import LONGEST_NAME
from project.kernel.http.api_base import AwareDateTimeField, StrictSerializer

Shape = serializers.Serializer[Any]

ROLE_NAMES = tuple(ROLES)


class MyToken(Shape):
    id = serializers.IntegerField()
    name = serializers.CharField()


class MyRoles(Shape):
    everywhere = serializers.ListField(
        child=serializers.ChoiceField(ROLE_NAMES), help_text="In all pools, those to come included."
    )
    pools = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="By the name of a pool.",
    )


class Me(Shape):
    user_id = serializers.IntegerField()
    username = serializers.CharField()
    is_superuser = serializers.BooleanField()
    token = MyToken(allow_null=True, help_text="null: this is a session.")
    roles = MyRoles()


class TokenAnswer(Shape):
    id = serializers.IntegerField()
    user = serializers.CharField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="How it begins, to tell tokens apart.")
    roles = serializers.ListField(
        child=serializers.CharField(),
        allow_null=True,
        help_text="No more than these; null: as its user.",
    )
    pools = serializers.ListField(
        child=serializers.CharField(),
        allow_null=True,
        help_text="In these pools only; null: in all.",
    )
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute.")
    revoked_at = serializers.DateTimeField(allow_null=True)


class NewTokenAnswer(TokenAnswer):
    secret = serializers.CharField(help_text="Shown this once, and kept nowhere.")


class TokenBody(StrictSerializer):
    name = serializers.CharField(
        max_length=LONGEST_NAME,
        help_text="What uses it: ci. It stands behind the user's name in events.",
    )
    roles = serializers.ListField(
        child=serializers.ChoiceField(ROLE_NAMES),
        allow_null=True,
        required=False,
        default=None,
        help_text="Left out: as its user.",
    )
    pools = serializers.ListField(
        child=serializers.CharField(max_length=63),
        allow_null=True,
        required=False,
        default=None,
        help_text="Names. Left out: in all.",
    )
    expires_at = AwareDateTimeField(
        allow_null=True, required=False, default=None, help_text="Left out: until it is revoked."
    )


class GrantAnswer(Shape):
    id = serializers.IntegerField()
    user = serializers.CharField(allow_null=True)
    group = serializers.CharField(allow_null=True)
    pool = serializers.CharField(allow_null=True, help_text="null: in all pools.")
    role = serializers.CharField()
    created_at = serializers.DateTimeField()


class GrantBody(StrictSerializer):
    role = serializers.ChoiceField(ROLE_NAMES)
    user = serializers.CharField(
        max_length=150,
        required=False,
        allow_null=True,
        default=None,
        help_text="A user's name; or name a group.",
    )
    group = serializers.CharField(max_length=150, required=False, allow_null=True, default=None)
    pool = serializers.CharField(
        max_length=63,
        required=False,
        allow_null=True,
        default=None,
        help_text="Left out: in all pools.",
    )
    reason = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")
