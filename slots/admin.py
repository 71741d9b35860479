"""Admin pages of members and slots. Actions call the services; slots change only by named
statements.
"""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from pools.admin import PoolFilter
from pools.config.spec import MOST_COST
from pools.models import Member
from project.kernel.ui.admin_actions import Number, service_action
from project.kernel.ui.admin_base import (
    ReadAdmin,
    as_json,
    link,
    link_column,
    link_list,
    links,
    shown_column,
)
from slots.members.drain import drain_member, undrain_member
from slots.members.services import (
    cancel_member_removal,
    cordon_member,
    edit_member,
    remove_member,
    uncordon_member,
)
from slots.members.token_rotation import order_token
from slots.models import Slot, UnsavedState


@admin.register(Member)
class MemberAdmin(ReadAdmin):
    list_display = (
        "id",
        "pool_link",
        "name",
        "state",
        "is_cordoned",
        "is_leaving",
        "note",
        "drain_until",
        "deletion_cost",
        "incarnation",
        "restarts",
        "external_id",
        "more",
    )
    list_display_links = ("id", "name")
    list_filter = ("state", "is_cordoned", "is_leaving", PoolFilter)
    list_select_related = ("pool",)
    lookups = {
        "id": "pk",
        "pool": "pool__name",
        "name": "name",
        "outside": "external_id__startswith",
        "state": "state",
    }
    bare_words = ("id", "name")
    exclude = ("token_hash", "previous_token_hash", "labels", "spec")
    readonly_fields = ("labels_shown", "spec_shown", "more", "last_events")
    does = ("cordon", "uncordon", "drain", "undrain", "leave", "keep", "rotate", "cost")

    pool_link = link_column("pools.pool", "pool", shown="name")

    @admin.display(description="see")
    def more(self, member: Member) -> SafeString | str:
        return links(
            [
                link_list("slots.slot", "slots", member__id__exact=member.pk),
                link_list("kernel.event", "events", member_id=member.pk),
            ]
        )

    labels_shown = shown_column(as_json, "labels")
    spec_shown = shown_column(as_json, "spec")

    @service_action("Cordon", effect="These members take no new claims; holders keep their slots.")
    def cordon(self, member: Member, reason: str) -> None:
        cordon_member(member_id=member.pk, reason=reason)

    @service_action("Uncordon", effect="These members take claims again, if their pool does.")
    def uncordon(self, member: Member, reason: str) -> None:
        uncordon_member(member_id=member.pk, reason=reason)

    @service_action(
        "Drain",
        effect=(
            "These members take no new claims. After drain.limit of their pool, remaining claims "
            "are evicted, and the members are removed."
        ),
        is_typed=True,
    )
    def drain(self, member: Member, reason: str) -> None:
        drain_member(member_id=member.pk, reason=reason)

    @service_action(
        "Undrain",
        effect="Cancels the drain of members that are still there. Evicted claims stay evicted.",
    )
    def undrain(self, member: Member, reason: str) -> None:
        undrain_member(member_id=member.pk, reason=reason)

    @service_action(
        "Rotate token",
        effect=(
            "Their agents get a new token while they work; the previous token stays valid until "
            "the new one is used, and for at least an hour."
        ),
    )
    def rotate(self, member: Member, reason: str) -> None:
        order_token(member_id=member.pk, reason=reason)

    @service_action(
        "Remove when empty",
        effect="These members take no new claims and are removed once they are empty.",
        is_typed=True,
    )
    def leave(self, member: Member, reason: str) -> None:
        remove_member(member_id=member.pk, reason=reason)

    @service_action(
        "Set deletion cost",
        effect="Among equal idle members, scaling removes those with the lowest cost first.",
        numbers={"deletion_cost": Number("Deletion cost", 0, -MOST_COST, MOST_COST)},
    )
    def cost(self, member: Member, reason: str, deletion_cost: int) -> None:
        edit_member(member_id=member.pk, reason=reason, deletion_cost=deletion_cost)

    @service_action("Keep", effect="Cancels the removal of members that are still there.")
    def keep(self, member: Member, reason: str) -> None:
        cancel_member_removal(member_id=member.pk, reason=reason)


class HeldFilter(admin.SimpleListFilter):
    title = "holder"
    parameter_name = "holder"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [("some", "held by a claim"), ("none", "free of claims")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Slot]) -> QuerySet[Slot]:
        return (
            queryset.filter(claim_id__isnull=self.value() == "none") if self.value() else queryset
        )


@admin.register(Slot)
class SlotAdmin(ReadAdmin):
    list_display = (
        "id",
        "pool_link",
        "member_link",
        "lane",
        "number",
        "state",
        "is_open",
        "claim",
        "generation",
        "drain_until",
        "changed_at",
    )
    list_filter = ("state", "is_open", HeldFilter, PoolFilter)
    list_select_related = ("pool", "member")
    lookups = {
        "id": "pk",
        "pool": "pool__name",
        "member": "member__name",
        "claim": "claim_id",
        "number": "number",
        "lane": "lane",
    }
    bare_words = ("id",)
    exclude = ("observed",)
    readonly_fields = ("claim", "observed_shown", "last_events")

    pool_link = link_column("pools.pool", "pool", shown="name")
    member_link = link_column("pools.member", "member", shown="name")

    @admin.display(description="held by")
    def claim(self, slot: Slot) -> SafeString | str:
        return link("claims.claim", slot.claim_id)

    observed_shown = shown_column(as_json, "observed")


@admin.register(UnsavedState)
class UnsavedStateAdmin(ReadAdmin):
    list_display = ("id", "member_id", "claim_id", "generation", "noted_at")
    lookups = {"id": "pk", "claim": "claim_id", "member": "member_id"}
    bare_words = ("claim",)
