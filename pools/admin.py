"""Admin of grants, tokens, secrets and records of pools. The admin of pools is in claims/admin.py
and the admin of members in slots/admin.py, beside their services.
"""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from pools.access.permissions import ROLES
from pools.access.tokens import revoke_token
from pools.models import Decision, Grant, Heartbeat, Pool, Sample, Secret, Token
from pools.roles.services import create_grant, refuse_unprotected, revoke_grant
from project.kernel.actor import acting_as
from project.kernel.errors import Refused
from project.kernel.ui.admin_actions import service_action
from project.kernel.ui.admin_base import ReadAdmin, as_json

MOST_POOLS = 200


class PoolFilter(admin.SimpleListFilter):
    """Filter by one of the first `MOST_POOLS` pools. The search finds further pools by `pool:`."""

    title = "pool"
    parameter_name = "in_pool"
    column = "pool_id"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[Any, str]]:
        return list(
            Pool.objects.exclude(state="gone")
            .order_by("name")
            .values_list("pk", "name")[:MOST_POOLS]
        )

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        value = self.value()
        return (
            queryset.filter(**{self.column: int(value)})
            if value and value.isdecimal()
            else queryset
        )


class GrantForm(forms.ModelForm):  # type: ignore[type-arg]  # not to be subscripted at run time
    role = forms.ChoiceField(
        choices=[(role, f"{role}: {what}") for role, what in ROLES.items()],
        widget=UnfoldAdminSelectWidget,
    )
    reason = forms.CharField(max_length=500, widget=UnfoldAdminTextInputWidget)

    class Meta:
        model = Grant
        fields = ("user", "group", "pool", "role")

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if (given.get("user") is None) == (given.get("group") is None):
            raise forms.ValidationError(
                "A grant is for one user or for one group. Name exactly one of the two."
            )
        if Grant.objects.filter(
            **{name: given.get(name) for name in ("user", "group", "pool", "role")}
        ).exists():
            raise forms.ValidationError("This grant exists already. Nothing is left to do.")
        try:
            refuse_unprotected(
                given.get("role", ""), given.get("user"), given.get("group"), given.get("pool")
            )
        except Refused as error:
            raise forms.ValidationError(f"{error.detail} {error.way_out}") from error
        return given


@admin.register(Grant)
class GrantAdmin(ReadAdmin):
    """The form creates grants and the action withdraws them; a grant is never edited."""

    form = GrantForm
    list_display = ("id", "user", "group", "pool", "role", "created_at")
    list_filter = ("role", PoolFilter)
    list_select_related = ("user", "group", "pool")
    raw_id_fields = ("user", "group", "pool")
    lookups = {
        "id": "pk",
        "user": "user__username",
        "group": "group__name",
        "pool": "pool__name",
        "role": "role",
    }
    bare_words = ("user",)
    does = ("withdraw",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.admin_site.has_permission(request)

    def get_fields(self, request: HttpRequest, obj: Grant | None = None) -> tuple[str, ...]:
        return (
            ("user", "group", "pool", "role", "created_at")
            if obj
            else ("user", "group", "pool", "role", "reason")
        )

    def save_model(self, request: HttpRequest, obj: Model, form: Any, change: bool) -> None:
        given = form.cleaned_data
        with acting_as(request.user.get_username()):
            made = create_grant(
                role=given["role"],
                user=given["user"],
                group=given["group"],
                pool=given["pool"],
                reason=given["reason"],
            )
        obj.pk = made.pk

    @service_action("Withdraw", effect="These roles end at once, also for open sockets.")
    def withdraw(self, grant: Grant, reason: str) -> None:
        revoke_grant(grant.pk, reason=reason)


@admin.register(Token)
class TokenAdmin(ReadAdmin):
    list_display = (
        "id",
        "user",
        "name",
        "prefix",
        "created_at",
        "expires_at",
        "last_used_at",
        "revoked_at",
    )
    list_filter = (("revoked_at", admin.EmptyFieldListFilter),)
    list_select_related = ("user",)
    exclude = ("hash", "scopes")
    readonly_fields = ("scopes_shown",)
    lookups = {"id": "pk", "user": "user__username", "name": "name", "prefix": "prefix__startswith"}
    bare_words = ("prefix",)
    does = ("revoke",)

    @admin.display(description="scopes")
    def scopes_shown(self, token: Token) -> SafeString:
        return as_json(token.scopes)

    @service_action(
        "Revoke",
        effect="These tokens are rejected from now on, and sockets that they opened are closed.",
    )
    def revoke(self, token: Token, reason: str) -> None:
        revoke_token(token.pk, reason=reason)


@admin.register(Secret)
class SecretAdmin(ReadAdmin):
    """Shows names only; the encrypted values are never shown."""

    list_display = ("id", "pool", "name", "key_id", "changed_at")
    list_filter = (PoolFilter,)
    list_select_related = ("pool",)
    exclude = ("ciphertext",)
    lookups = {"id": "pk", "pool": "pool__name", "name": "name"}
    bare_words = ("name",)


@admin.register(Decision)
class DecisionAdmin(ReadAdmin):
    list_display = ("id", "pool", "at", "last_at", "seen_again", "delta", "reason")
    list_filter = (PoolFilter,)
    list_select_related = ("pool",)
    lookups = {"id": "pk", "pool": "pool__name"}
    bare_words = ("pool",)


@admin.register(Sample)
class SampleAdmin(ReadAdmin):
    list_display = (
        "id",
        "pool",
        "at",
        "is_hourly",
        "members",
        "slots",
        "held",
        "reserved",
        "waiting",
    )
    list_filter = ("is_hourly", PoolFilter)
    list_select_related = ("pool",)
    lookups = {"id": "pk", "pool": "pool__name"}
    bare_words = ("pool",)


@admin.register(Heartbeat)
class HeartbeatAdmin(ReadAdmin):
    list_display = ("member", "incarnation", "at", "load")
    list_select_related = ("member",)
    lookups = {"member": "member_id", "name": "member__name"}
    bare_words = ("member", "name")
