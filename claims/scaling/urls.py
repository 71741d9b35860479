from django.urls import path

from claims.scaling import pages

urlpatterns = [
    path("pools/<str:name>/scaling/pin/", pages.pin, name="scaling-pin"),
    path("pools/<str:name>/scaling/unpin/", pages.unpin, name="scaling-unpin"),
    path("pools/<str:name>/scaling/pause/", pages.pause, name="scaling-pause"),
    path("pools/<str:name>/scaling/resume/", pages.resume, name="scaling-resume"),
    path("pools/<str:name>/scaling/grow/", pages.grow, name="scaling-grow"),
    path("pools/<str:name>/scaling/roll/", pages.roll, name="scaling-roll"),
    path("pools/<str:name>/scaling/pause-roll/", pages.pause_roll, name="scaling-pause-roll"),
    path("pools/<str:name>/scaling/resume-roll/", pages.resume_roll, name="scaling-resume-roll"),
    path("pools/<str:name>/scaling/unfreeze/", pages.unfreeze, name="scaling-unfreeze"),
    path("pools/<str:name>/scaling/refreeze/", pages.refreeze, name="scaling-refreeze"),
]
