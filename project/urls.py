"""All addresses. Each app lists its pages in `urls` and its REST resources in `api_urls`."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularSwaggerSplitView

from project.schema import SchemaView, show_pool_schema

APPS = ["pools", "slots", "claims"]

urlpatterns = [
    # The most frequent calls come first.
    *[path("api/v1/", include(f"{app}.api_urls")) for app in reversed(APPS)],
    path("api/v1/", include("claims.scaling.web.api_urls")),
    path("", include("project.kernel.urls")),
    # For answers that name no icon.
    path("favicon.ico", RedirectView.as_view(url="/static/berth/icon.svg")),
    path("admin/", admin.site.urls),
    path("api/schema/", SchemaView.as_view(), name="schema"),
    path("api/schema/pool.json", show_pool_schema, name="pool-schema"),
    path("api/docs/", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="api-docs"),
    *[path("", include(f"{app}.urls")) for app in APPS],
    path("", include("claims.scaling.web.urls")),
    path("", include("project.dashboard.urls")),  # after the apps': /pools/new/ is no pool
]

handler400 = "project.kernel.http.problems.bad_request"
handler403 = "project.kernel.http.problems.permission_denied"
handler404 = "project.kernel.http.problems.page_not_found"
handler500 = "project.kernel.http.problems.server_error"
