from django.urls import path

from claims.scaling.web import freeze_dialogs, views

urlpatterns = [
    path("pools/<str:name>/scaling/pin/", views.pin, name="scaling-pin"),
    path("pools/<str:name>/scaling/unpin/", views.unpin, name="scaling-unpin"),
    path("pools/<str:name>/scaling/pause/", views.pause, name="scaling-pause"),
    path("pools/<str:name>/scaling/resume/", views.resume, name="scaling-resume"),
    path("pools/<str:name>/scaling/grow/", views.grow, name="scaling-grow"),
    path("pools/<str:name>/scaling/roll/", views.roll, name="scaling-roll"),
    path("pools/<str:name>/scaling/pause-roll/", views.pause_roll, name="scaling-pause-roll"),
    path("pools/<str:name>/scaling/resume-roll/", views.resume_roll, name="scaling-resume-roll"),
    path("pools/<str:name>/scaling/unfreeze/", freeze_dialogs.unfreeze, name="scaling-unfreeze"),
    path("pools/<str:name>/scaling/refreeze/", freeze_dialogs.refreeze, name="scaling-refreeze"),
]
