"""Admin pages of pools and claims. All changes go through the services that API and pages call."""

from datetime import timedelta

from django.contrib import admin
from django.utils import timezone
from django.utils.safestring import SafeString

from claims.lifecycle.cancel import cancel_claim, force_release
from claims.lifecycle.pool_deletion import delete_pool
from claims.lifecycle.update import prioritise_claim
from claims.models import (
    Approval,
    BackendConflict,
    BackendTarget,
    Claim,
    ClaimPart,
    ClaimSet,
    Lease,
    Lift,
    Plan,
    RescuedState,
    Shape,
    Source,
    Task,
    Workspace,
    WorkspaceShare,
)
from pools.admin import PoolFilter
from pools.models import Pool
from project.kernel.admin import EventAdmin
from project.kernel.models import Event
from project.kernel.ui.admin_actions import Number, service_action
from project.kernel.ui.admin_base import (
    ReadAdmin,
    as_hex,
    as_json,
    lines,
    link,
    link_column,
    link_list,
    links,
    read_once,
    shown_column,
)
from slots.members.services import pause_pool, resume_pool
from slots.models import Slot

MOST_SHOWN = 100  # slots of one claim


admin.site.unregister(Event)


@admin.register(Event)
class LinkedEventAdmin(EventAdmin):
    """Events with links to pools, members, slots and claims, which the kernel does not know."""

    list_display = (
        "id",
        "at",
        "verb",
        "change",
        "pool",
        "member",
        "slot",
        "claim",
        "generation",
        "actor",
        "reason",
    )
    pool = link_column("pools.pool", "pool")
    member = link_column("pools.member", "member")
    slot = link_column("slots.slot", "slot")
    claim = link_column("claims.claim", "claim")


@admin.register(Pool)
class PoolAdmin(ReadAdmin):
    list_display = (
        "id",
        "name",
        "state",
        "provider",
        "placement",
        "min_members",
        "max_members",
        "revision",
        "paused_until",
        "more",
    )
    list_display_links = ("id", "name")
    list_filter = ("state", "provider")
    lookups = {"id": "pk", "name": "name", "state": "state", "provider": "provider"}
    bare_words = ("id", "name")
    exclude = ("spec",)
    readonly_fields = ("spec_shown", "more", "last_events")
    does = ("pause", "resume", "delete_cascading")

    @admin.display(description="see")
    def more(self, pool: Pool) -> SafeString | str:
        return links(
            [
                link_list("pools.member", "members", in_pool=pool.pk),
                link_list("slots.slot", "slots", in_pool=pool.pk),
                link_list("claims.claim", "claims", in_pool=pool.pk),
                link_list("kernel.event", "events", pool_id=pool.pk),
            ]
        )

    spec_shown = shown_column(as_json, "spec")

    @service_action(
        "Pause",
        effect="These pools hand out no slots until then. Claims that hold a slot keep it.",
        numbers={"minutes": Number("Minutes", 60, 1, 60 * 24 * 30)},
    )
    def pause(self, pool: Pool, reason: str, minutes: int) -> None:
        pause_pool(
            pool_id=pool.pk, until=timezone.now() + timedelta(minutes=minutes), reason=reason
        )

    @service_action("Resume", effect="These pools hand out slots again.")
    def resume(self, pool: Pool, reason: str) -> None:
        resume_pool(pool_id=pool.pk, reason=reason)

    @service_action(
        "Delete with all claims",
        effect="All their claims end now, and the pools are deleted with their members.",
        is_typed=True,
    )
    def delete_cascading(self, pool: Pool, reason: str) -> None:
        delete_pool(pool_name=pool.name, cascade=True, reason=reason)


