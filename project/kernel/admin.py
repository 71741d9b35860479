"""Admin pages of events, operations, provider budgets, controllers, users and groups."""

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model, QuerySet
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from .actor import acting_as
from .events.log import record
from .models import Beat, Budget, Event, Operation
from .outbox.operations import acknowledge_operation, retry_operation
from .ui.admin_actions import service_action
from .ui.admin_base import ReadAdmin, as_json, link_list, shown_column

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(Event)
class EventAdmin(ReadAdmin):
    list_display = (
        "id",
        "at",
        "verb",
        "change",
        "pool_id",
        "member_id",
        "slot_id",
        "claim_id",
        "generation",
        "actor",
        "reason",
    )
    lookups = {
        "id": "pk",
        "pool": "pool_id",
        "member": "member_id",
        "slot": "slot_id",
        "claim": "claim_id",
        "verb": "verb",
        "actor": "actor",
        "generation": "generation",
    }
    bare_words = ("claim", "verb")

    @admin.display(description="before > after")
    def change(self, event: Event) -> str:
        return f"{event.before} > {event.after}" if event.before or event.after else ""


class OpenFilter(admin.SimpleListFilter):
    """Each choice matches one of the partial indexes."""

    title = "is"
    parameter_name = "is"

    def lookups(
        self, request: HttpRequest, model_admin: "admin.ModelAdmin[Operation]"
    ) -> list[tuple[str, str]]:
        return [("open", "open"), ("permanent", "open, given up"), ("done", "done")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Operation]) -> QuerySet[Operation]:
        if self.value() == "open":
            return queryset.filter(done_at__isnull=True)
        if self.value() == "permanent":
            return queryset.filter(done_at__isnull=True, error_code="permanent")
        return queryset.filter(done_at__isnull=False) if self.value() == "done" else queryset


@admin.register(Operation)
class OperationAdmin(ReadAdmin):
    list_display = (
        "id",
        "queue",
        "lane",
        "kind",
        "attempts",
        "created_at",
        "due_at",
        "done_at",
        "error_code",
        "error_start",
        "seen_by",
    )
    list_filter = (OpenFilter,)
    lookups = {
        "id": "pk",
        "lane": "lane",
        "queue": "queue",
        "kind": "kind",
        "code": "error_code",
        "member": "member_id",
        "claim": "claim_id",
    }
    bare_words = ("id", "lane")
    exclude = ("body",)
    readonly_fields = ("body_shown", "events")
    does = ("retry", "see")

    @admin.display(description="error")
    def error_start(self, operation: Operation) -> str:
        return operation.error[:80]

    body_shown = shown_column(as_json, "body")

    @admin.display(description="events")
    def events(self, operation: Operation) -> SafeString | str:
        return (
            link_list("kernel.event", "of its claim", claim_id=operation.claim_id)
            if operation.claim_id
            else "-"
        )

    @service_action(
        "Retry",
        effect=("These operations become due at once. Repeating a finished operation is harmless."),
    )
    def retry(self, operation: Operation, reason: str) -> None:
        retry_operation(operation.pk, reason)

    @service_action(
        "Take note", effect="Their permanent errors stay open, and the doctor no longer names them."
    )
    def see(self, operation: Operation, reason: str) -> None:
        acknowledge_operation(operation.pk, reason)


@admin.register(Budget)
class BudgetAdmin(ReadAdmin):
    list_display = (
        "key", "tokens", "filled_at", "spent_today", "spent_on", "throttled_today", "throttled_at",
    )  # fmt: skip
    lookups = {"key": "key"}
    bare_words = ("key",)


@admin.register(Beat)
class BeatAdmin(ReadAdmin):
    list_display = ("name", "instance", "started_at", "at", "steps", "failures", "error")
    lookups = {"name": "name"}
    bare_words = ("name",)


@admin.register(User)
# Both derive from the same class of Django.
class UserAdmin(DjangoUserAdmin, ModelAdmin):  # type: ignore[misc, type-arg]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = (
        "username",
        "first_name",
        "last_name",
        "email",
        "is_active",
        "is_superuser",
        "last_login",
    )
    list_filter = ("is_active", "is_superuser")
    show_facets = admin.ShowFacets.NEVER
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
        # Berth ignores Django's own permissions: roles are grants, and a superuser is admin
        # everywhere.
        ("May", {"fields": ("is_active", "is_superuser", "groups")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    readonly_fields = ("last_login", "date_joined")
    filter_horizontal = ("groups",)

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> tuple[str, ...]:
        """Claims, approvals and events identify users by username, so usernames never change."""
        return self.readonly_fields if obj is None else (*self.readonly_fields, "username")

    def save_model(self, request: HttpRequest, obj: Model, form: Form, change: bool) -> None:
        super().save_model(request, obj, form, change)
        assert isinstance(obj, User)
        record_user_change(request, obj)

    def user_change_password(
        self, request: HttpRequest, id: str, form_url: str = ""
    ) -> HttpResponse:
        response = super().user_change_password(request, id, form_url)
        if (
            request.method == "POST"
            and response.status_code == 302
            and (user := self.get_object(request, unquote(id))) is not None
        ):
            record_user_change(request, user)
        return response

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Events name users. Deactivating a user ends the sessions and tokens of that user."""
        return False


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):  # type: ignore[misc]
    fields = ("name",)
    filter_horizontal = ()

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Deleting a group would remove its grants without events. Revoke the grants or remove the
        users instead.
        """
        return False


def record_user_change(request: HttpRequest, user: User) -> None:
    """Records the change. Open sockets of the user then check their permissions again."""
    with acting_as(request.user.get_username()):
        record(
            "change_user",
            data={"user_id": user.pk, "user": user.get_username(), "is_active": user.is_active},
        )
