"""API latency metrics for Prometheus."""

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path

from project.kernel.metrics import HTTP_SECONDS


def teapot(request: HttpRequest, name: str) -> HttpResponse:
    return HttpResponse(status=418)


urlpatterns = [
    path("t/<str:name>/", teapot),
    path("named/<str:name>/", teapot, name="teapot"),
    path("", include("project.kernel.urls")),
]
pytestmark = pytest.mark.urls(__name__)


def count(view: str, status: str) -> float:
    return sum(
        s.value
        for metric in HTTP_SECONDS.collect()
        for s in metric.samples
        if s.name.endswith("_count") and s.labels == {"view": view, "status": status}
    )


@pytest.mark.parametrize(
    ("address", "view", "status"),
    [
        ("/named/a/", "teapot", "418"),
        ("/t/a/", f"{__name__}.teapot", "418"),
        ("/named/a/?wait=30", "teapot wait", "418"),
        ("/nowhere/17/", "none", "404"),
        ("/healthz", "healthz", "200"),
    ],
)
def test_answer_is_counted_under_its_view_and_status(
    client: Client, address: str, view: str, status: str
):
    before = count(view, status)
    client.get(address)
    assert count(view, status) == before + 1


def test_addresses_do_not_become_series(client: Client):
    def count_series() -> int:
        return sum(len(metric.samples) for metric in HTTP_SECONDS.collect())

    client.get("/t/x/")
    client.get("/nowhere/x/")
    before = count_series()
    for n in range(20):
        client.get(f"/t/{n}/")
        client.get(f"/nowhere/{n}/")
    assert count_series() == before
