"""REST API of pools, claims, events and workspaces, under /api/v1/."""

from django.urls import path, register_converter

from claims.allocation.api import claims
from claims.lifecycle.api import actions, bulk, drain, pools
from claims.ports import api as ports_api
from claims.ports.evacuation import api as evacuation_api
from claims.tasks.agent_api import presence, tasks
from claims.tasks.api import approvals, runs, sources
from claims.tasks.states import api as states_api
from claims.timeline import api as timeline_api
from claims.workspaces.web import api as workspaces_api

# Importing the module registers its converters.
from pools.http.converters import NameConverter as NameConverter


class WorkspaceConverter:
    """A pool, a slash and the name of a workspace, which may have slashes. The name alone is an
    older form.
    """

    regex = "[A-Za-z0-9][A-Za-z0-9._/-]{0,183}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(WorkspaceConverter, "workspace")

AGENT_TASK = "agent/tasks/<id:claim_id>/<id:generation>/"

urlpatterns = [
    path("agent/orders/", presence.AgentOrders.as_view(), name="agent-orders"),
    path("agent/hello/", presence.AgentHello.as_view(), name="agent-hello"),
    path("agent/heartbeat/", presence.AgentHeartbeat.as_view(), name="agent-heartbeat"),
    path("agent/stopped/", presence.AgentStopped.as_view(), name="agent-stopped"),
    path("agent/goodbye/", presence.AgentGoodbye.as_view(), name="agent-goodbye"),
    path(AGENT_TASK, tasks.TaskDetail.as_view(), name="agent-task"),
    path(f"{AGENT_TASK}started/", tasks.TaskStarted.as_view(), name="agent-task-started"),
    path(
        f"{AGENT_TASK}interrupted/", tasks.TaskInterrupted.as_view(), name="agent-task-interrupted"
    ),
    path(f"{AGENT_TASK}log/", tasks.TaskLog.as_view(), name="agent-task-log"),
    path(f"{AGENT_TASK}plan/", tasks.TaskPlan.as_view(), name="agent-task-plan"),
    path(f"{AGENT_TASK}plan-json/", tasks.TaskPlanJson.as_view(), name="agent-task-plan-json"),
    path(f"{AGENT_TASK}state/", tasks.TaskState.as_view(), name="agent-task-state"),
    path(f"{AGENT_TASK}source/", tasks.TaskSource.as_view(), name="agent-task-source"),
    path(f"{AGENT_TASK}result/", tasks.TaskResultEndpoint.as_view(), name="agent-task-result"),
    path("pools/", pools.PoolList.as_view(), name="api-pools"),
    path("pools/<name:pool_name>/", pools.PoolDetail.as_view(), name="api-pool"),
    path("pools/<name:pool_name>/drain/", drain.PoolDrain.as_view(), name="api-pool-drain"),
    path("members/<id:member_id>/drain/", drain.MemberDrain.as_view(), name="api-member-drain"),
    path(
        "members/<id:member_id>/undrain/", drain.MemberUndrain.as_view(), name="api-member-undrain"
    ),
    path(
        "members/<id:member_id>/evacuate/",
        evacuation_api.MemberEvacuation.as_view(),
        name="api-member-evacuate",
    ),
    path(
        "members/<id:member_id>/undo-evacuation/",
        evacuation_api.MemberEvacuationUndo.as_view(),
        name="api-member-undo-evacuation",
    ),
    path(
        "members/<id:member_id>/return-claim/",
        evacuation_api.MemberClaimReturn.as_view(),
        name="api-member-return-claim",
    ),
    path("claims/", claims.ClaimList.as_view(), name="api-claims"),
    path("claims/bulk/", bulk.BulkCreate.as_view(), name="api-claims-bulk"),
    path("claims/bulk-release/", bulk.BulkRelease.as_view(), name="api-claims-bulk-release"),
    path("claims/<id:claim_id>/", claims.ClaimDetail.as_view(), name="api-claim"),
    path("claims/<id:claim_id>/release/", actions.ClaimRelease.as_view(), name="api-claim-release"),
    path("claims/<id:claim_id>/cancel/", actions.ClaimCancel.as_view(), name="api-claim-cancel"),
    path(
        "claims/<id:claim_id>/prioritise/",
        actions.ClaimPrioritise.as_view(),
        name="api-claim-prioritise",
    ),
    path("claims/<id:claim_id>/resize/", actions.ClaimResize.as_view(), name="api-claim-resize"),
    path(
        "claims/<id:claim_id>/acknowledge/",
        actions.ClaimAcknowledge.as_view(),
        name="api-claim-acknowledge",
    ),
    path("claims/<id:claim_id>/backend/", ports_api.ClaimBackend.as_view(), name="api-backend"),
    path("claims/<id:claim_id>/keep/", actions.ClaimKeep.as_view(), name="api-claim-keep"),
    path(
        "claims/<id:claim_id>/force-release/",
        actions.ClaimForceRelease.as_view(),
        name="api-claim-force-release",
    ),
    path("claims/<id:claim_id>/runs/", runs.RunList.as_view(), name="api-claim-runs"),
    path(
        "claims/<id:claim_id>/runs/<id:generation>/log/",
        runs.RunLog.as_view(),
        name="api-claim-log",
    ),
    path(
        "claims/<id:claim_id>/runs/<id:generation>/state/",
        states_api.RunState.as_view(),
        name="api-claim-state",
    ),
    path(
        "claims/<id:claim_id>/runs/<id:generation>/state/discard/",
        states_api.RunStateDiscard.as_view(),
        name="api-claim-state-discard",
    ),
    path("sources/", sources.SourceList.as_view(), name="api-sources"),
    path("events/", timeline_api.EventList.as_view(), name="api-events"),
    path("workspaces/", workspaces_api.WorkspaceList.as_view(), name="api-workspaces"),
    path(
        "claims/<id:claim_id>/approve/", approvals.ClaimApprove.as_view(), name="api-claim-approve"
    ),
    path("claims/<id:claim_id>/reject/", approvals.ClaimReject.as_view(), name="api-claim-reject"),
    path("claims/<id:claim_id>/extend/", approvals.ClaimExtend.as_view(), name="api-claim-extend"),
    path(
        "claims/<id:claim_id>/plan-again/",
        approvals.ClaimPlanAgain.as_view(),
        name="api-claim-plan-again",
    ),
    path("claims/<id:claim_id>/move/", approvals.ClaimMove.as_view(), name="api-claim-move"),
    path("claims/<id:claim_id>/plan/", approvals.ClaimPlan.as_view(), name="api-claim-plan"),
    path(
        "claims/<id:claim_id>/plan/json/",
        approvals.ClaimPlanJson.as_view(),
        name="api-claim-plan-json",
    ),
    path(
        "claims/<id:claim_id>/plan/file/",
        approvals.ClaimPlanFile.as_view(),
        name="api-claim-plan-file",
    ),
    path("approvals/", approvals.ApprovalList.as_view(), name="api-approvals"),
    path("approvals/bulk/", approvals.BulkDecide.as_view(), name="api-approvals-bulk"),
    path(
        "workspaces/<workspace:workspace>/pools/",
        workspaces_api.WorkspaceShares.as_view(),
        name="api-workspace-shares",
    ),
    path(
        "workspaces/<workspace:workspace>/pools/<name:pool_name>/",
        workspaces_api.WorkspaceShareEndpoint.as_view(),
        name="api-workspace-share",
    ),
    path(
        "workspaces/<workspace:workspace>/settle/",
        workspaces_api.WorkspaceSettle.as_view(),
        name="api-workspace-settle",
    ),
    path(
        "workspaces/<workspace:workspace>/runs/",
        workspaces_api.WorkspaceRuns.as_view(),
        name="api-workspace-runs",
    ),
    path(
        "workspaces/<workspace:workspace>/lock/",
        workspaces_api.WorkspaceLock.as_view(),
        name="api-workspace-lock",
    ),
    path(
        "workspaces/<workspace:workspace>/unlock/",
        workspaces_api.WorkspaceUnlock.as_view(),
        name="api-workspace-unlock",
    ),
    path(
        "workspaces/<workspace:workspace>/",
        workspaces_api.WorkspaceDetail.as_view(),
        name="api-workspace",
    ),
]
