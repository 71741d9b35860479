"""Addresses of pages that show more than one app."""

from django.urls import path

import pools.http.converters  # noqa: F401  (registers them)
from project.dashboard import (
    events,
    overview,
    pool,
    pool_ports,
    sample,
    scaling_overview,
    search,
    session,
)

urlpatterns = [
    path("", overview.show_overview, name="overview"),
    path("events/", events.show_events, name="events"),
    path("scaling/", scaling_overview.show_scaling, name="scaling"),
    path("search/", search.search, name="search"),
    path("sample/load/", sample.load, name="sample-load"),
    path("sample/remove/", sample.remove, name="sample-remove"),
    path("login/", session.sign_in, name="sign-in"),
    path("logout/", session.sign_out, name="sign-out"),
    path("pools/<str:name>/", pool.show_pool, name="pool"),
    path("pools/<str:name>/members/<id:member_id>/", pool.show_panel, name="pool-member"),
    path("pools/<str:name>/ports/<id:slot_id>/", pool_ports.show_port, name="pool-port"),
]
