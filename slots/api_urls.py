"""REST about members and slots, under /api/v1/."""

from django.urls import path

import pools.converters  # noqa: F401  (registers them)
from slots import api, api_agents

urlpatterns = [
    path("pools/<name:pool_name>/pause/", api.PoolPause.as_view(), name="api-pool-pause"),
    path("pools/<name:pool_name>/resume/", api.PoolResume.as_view(), name="api-pool-resume"),
    path("pools/<name:pool_name>/members/", api.MemberList.as_view(), name="api-members"),
    path("members/<id:member_id>/", api.MemberDetail.as_view(), name="api-member"),
    path("members/<id:member_id>/cordon/", api.MemberCordon.as_view(), name="api-member-cordon"),
    path("members/<id:member_id>/uncordon/", api.MemberUncordon.as_view(), name="api-member-uncordon"),
    path("members/<id:member_id>/keep/", api.MemberKeep.as_view(), name="api-member-keep"),
    path("members/<id:member_id>/heartbeat/", api.MemberHeartbeat.as_view(), name="api-member-heartbeat"),
    path("members/<id:member_id>/token/", api_agents.MemberToken.as_view(), name="api-member-token"),
    path("members/<id:member_id>/rotate-token/", api_agents.MemberRotate.as_view(), name="api-member-rotate"),
    path("members/<id:member_id>/restart/", api_agents.MemberRestart.as_view(), name="api-member-restart"),
    path("slots/", api.SlotList.as_view(), name="api-slots"),
    path("slots/<id:slot_id>/held-by/", api.SlotHeldBy.as_view(), name="api-slot-held-by"),
]
