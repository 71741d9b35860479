from django.urls import path

from claims import decision_pages, draining_pages, inbox, plan_pages, questions, run_page, task_pages, views, workspace_pages

assert task_pages  # registers its regions

urlpatterns = [
    path("claims/", views.show_claims, name="claims"),
    path("claims/new/", questions.new, name="claim-new"),
    path("claims/run/", run_page.run, name="claim-run"),
    path("claims/release/", questions.release_many, name="claims-release"),
    path("claims/cancel/", questions.cancel_many, name="claims-cancel"),
    path("claims/prioritise/", questions.prioritise_many, name="claims-prioritise"),
    path("claims/<int:claim_id>/", views.show_claim, name="claim"),
    path("claims/<int:claim_id>/release/", questions.release, name="claim-release"),
    path("claims/<int:claim_id>/force-release/", questions.force, name="claim-force"),
    path("claims/<int:claim_id>/cancel/", questions.cancel, name="claim-cancel"),
    path("claims/<int:claim_id>/prioritise/", questions.prioritise, name="claim-prioritise"),
    path("claims/<int:claim_id>/plan/<int:plan_id>/changes/", plan_pages.list_changes, name="claim-plan-changes"),
    path("claims/<int:claim_id>/plan/<int:plan_id>/changes/<int:number>/", plan_pages.show_change, name="claim-plan-change"),
    path("claims/<int:claim_id>/plan/<int:plan_id>/raw/", plan_pages.show_raw, name="claim-plan-raw"),
    path("approvals/", inbox.show_approvals, name="approvals"),
    path("claims/<int:claim_id>/approve/", decision_pages.approve, name="claim-approve"),
    path("claims/<int:claim_id>/reject/", decision_pages.reject, name="claim-reject"),
    path("claims/<int:claim_id>/extend/", decision_pages.extend, name="claim-extend"),
    path("claims/<int:claim_id>/plan-again/", decision_pages.again, name="claim-plan-again"),
    path("claims/<int:claim_id>/move/", decision_pages.move, name="claim-move"),
    path("approvals/approve/", decision_pages.approve_many, name="approvals-approve"),
    path("approvals/reject/", decision_pages.reject_many, name="approvals-reject"),
    path("approvals/extend/", decision_pages.extend_many, name="approvals-extend"),
    path("workspace/settle/<path:name>/", decision_pages.settle, name="workspace-settle"),
    path("approvals/<int:claim_id>/", inbox.show_peek, name="approval"),
    path("workspaces/", workspace_pages.show_workspaces, name="workspaces"),
    path("workspaces/<path:name>/", workspace_pages.show_workspace, name="workspace"),  # a name may have slashes
    path("workspace/lock/<path:name>/", workspace_pages.lock, name="workspace-lock"),
    path("workspace/unlock/<path:name>/", workspace_pages.unlock, name="workspace-unlock"),
    path("slots/<int:slot_id>/claim/", questions.claim_slot, name="slot-claim"),
    path("members/<int:member_id>/drain/", draining_pages.drain, name="member-drain"),
    path("members/<int:member_id>/force-drain/", draining_pages.force, name="member-force-drain"),
    path("members/<int:member_id>/undrain/", draining_pages.undrain, name="member-undrain"),
    path("pools/<str:name>/drain/", draining_pages.drain_several, name="members-drain"),
    path("pools/<str:name>/delete/", questions.delete, name="pool-delete"),
]
