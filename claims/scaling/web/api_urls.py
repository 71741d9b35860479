"""REST about scaling, under /api/v1/."""

from django.urls import path

import pools.http.converters  # noqa: F401  (registers them)
from claims.scaling.web import api

urlpatterns = [
    path("pools/<name:pool_name>/scaling/", api.ScalingDetail.as_view(), name="api-scaling"),
    path("pools/<name:pool_name>/scaling/pin/", api.ScalingPin.as_view(), name="api-scaling-pin"),
    path(
        "pools/<name:pool_name>/scaling/unpin/",
        api.ScalingUnpin.as_view(),
        name="api-scaling-unpin",
    ),
    path(
        "pools/<name:pool_name>/scaling/pause/",
        api.ScalingPause.as_view(),
        name="api-scaling-pause",
    ),
    path(
        "pools/<name:pool_name>/scaling/resume/",
        api.ScalingResume.as_view(),
        name="api-scaling-resume",
    ),
    path(
        "pools/<name:pool_name>/scaling/grow/", api.ScalingGrow.as_view(), name="api-scaling-grow"
    ),
    path(
        "pools/<name:pool_name>/scaling/unfreeze/",
        api.ScalingUnfreeze.as_view(),
        name="api-scaling-unfreeze",
    ),
    path(
        "pools/<name:pool_name>/scaling/refreeze/",
        api.ScalingRefreeze.as_view(),
        name="api-scaling-refreeze",
    ),
    path("scaling/", api.ScalingAll.as_view(), name="api-scaling-all"),
    path("scaling/freezes/", api.ScalingFreezes.as_view(), name="api-scaling-freezes"),
    path(
        "pools/<name:pool_name>/scaling/replay/",
        api.ScalingReplay.as_view(),
        name="api-scaling-replay",
    ),
    path(
        "pools/<name:pool_name>/scaling/roll/", api.ScalingRoll.as_view(), name="api-scaling-roll"
    ),
    path(
        "pools/<name:pool_name>/scaling/pause-roll/",
        api.ScalingRollPause.as_view(),
        name="api-scaling-pause-roll",
    ),
    path(
        "pools/<name:pool_name>/scaling/resume-roll/",
        api.ScalingRollResume.as_view(),
        name="api-scaling-resume-roll",
    ),
]
