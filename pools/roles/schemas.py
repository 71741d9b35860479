"""Schemas of tokens and grants, which validate bodies and build answers."""

from typing import Any

from rest_framework import serializers

from pools.access.permissions import ROLES
from pools.access.tokens import LONGEST_NAME
from project.kernel.http.api_base import AwareDateTimeField, StrictSerializer, TextInput

Shape = serializers.Serializer[Any]

ROLE_NAMES = tuple(ROLES)


class MyToken(Shape):
    id = serializers.IntegerField()
    name = serializers.CharField()


class MyRoles(Shape):
    everywhere = serializers.ListField(
        child=serializers.ChoiceField(ROLE_NAMES),
        help_text="Roles in all pools, including future ones.",
    )
    pools = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="Roles by the name of a pool.",
    )


class Me(Shape):
    user_id = serializers.IntegerField()
    username = serializers.CharField()
    is_superuser = serializers.BooleanField()
    token = MyToken(allow_null=True, help_text="null: the caller has a session.")
    roles = MyRoles()


class PoolNames(serializers.ListField):
    """The names of pools with these ids, from `names` of the context."""

    child = serializers.CharField()

    def to_representation(self, data: list[int]) -> list[str]:
        names: dict[int, str] = self.context["names"]
        return [names.get(pool, f"#{pool}") for pool in data]


class TokenAnswer(Shape):
    id = serializers.IntegerField()
    user = serializers.CharField(source="user.username")
    name = serializers.CharField()
    prefix = serializers.CharField(
        help_text="First characters of the secret, to tell tokens apart."
    )
    roles = serializers.ListField(
        child=serializers.CharField(),
        source="scopes.roles",
        allow_null=True,
        help_text="Limited to these roles; null: all roles of its user.",
    )
    pools = PoolNames(
        source="scopes.pools",
        allow_null=True,
        help_text="Limited to these pools; null: all pools.",
    )
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute.")
    revoked_at = serializers.DateTimeField(allow_null=True)


class NewTokenAnswer(TokenAnswer):
    secret = serializers.CharField(help_text="Shown only in this answer; not stored.")


class TokenBody(StrictSerializer):
    name = TextInput(
        max_length=LONGEST_NAME,
        help_text="Name of the program, such as ci. Events show it after the user's name.",
    )
    roles = serializers.ListField(
        child=serializers.ChoiceField(ROLE_NAMES),
        allow_null=True,
        default=None,
        help_text="Limits the token to these roles. Default: all roles of its user.",
    )
    pools = serializers.ListField(
        child=TextInput(max_length=63),
        allow_null=True,
        default=None,
        help_text="Limits the token to pools of these names. Default: all pools.",
    )
    expires_at = AwareDateTimeField(
        allow_null=True, default=None, help_text="Default: the token never expires."
    )


class GrantAnswer(Shape):
    id = serializers.IntegerField()
    user = serializers.CharField(source="user.username", allow_null=True)
    group = serializers.CharField(source="group.name", allow_null=True)
    pool = serializers.CharField(source="pool.name", allow_null=True, help_text="null: all pools.")
    role = serializers.CharField()
    created_at = serializers.DateTimeField()


class GrantBody(StrictSerializer):
    role = serializers.ChoiceField(ROLE_NAMES)
    user = TextInput(
        max_length=150,
        allow_null=True,
        default=None,
        help_text="Name of a user. Either `user` or `group` is required.",
    )
    group = TextInput(max_length=150, allow_null=True, default=None)
    pool = TextInput(
        max_length=63,
        allow_null=True,
        default=None,
        help_text="Default: all pools.",
    )
    reason = TextInput(max_length=500, allow_blank=True, default="")
