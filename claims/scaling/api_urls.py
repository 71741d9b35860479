"""REST about scaling, under /api/v1/."""

from django.urls import path

import pools.converters  # noqa: F401  (registers them)
from claims.api import scaling

urlpatterns = [
    path("pools/<name:pool_name>/scaling/", scaling.ScalingDetail.as_view(), name="api-scaling"),
    path("pools/<name:pool_name>/scaling/pin/", scaling.ScalingPin.as_view(), name="api-scaling-pin"),
    path("pools/<name:pool_name>/scaling/unpin/", scaling.ScalingUnpin.as_view(), name="api-scaling-unpin"),
    path("pools/<name:pool_name>/scaling/pause/", scaling.ScalingPause.as_view(), name="api-scaling-pause"),
    path("pools/<name:pool_name>/scaling/resume/", scaling.ScalingResume.as_view(), name="api-scaling-resume"),
    path("pools/<name:pool_name>/scaling/grow/", scaling.ScalingGrow.as_view(), name="api-scaling-grow"),
    path("pools/<name:pool_name>/scaling/unfreeze/", scaling.ScalingUnfreeze.as_view(), name="api-scaling-unfreeze"),
    path("pools/<name:pool_name>/scaling/refreeze/", scaling.ScalingRefreeze.as_view(), name="api-scaling-refreeze"),
    path("scaling/", scaling.ScalingAll.as_view(), name="api-scaling-all"),
    path("scaling/freezes/", scaling.ScalingFreezes.as_view(), name="api-scaling-freezes"),
    path("pools/<name:pool_name>/scaling/replay/", scaling.ScalingReplay.as_view(), name="api-scaling-replay"),
    path("pools/<name:pool_name>/scaling/roll/", scaling.ScalingRoll.as_view(), name="api-scaling-roll"),
    path("pools/<name:pool_name>/scaling/pause-roll/", scaling.ScalingRollPause.as_view(), name="api-scaling-pause-roll"),
    path("pools/<name:pool_name>/scaling/resume-roll/", scaling.ScalingRollResume.as_view(), name="api-scaling-resume-roll"),
]
