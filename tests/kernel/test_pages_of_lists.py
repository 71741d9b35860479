"""Lists over the API: pages that stay in place, parameters that somebody reads, keys and validators."""

import base64
import json
from typing import Any

import pytest
from django.test import Client, RequestFactory
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from project.kernel.api import CursorPages, body_digest, check_query, etag_of, read_idempotency_key
from project.kernel.errors import Invalid
from project.kernel.events import record
from project.kernel.models import Event


class Listing(APIView):
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    def get(self, request: Request) -> Response:
        check_query(request, {"pool", "state"})
        pages = CursorPages()
        rows = pages.paginate_queryset(Event.objects.order_by("-id"), request, self)
        return pages.get_paginated_response([row.verb for row in rows or []])


urlpatterns = [path("api/v1/list/", Listing.as_view())]
pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


def cursor(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def refused(answer: Any) -> list[str]:
    assert answer.status_code == 400, answer.content
    return [e["field"] for e in json.loads(answer.content)["errors"]]


def test_pages_meet_although_rows_come(client: Client):
    for n in range(5):
        record(f"v{n}")
    first = client.get("/api/v1/list/?limit=2").json()
    record("new")
    second = client.get(first["next"]).json()
    assert (first["results"], second["results"]) == (["v4", "v3"], ["v2", "v1"])
    assert client.get(second["previous"]).json()["results"] == ["v4", "v3"]


@pytest.mark.parametrize("limit", ["0", "-1", "501", "x", "", "1.5", "²", "9" * 40, "\x00"])
def test_a_limit_that_is_none_is_refused(client, limit):
    assert "limit" in refused(client.get("/api/v1/list/", {"limit": limit}))


@pytest.mark.parametrize("given", ["x", cursor("p=abc"), cursor("p=-1"), cursor("o=x"), cursor(f"p={1 << 63}"), cursor("p=1\x00"), "é"])
def test_a_cursor_that_was_not_given_out_is_refused(client, given):
    assert refused(client.get("/api/v1/list/", {"cursor": given})) == ["cursor"]


def test_a_parameter_nobody_reads_is_refused(client):
    answer = client.get("/api/v1/list/?stat=idle&zzz=1")
    assert refused(answer) == ["stat", "zzz"]
    assert json.loads(answer.content)["errors"][0]["way_out"] == "Did you mean state?"


def test_a_nul_in_a_parameter_is_refused(client):
    assert refused(client.get("/api/v1/list/", {"pool": "a\x00b"})) == ["pool"]


def with_key(key: str | None) -> Request:
    return Request(RequestFactory().post("/", headers={} if key is None else {"Idempotency-Key": key}))


@pytest.mark.parametrize("key", ["a", "x" * 120, "1/2:3 4"])
def test_a_key_is_read(key):
    assert read_idempotency_key(with_key(key)) == key


def test_no_key_is_none():
    assert read_idempotency_key(with_key(None)) is None


@pytest.mark.parametrize("key", ["", "x" * 121, "ü", "a\tb"])
def test_a_key_that_is_none_is_refused(key):
    with pytest.raises(Invalid) as caught:
        read_idempotency_key(with_key(key))
    assert caught.value.fields[0].field == "Idempotency-Key"


def test_equal_bodies_have_equal_digests_whatever_their_order():
    assert body_digest({"a": 1, "b": [1, 2]}) == body_digest({"b": [1, 2], "a": 1})
    assert body_digest({"a": 1}) != body_digest({"a": "1"})
    assert body_digest({"a": [1, 2]}) != body_digest({"a": [2, 1]})


def test_a_validator_changes_with_any_of_its_parts():
    assert etag_of(1, "a") == etag_of(1, "a")
    assert len({etag_of(1, "a"), etag_of(2, "a"), etag_of(1, "b"), etag_of("1", "a")}) == 4
    assert etag_of(1).startswith('"')
