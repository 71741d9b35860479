from django.urls import path

import pools.http.converters  # noqa: F401  (registers them)
from slots import agent_download
from slots.pages import agent_views, port_dialogs, views

urlpatterns = [
    path("agent/berth-agent.pyz", agent_download.agent_file, name="agent-file"),
    path("members/<id:member_id>/cordon/", views.cordon, name="member-cordon"),
    path("members/<id:member_id>/uncordon/", views.uncordon, name="member-uncordon"),
    path("members/<id:member_id>/remove/", views.remove, name="member-remove"),
    path("members/<id:member_id>/keep/", views.keep, name="member-keep"),
    path("members/<id:member_id>/token/", agent_views.token, name="member-token"),
    path("members/<id:member_id>/rotate/", agent_views.rotate, name="member-rotate"),
    path("members/<id:member_id>/restart/", agent_views.restart, name="member-restart"),
    path("slots/<id:slot_id>/repair/", port_dialogs.repair, name="slot-repair"),
    path("slots/<id:slot_id>/quarantine/", port_dialogs.quarantine, name="slot-quarantine"),
    path(
        "slots/<id:slot_id>/end-quarantine/",
        port_dialogs.end_slot_quarantine,
        name="slot-end-quarantine",
    ),
    path("pools/<str:name>/strays/<id:stray_id>/adopt/", port_dialogs.adopt, name="stray-adopt"),
    path("pools/<str:name>/strays/<id:stray_id>/delete/", port_dialogs.delete, name="stray-delete"),
    path("pools/<str:name>/strays/<id:stray_id>/keep/", port_dialogs.keep, name="stray-keep"),
    path("pools/<str:name>/sweep/", port_dialogs.sweep, name="pool-sweep"),
    path("pools/<str:name>/members/add/", views.add, name="members-add"),
    path("pools/<str:name>/pause/", views.pause, name="pool-pause"),
    path("pools/<str:name>/resume/", views.resume, name="pool-resume"),
]
