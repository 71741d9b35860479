"""Paths of members and slots under /api/v1/."""

from django.urls import path

import pools.http.converters  # noqa: F401  (registers them)
from slots.api import agents, drift, members

urlpatterns = [
    path("pools/<name:pool_name>/pause/", members.PoolPause.as_view(), name="api-pool-pause"),
    path("pools/<name:pool_name>/resume/", members.PoolResume.as_view(), name="api-pool-resume"),
    path("pools/<name:pool_name>/members/", members.MemberList.as_view(), name="api-members"),
    path("members/<id:member_id>/", members.MemberDetail.as_view(), name="api-member"),
    path(
        "members/<id:member_id>/cordon/", members.MemberCordon.as_view(), name="api-member-cordon"
    ),
    path(
        "members/<id:member_id>/uncordon/",
        members.MemberUncordon.as_view(),
        name="api-member-uncordon",
    ),
    path("members/<id:member_id>/keep/", members.MemberKeep.as_view(), name="api-member-keep"),
    path(
        "members/<id:member_id>/heartbeat/",
        members.MemberHeartbeat.as_view(),
        name="api-member-heartbeat",
    ),
    path("members/<id:member_id>/token/", agents.MemberToken.as_view(), name="api-member-token"),
    path(
        "members/<id:member_id>/rotate-token/",
        agents.MemberRotate.as_view(),
        name="api-member-rotate",
    ),
    path(
        "members/<id:member_id>/restart/", agents.MemberRestart.as_view(), name="api-member-restart"
    ),
    path("pools/<name:pool_name>/drift/", drift.PoolDrift.as_view(), name="api-pool-drift"),
    path("pools/<name:pool_name>/sweep/", drift.PoolSweep.as_view(), name="api-pool-sweep"),
    path(
        "pools/<name:pool_name>/strays/<id:stray_id>/adopt/",
        drift.StrayAdopt.as_view(),
        name="api-stray-adopt",
    ),
    path(
        "pools/<name:pool_name>/strays/<id:stray_id>/delete/",
        drift.StrayDelete.as_view(),
        name="api-stray-delete",
    ),
    path(
        "pools/<name:pool_name>/strays/<id:stray_id>/keep/",
        drift.StrayKeep.as_view(),
        name="api-stray-keep",
    ),
    path("slots/<id:slot_id>/repair/", drift.SlotRepair.as_view(), name="api-slot-repair"),
    path(
        "slots/<id:slot_id>/quarantine/", drift.SlotQuarantine.as_view(), name="api-slot-quarantine"
    ),
    path(
        "slots/<id:slot_id>/end-quarantine/",
        drift.SlotEndQuarantine.as_view(),
        name="api-slot-end-quarantine",
    ),
    path("slots/", members.SlotList.as_view(), name="api-slots"),
    path("slots/<id:slot_id>/held-by/", members.SlotHeldBy.as_view(), name="api-slot-held-by"),
]
