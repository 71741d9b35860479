from django.urls import path

from slots import agent_file, agent_views, views

urlpatterns = [
    path("agent/berth-agent.pyz", agent_file.agent_file, name="agent-file"),
    path("members/<int:member_id>/cordon/", views.cordon, name="member-cordon"),
    path("members/<int:member_id>/uncordon/", views.uncordon, name="member-uncordon"),
    path("members/<int:member_id>/remove/", views.remove, name="member-remove"),
    path("members/<int:member_id>/keep/", views.keep, name="member-keep"),
    path("members/<int:member_id>/token/", agent_views.token, name="member-token"),
    path("members/<int:member_id>/rotate/", agent_views.rotate, name="member-rotate"),
    path("members/<int:member_id>/restart/", agent_views.restart, name="member-restart"),
    path("pools/<str:name>/members/add/", views.add, name="members-add"),
    path("pools/<str:name>/pause/", views.pause, name="pool-pause"),
    path("pools/<str:name>/resume/", views.resume, name="pool-resume"),
]
