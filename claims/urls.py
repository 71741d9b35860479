from django.urls import path

import pools.http.converters  # noqa: F401  registers the converters
from claims.lifecycle.pages import (
    claim_dialogs,
    claim_page,
    drain_dialogs,
    new_claim_dialogs,
    pool_deletion_dialog,
)
from claims.ports import backend_dialog
from claims.ports.evacuation import dialogs as evacuation_dialogs
from claims.tasks.pages import (
    approval_dialogs,
    approval_inbox,
    bulk_approval_dialogs,
    new_run,
    plan_page,
    task_page,
)
from claims.tasks.states import views as states_views
from claims.workspaces.web import dialogs as workspaces_dialogs
from claims.workspaces.web import settle_dialog
from claims.workspaces.web import views as workspaces_views

assert task_page  # registers its regions

urlpatterns = [
    path("claims/", claim_page.show_claims, name="claims"),
    path("claims/new/", new_claim_dialogs.new, name="claim-new"),
    path("claims/run/", new_run.run, name="claim-run"),
    path("claims/release/", claim_dialogs.release_many, name="claims-release"),
    path("claims/cancel/", claim_dialogs.cancel_many, name="claims-cancel"),
    path("claims/prioritise/", claim_dialogs.prioritise_many, name="claims-prioritise"),
    path("claims/<id:claim_id>/", claim_page.show_claim, name="claim"),
    path("claims/<id:claim_id>/release/", claim_dialogs.release, name="claim-release"),
    path("claims/<id:claim_id>/force-release/", claim_dialogs.force, name="claim-force"),
    path("claims/<id:claim_id>/cancel/", claim_dialogs.cancel, name="claim-cancel"),
    path("claims/<id:claim_id>/backend/", backend_dialog.set_claim_backend, name="claim-backend"),
    path("claims/<id:claim_id>/prioritise/", claim_dialogs.prioritise, name="claim-prioritise"),
    path(
        "claims/<id:claim_id>/plan/<id:plan_id>/changes/",
        plan_page.list_changes,
        name="claim-plan-changes",
    ),
    path(
        "claims/<id:claim_id>/plan/<id:plan_id>/changes/<id:number>/",
        plan_page.show_change,
        name="claim-plan-change",
    ),
    path("claims/<id:claim_id>/plan/<id:plan_id>/raw/", plan_page.show_raw, name="claim-plan-raw"),
    path("claims/<id:claim_id>/state/<id:generation>/", states_views.download, name="claim-state"),
    path(
        "claims/<id:claim_id>/state/<id:generation>/discard/",
        states_views.discard,
        name="claim-state-discard",
    ),
    path("approvals/", approval_inbox.show_approvals, name="approvals"),
    path("claims/<id:claim_id>/approve/", approval_dialogs.approve, name="claim-approve"),
    path("claims/<id:claim_id>/reject/", approval_dialogs.reject, name="claim-reject"),
    path("claims/<id:claim_id>/extend/", approval_dialogs.extend, name="claim-extend"),
    path("claims/<id:claim_id>/plan-again/", approval_dialogs.again, name="claim-plan-again"),
    path("claims/<id:claim_id>/move/", approval_dialogs.move, name="claim-move"),
    path("approvals/approve/", bulk_approval_dialogs.approve_many, name="approvals-approve"),
    path("approvals/reject/", bulk_approval_dialogs.reject_many, name="approvals-reject"),
    path("approvals/extend/", bulk_approval_dialogs.extend_many, name="approvals-extend"),
    path("workspace/settle/<path:name>/", settle_dialog.settle, name="workspace-settle"),
    path("approvals/<id:claim_id>/", approval_inbox.show_preview, name="approval"),
    path("workspaces/", workspaces_views.show_workspaces, name="workspaces"),
    # A name may have slashes.
    path("workspaces/<path:name>/", workspaces_views.show_workspace, name="workspace"),
    path("workspace/lock/<path:name>/", workspaces_dialogs.lock, name="workspace-lock"),
    path("workspace/share/<path:name>/", workspaces_dialogs.share, name="workspace-share"),
    path("workspace/unshare/<path:name>/", workspaces_dialogs.unshare, name="workspace-unshare"),
    path("workspace/unlock/<path:name>/", workspaces_dialogs.unlock, name="workspace-unlock"),
    path("slots/<id:slot_id>/claim/", new_claim_dialogs.claim_slot, name="slot-claim"),
    path("members/<id:member_id>/drain/", drain_dialogs.drain, name="member-drain"),
    path("members/<id:member_id>/force-drain/", drain_dialogs.force, name="member-force-drain"),
    path("members/<id:member_id>/undrain/", drain_dialogs.undrain, name="member-undrain"),
    path("members/<id:member_id>/evacuate/", evacuation_dialogs.evacuate, name="member-evacuate"),
    path(
        "members/<id:member_id>/undo-evacuation/",
        evacuation_dialogs.undo,
        name="member-undo-evacuation",
    ),
    path(
        "members/<id:member_id>/return-claim/<id:claim_id>/",
        evacuation_dialogs.return_to,
        name="member-return-claim",
    ),
    path("pools/<str:name>/drain/", drain_dialogs.drain_several, name="members-drain"),
    path("pools/<str:name>/delete/", pool_deletion_dialog.delete, name="pool-delete"),
]