@admin.register(Claim)
class ClaimAdmin(ReadAdmin):
    list_display = (
        "id",
        "pool_link",
        "state",
        "outcome",
        "size",
        "owner",
        "requested_by",
        "rank",
        "generation",
        "workspace",
        "created_at",
        "due_at",
    )
    list_filter = ("state", PoolFilter)
    list_select_related = ("pool", "workspace")
    raw_id_fields = ("shape",)
    lookups = {
        "id": "pk",
        "pool": "pool__name",
        "owner": "owner",
        "by": "requested_by",
        "key": "key",
        "state": "state",
        "shape": "shape_id",
        "workspace": "workspace__name",
    }
    bare_words = ("id", "owner")
    exclude = ("body_digest", "spec", "backend", "shape")
    readonly_fields = ("shape_link", "slots", "spec_shown", "backend_shown", "last_events")
    does = ("prioritise", "cancel", "force_release_claims")

    pool_link = link_column("pools.pool", "pool", shown="name")
    shape_link = link_column("claims.shape", "shape")

    @admin.display(description="slots")
    @read_once
    def slots(self, claim: Claim) -> SafeString | str:
        held = (
            Slot.objects.filter(claim_id=claim.pk)
            .select_related("member")
            .order_by("ordinal")[:MOST_SHOWN]
        )
        return lines(
            (
                slot.ordinal,
                link("slots.slot", slot.pk, f"{slot.member.name} {slot.lane} {slot.number}"),
                slot.state,
            )
            for slot in held
        )

    spec_shown = shown_column(as_json, "spec")
    backend_shown = shown_column(as_json, "backend")

    @service_action(
        "Prioritise",
        effect="These claims move in their queues, if they wait.",
        numbers={"priority": Number("Priority (higher goes first)", 50, -100, 99)},
    )
    def prioritise(self, claim: Claim, reason: str, priority: int) -> None:
        prioritise_claim(claim_id=claim.pk, priority=priority, reason=reason)

    @service_action(
        "Cancel",
        effect="These claims end without a slot. Claims that hold slots are not changed.",
    )
    def cancel(self, claim: Claim, reason: str) -> None:
        cancel_claim(claim_id=claim.pk, reason=reason)

    @service_action(
        "Force release",
        effect="These claims end now, even if their holders still use the slots.",
        is_typed=True,
    )
    def force_release_claims(self, claim: Claim, reason: str) -> None:
        force_release(claim_id=claim.pk, reason=reason)


@admin.register(Shape)
class ShapeAdmin(ReadAdmin):
    list_display = ("id", "pools", "kind", "lanes", "size", "is_simple", "tried_at", "more")
    list_filter = ("is_simple",)
    lookups = {"id": "pk", "kind": "kind"}
    exclude = ("digest", "terms", "wait_reason")
    readonly_fields = ("digest_shown", "terms_shown", "wait_reason_shown", "more")
    digest_shown = shown_column(as_hex, "digest")
    terms_shown = shown_column(as_json, "terms")
    wait_reason_shown = shown_column(as_json, "wait_reason")

    @admin.display(description="see")
    def more(self, shape: Shape) -> SafeString:
        return link_list(
            "claims.claim", "waiting", shape__id__exact=shape.pk, state__exact="waiting"
        )


@admin.register(Workspace)
class WorkspaceAdmin(ReadAdmin):
    list_display = ("id", "pool", "name", "locked_at", "locked_by", "lock_reason", "more")
    list_display_links = ("id", "name")
    list_filter = (("locked_at", admin.EmptyFieldListFilter), PoolFilter)
    list_select_related = ("pool",)
    lookups = {"id": "pk", "name": "name", "pool": "pool__name"}
    bare_words = ("name",)

    @admin.display(description="see")
    def more(self, workspace: Workspace) -> SafeString:
        return link_list("claims.claim", "claims", workspace__id__exact=workspace.pk)


@admin.register(WorkspaceShare)
class WorkspaceShareAdmin(ReadAdmin):
    list_display = ("id", "workspace", "pool", "allowed_at", "allowed_by", "reason")
    list_filter = (("allowed_at", admin.EmptyFieldListFilter), PoolFilter)
    list_select_related = ("workspace", "pool")
    lookups = {"id": "pk", "workspace": "workspace__name", "pool": "pool__name"}
    bare_words = ("workspace",)


