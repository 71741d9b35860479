from django.urls import path

from claims import scaling_pages

urlpatterns = [
    path("pools/<str:name>/scaling/pin/", scaling_pages.pin, name="scaling-pin"),
    path("pools/<str:name>/scaling/unpin/", scaling_pages.unpin, name="scaling-unpin"),
    path("pools/<str:name>/scaling/pause/", scaling_pages.pause, name="scaling-pause"),
    path("pools/<str:name>/scaling/resume/", scaling_pages.resume, name="scaling-resume"),
    path("pools/<str:name>/scaling/grow/", scaling_pages.grow, name="scaling-grow"),
    path("pools/<str:name>/scaling/roll/", scaling_pages.roll, name="scaling-roll"),
    path("pools/<str:name>/scaling/pause-roll/", scaling_pages.pause_roll, name="scaling-pause-roll"),
    path("pools/<str:name>/scaling/resume-roll/", scaling_pages.resume_roll, name="scaling-resume-roll"),
    path("pools/<str:name>/scaling/unfreeze/", scaling_pages.unfreeze, name="scaling-unfreeze"),
]
