from django.urls import path

import pools.converters  # noqa: F401  (registers them)
from claims.pages import claims, decisions, draining, inbox, plans, questions, rescued, run, tasks, workspaces

assert tasks  # registers its regions

urlpatterns = [
    path("claims/", claims.show_claims, name="claims"),
    path("claims/new/", questions.new, name="claim-new"),
    path("claims/run/", run.run, name="claim-run"),
    path("claims/release/", questions.release_many, name="claims-release"),
    path("claims/cancel/", questions.cancel_many, name="claims-cancel"),
    path("claims/prioritise/", questions.prioritise_many, name="claims-prioritise"),
    path("claims/<id:claim_id>/", claims.show_claim, name="claim"),
    path("claims/<id:claim_id>/release/", questions.release, name="claim-release"),
    path("claims/<id:claim_id>/force-release/", questions.force, name="claim-force"),
    path("claims/<id:claim_id>/cancel/", questions.cancel, name="claim-cancel"),
    path("claims/<id:claim_id>/prioritise/", questions.prioritise, name="claim-prioritise"),
    path("claims/<id:claim_id>/plan/<id:plan_id>/changes/", plans.list_changes, name="claim-plan-changes"),
    path("claims/<id:claim_id>/plan/<id:plan_id>/changes/<id:number>/", plans.show_change, name="claim-plan-change"),
    path("claims/<id:claim_id>/plan/<id:plan_id>/raw/", plans.show_raw, name="claim-plan-raw"),
    path("claims/<id:claim_id>/state/<id:generation>/", rescued.download, name="claim-state"),
    path("claims/<id:claim_id>/state/<id:generation>/discard/", rescued.discard, name="claim-state-discard"),
    path("approvals/", inbox.show_approvals, name="approvals"),
    path("claims/<id:claim_id>/approve/", decisions.approve, name="claim-approve"),
    path("claims/<id:claim_id>/reject/", decisions.reject, name="claim-reject"),
    path("claims/<id:claim_id>/extend/", decisions.extend, name="claim-extend"),
    path("claims/<id:claim_id>/plan-again/", decisions.again, name="claim-plan-again"),
    path("claims/<id:claim_id>/move/", decisions.move, name="claim-move"),
    path("approvals/approve/", decisions.approve_many, name="approvals-approve"),
    path("approvals/reject/", decisions.reject_many, name="approvals-reject"),
    path("approvals/extend/", decisions.extend_many, name="approvals-extend"),
    path("workspace/settle/<path:name>/", decisions.settle, name="workspace-settle"),
    path("approvals/<id:claim_id>/", inbox.show_peek, name="approval"),
    path("workspaces/", workspaces.show_workspaces, name="workspaces"),
    path("workspaces/<path:name>/", workspaces.show_workspace, name="workspace"),  # a name may have slashes
    path("workspace/lock/<path:name>/", workspaces.lock, name="workspace-lock"),
    path("workspace/share/<path:name>/", workspaces.share, name="workspace-share"),
    path("workspace/unshare/<path:name>/", workspaces.unshare, name="workspace-unshare"),
    path("workspace/unlock/<path:name>/", workspaces.unlock, name="workspace-unlock"),
    path("slots/<id:slot_id>/claim/", questions.claim_slot, name="slot-claim"),
    path("members/<id:member_id>/drain/", draining.drain, name="member-drain"),
    path("members/<id:member_id>/force-drain/", draining.force, name="member-force-drain"),
    path("members/<id:member_id>/undrain/", draining.undrain, name="member-undrain"),
    path("pools/<str:name>/drain/", draining.drain_several, name="members-drain"),
    path("pools/<str:name>/delete/", questions.delete, name="pool-delete"),
]