@admin.register(ClaimSet)
class ClaimSetAdmin(ReadAdmin):
    list_display = ("id", "name", "state", "replicas", "max_surge")
    list_filter = ("state",)
    lookups = {"id": "pk", "name": "name"}
    bare_words = ("name",)


@admin.register(Lease)
class LeaseAdmin(ReadAdmin):
    list_display = ("claim_link", "generation", "at")
    lookups = {"claim": "claim_id"}
    bare_words = ("claim",)
    claim_link = link_column("claims.claim", "claim")


@admin.register(ClaimPart)
class ClaimPartAdmin(ReadAdmin):
    list_display = ("claim_link", "index", "kind", "pools", "first", "count")
    list_filter = ("kind",)
    lookups = {"claim": "claim_id", "kind": "kind"}
    bare_words = ("claim",)
    claim_link = link_column("claims.claim", "claim")


@admin.register(BackendTarget, BackendConflict)
class BackendTargetAdmin(ReadAdmin):
    list_display = ("target", "pool", "claim_link")
    list_filter = (PoolFilter,)
    list_select_related = ("pool",)
    lookups = {"claim": "claim_id", "target": "target", "pool": "pool__name"}
    bare_words = ("target",)
    claim_link = link_column("claims.claim", "claim")


@admin.register(Lift)
class LiftAdmin(ReadAdmin):
    list_display = ("id", "pool", "starts_at", "ends_at", "by", "reason", "at")
    list_filter = (PoolFilter,)
    list_select_related = ("pool",)
    lookups = {"id": "pk", "pool": "pool__name", "by": "by"}
    bare_words = ("pool",)


@admin.register(Plan)
class PlanAdmin(ReadAdmin):
    list_display = ("id", "claim_id", "generation", "is_stale", "made_at")
    list_filter = ("is_stale",)
    raw_id_fields = ("claim",)
    lookups = {"id": "pk", "claim": "claim_id"}
    bare_words = ("claim",)
    exclude = ("digest", "summary", "facts")
    readonly_fields = ("digest_shown", "summary_shown", "facts_shown")
    digest_shown = shown_column(as_hex, "digest")
    summary_shown = shown_column(as_json, "summary")
    facts_shown = shown_column(as_json, "facts")


@admin.register(Source)
class SourceAdmin(ReadAdmin):
    list_display = ("id", "digest_shown", "size", "files", "made_by", "made_at", "used_at")
    lookups = {"id": "pk", "by": "made_by"}
    bare_words = ("by",)
    exclude = ("digest",)
    readonly_fields = ("digest_shown",)
    digest_shown = shown_column(as_hex, "digest")


@admin.register(Task)
class TaskAdmin(ReadAdmin):
    list_display = ("claim_id", "executor", "source_id")
    list_filter = ("executor",)
    raw_id_fields = ("claim", "source")
    lookups = {"claim": "claim_id"}
    bare_words = ("claim",)
    exclude = ("body", "sealed")
    readonly_fields = ("body_shown",)
    body_shown = shown_column(as_json, "body")


@admin.register(RescuedState)
class RescuedStateAdmin(ReadAdmin):
    list_display = (
        "id",
        "claim_id",
        "generation",
        "workspace",
        "member",
        "size",
        "noted_at",
        "kept_at",
        "settled_at",
        "settled_by",
    )
    list_filter = (("settled_at", admin.EmptyFieldListFilter),)
    list_select_related = ("workspace",)
    raw_id_fields = ("workspace",)
    lookups = {"id": "pk", "claim": "claim_id", "member": "member_id"}
    bare_words = ("claim",)
    # Approvers download the state on the page of the claim, which records the download.
    exclude = ("digest", "file")
    readonly_fields = ("digest_shown",)
    digest_shown = shown_column(as_hex, "digest")


@admin.register(Approval)
class ApprovalAdmin(ReadAdmin):
    list_display = ("id", "plan_id", "user_id", "by_user", "is_yes", "via", "at", "comment")
    list_filter = ("is_yes",)
    lookups = {"id": "pk", "plan": "plan_id", "by": "by_user", "claim": "plan__claim_id"}
    bare_words = ("by",)
