"""Every refusal is a problem document with the field, the reason and the way out, never a page or
a stack trace.
"""

import json
from typing import Any

import psycopg
import pytest
from django.core import exceptions as django_errors
from django.db import DataError, IntegrityError, OperationalError, connection, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import include, path
from rest_framework import exceptions as drf
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from project.kernel import errors as berth
from project.kernel import metrics
from project.kernel.db.direct_connection import connect_direct
from project.kernel.http import problems
from project.kernel.http.api_base import (
    AwareDateTimeField,
    StrictSerializer,
    TextInput,
    check_match,
)
from project.kernel.http.problems import CONTENT_TYPE, describe

MEMBERS = {"type", "title", "status", "code", "detail", "way_out", "errors"}


def from_database(kind: type[Exception], state: str) -> Exception:
    """As Django raises it: the driver's error is its cause."""
    error = kind("words of the database")
    cause = psycopg.Error("words of the database")
    cause.sqlstate = state  # type: ignore[misc]
    error.__cause__ = cause
    return error


RAISED: dict[str, tuple[Exception, int, str]] = {
    "invalid": (
        berth.Invalid(fields=[berth.FieldError("a.b", "is wrong", "do this")]),
        400,
        "invalid",
    ),
    "refused": (berth.Refused("The policy says no."), 422, "refused"),
    "conflict": (berth.Conflict("The name is in use.", code="name_taken"), 409, "name_taken"),
    "stale": (berth.StaleGeneration("That hold is over.", generation=7), 409, "stale_generation"),
    "not found": (berth.NotFound("No such claim."), 404, "not_found"),
    "forbidden": (berth.Forbidden(role="operator"), 403, "forbidden"),
    "too many": (berth.TooMany("Slower.", retry_after=2.4), 429, "too_many"),
    "unavailable": (berth.Unavailable("Not now."), 503, "unavailable"),
    "own kind": (type("Odd", (berth.BerthError,), {"code": "odd"})("Odd."), 422, "odd"),
    "http404": (Http404(), 404, "not_found"),
    "django permission": (django_errors.PermissionDenied("no"), 403, "forbidden"),
    "django validation": (django_errors.ValidationError({"name": ["too long"]}), 400, "invalid"),
    "django validation list": (
        django_errors.ValidationError(["too long", "too short"]),
        400,
        "invalid",
    ),
    "suspicious": (django_errors.SuspiciousOperation("x"), 400, "bad_request"),
    "unknown host": (django_errors.DisallowedHost("x"), 400, "unknown_host"),
    "too big": (django_errors.RequestDataTooBig("x"), 413, "too_large"),
    "drf validation": (drf.ValidationError({"a": ["x"]}), 400, "invalid"),
    "drf not found": (drf.NotFound(), 404, "not_found"),
    "drf throttled": (drf.Throttled(wait=3.2), 429, "too_many"),
    "drf permission": (drf.PermissionDenied(), 403, "forbidden"),
    "drf parse": (drf.ParseError("bad"), 400, "unreadable"),
    "lock timeout": (from_database(OperationalError, "55P03"), 503, "busy"),
    "statement timeout": (from_database(OperationalError, "57014"), 503, "busy"),
    "deadlock": (from_database(OperationalError, "40P01"), 503, "busy"),
    "database away": (from_database(OperationalError, "57P01"), 503, "database_away"),
    "database gone": (OperationalError("could not connect"), 503, "database_away"),
    "value out of range": (from_database(DataError, "22003"), 400, "invalid"),
    "half a surrogate": (
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
        400,
        "bad_text",
    ),
    "bug": (ZeroDivisionError("secret of the code"), 500, "unexpected"),
    "broken rule": (from_database(IntegrityError, "23505"), 500, "unexpected"),
}


class Raising(APIView):
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    def get(self, request: Request, name: str) -> Response:
        raise RAISED[name][0]

    def post(self, request: Request, name: str) -> Response:
        return Response(request.data)


class Tokens(BaseAuthentication):
    def authenticate(self, request: Request) -> None:
        if request.headers.get("Authorization") == "Bearer wrong":
            raise drf.AuthenticationFailed("This token is not known.")

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class Guarded(APIView):
    authentication_classes = [Tokens]
    permission_classes = [IsAuthenticated]

    def get(self, request: Request) -> Response:
        return Response({})


class Inner(StrictSerializer):
    port = serializers.IntegerField(min_value=1, max_value=65535)


class Outer(StrictSerializer):
    name = TextInput(max_length=8)
    note = TextInput(max_length=8, allow_blank=True, default="")
    tags = serializers.ListField(child=TextInput(max_length=3), required=False)
    size = serializers.IntegerField(min_value=1)
    at = AwareDateTimeField(required=False)
    ports = Inner(many=True, required=False)
    state = serializers.CharField(read_only=True)


class Validating(APIView):
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    def post(self, request: Request) -> Response:
        given = Outer(data=request.data)
        given.is_valid(raise_exception=True)
        return Response(given.data)


class Versioned(APIView):
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    def put(self, request: Request) -> Response:
        check_match(request, '"v2"')
        return Response({})


class Locked(APIView):
    """Wants a row that another session has locked."""

    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    def get(self, request: Request) -> Response:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '50ms'")
            cursor.execute("SELECT FROM kernel_budget FOR UPDATE")
        return Response({})


def plain(request: HttpRequest, name: str) -> HttpResponse:
    raise RAISED[name][0]


urlpatterns = [
    path("api/v1/raise/<str:name>/", Raising.as_view()),
    path("api/v1/guarded/", Guarded.as_view()),
    path("api/v1/validate/", Validating.as_view()),
    path("api/v1/versioned/", Versioned.as_view()),
    path("api/v1/locked/", Locked.as_view()),
    path("api/v1/plain/<str:name>/", plain),
    path("plain/<str:name>/", plain),
    path("", include("project.kernel.urls")),
]
handler400 = problems.bad_request
handler403 = problems.permission_denied
handler404 = problems.page_not_found
handler500 = problems.server_error

pytestmark = pytest.mark.urls(__name__)


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False)


def check_problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"] == CONTENT_TYPE
    body = json.loads(answer.content)
    assert set(body) >= MEMBERS
    assert (body["status"], body["code"], body["type"]) == (
        status,
        code,
        f"urn:berth:problem:{code}",
    )
    assert body["detail"]
    for error in body["errors"]:
        assert set(error) == {"field", "message", "way_out"}
    return body


@pytest.mark.parametrize("name", sorted(RAISED))
def test_error_of_an_api_view_becomes_a_problem(client, name):
    _, status, code = RAISED[name]
    body = check_problem(client.get(f"/api/v1/raise/{name}/"), status, code)
    assert body["way_out"] or status in {409, 412, 422, 428}


@pytest.mark.parametrize(
    "name", sorted(set(RAISED) - {name for name in RAISED if name.startswith("drf")})
)
def test_error_outside_of_drf_becomes_the_same_problem(client, name):
    _, status, code = RAISED[name]
    outside = client.get(f"/api/v1/plain/{name}/")
    inside = client.get(f"/api/v1/raise/{name}/")
    body = check_problem(outside, status, code)
    same = check_problem(inside, status, code)
    # Each unexpected error has an id of its own, by which the log names it.
    assert (body.pop("id", "") != same.pop("id", "")) == (code == "unexpected")
    assert body == same
    assert outside.headers.get("Retry-After") == inside.headers.get("Retry-After")


def test_field_error_keeps_its_field_and_way_out(client):
    body = check_problem(client.get("/api/v1/raise/invalid/"), 400, "invalid")
    assert body["errors"] == [{"field": "a.b", "message": "is wrong", "way_out": "do this"}]
    assert body["detail"] == "a.b: is wrong"


def test_missing_role_is_named(client):
    body = check_problem(client.get("/api/v1/raise/forbidden/"), 403, "forbidden")
    assert body["role"] == "operator"
    assert "operator" in body["detail"]


def test_problem_carries_extra_members(client):
    assert (
        check_problem(client.get("/api/v1/raise/stale/"), 409, "stale_generation")["generation"]
        == 7
    )


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("too many", "2"), ("drf throttled", "4"), ("lock timeout", "1"), ("database away", "3")],
)
def test_temporary_refusal_has_a_retry_after_header(client, name, seconds):
    assert client.get(f"/api/v1/raise/{name}/")["Retry-After"] == seconds


def test_unexpected_error_is_logged_under_its_reported_id(client, caplog):
    body = check_problem(client.get("/api/v1/raise/bug/"), 500, "unexpected")
    assert body["id"] in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert "secret of the code" not in json.dumps(body)


def test_broken_database_rule_is_counted(client):
    before = metrics.BROKEN_RULES.labels("23505")._value.get()
    client.get("/api/v1/raise/broken rule/")
    assert metrics.BROKEN_RULES.labels("23505")._value.get() == before + 1


def test_missing_token_is_401_and_says_how_to_send_one(client):
    answer = client.get("/api/v1/guarded/")
    body = check_problem(answer, 401, "not_authenticated")
    assert answer["WWW-Authenticate"] == "Bearer"
    assert "Authorization: Bearer" in body["way_out"]


def test_wrong_token_is_401(client):
    body = check_problem(
        client.get("/api/v1/guarded/", headers={"Authorization": "Bearer wrong"}),
        401,
        "authentication_failed",
    )
    assert body["detail"] == "This token is not known."


def test_unsupported_method_is_405_and_names_the_supported_ones(client):
    answer = client.delete("/api/v1/raise/bug/")
    check_problem(answer, 405, "method_not_allowed")
    assert set(answer["Allow"].split(", ")) >= {"GET", "POST"}


def test_unknown_address_is_404(client):
    body = check_problem(client.get("/api/v1/nothing/"), 404, "not_found")
    assert "/api/docs/" in body["way_out"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_call_without_trailing_slash_is_redirected_with_308(client, method):
    """A 301 would turn the call into a GET: the client would get a list and believe that its row
    was created.
    """
    answer = client.generic(method, "/api/v1/raise/x?a=1", b"{}", content_type="application/json")
    body = check_problem(answer, 308, "slash_missing")
    assert (answer["Location"], "/api/v1/raise/x/?a=1" in body["way_out"]) == (
        "/api/v1/raise/x/?a=1",
        True,
    )


def test_client_that_follows_the_308_gets_its_answer(client):
    answer = client.post(
        "/api/v1/raise/x", '{"a": 1}', content_type="application/json", follow=True
    )
    assert (answer.status_code, answer.json()) == (200, {"a": 1})


def test_unknown_address_without_trailing_slash_is_404(client):
    check_problem(
        client.post("/api/v1/nothing", "{}", content_type="application/json"), 404, "not_found"
    )


def test_unknown_host_is_400_and_names_the_setting(client, settings):
    settings.ALLOWED_HOSTS = ["berth.example"]
    body = check_problem(
        client.get("/api/v1/raise/x/", headers={"Host": "evil.example"}), 400, "unknown_host"
    )
    assert "BERTH_HOSTS" in body["way_out"]
    page = client.get("/plain/x/", headers={"Host": "evil.example", "Accept": "text/html"})
    assert (page.status_code, b"BERTH_HOSTS" in page.content) == (400, True)


def test_compressed_body_is_415_and_says_so(client):
    send = {
        "data": b"\x1f\x8b",
        "content_type": "application/json",
        "headers": {"Content-Encoding": "gzip"},
    }
    answer = client.post("/api/v1/raise/x/", **send)
    assert "uncompressed" in check_problem(answer, 415, "encoded_body")["way_out"]
    assert answer["Accept-Encoding"] == "identity"


def test_unsupported_media_type_is_415(client):
    check_problem(
        client.post("/api/v1/raise/x/", "a=1", content_type="text/plain"),
        415,
        "unsupported_media_type",
    )


def test_unacceptable_media_type_is_406(client):
    check_problem(
        client.get("/api/v1/raise/bug/", headers={"Accept": "image/png"}), 406, "not_acceptable"
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": 1, "a": 2}', "'a' twice"),
        (b'"\\ud800"', "surrogate"),
        (b'{"a\\u0000": 1}', "NUL"),
        (b'["\\u0000"]', "NUL"),
        (b"[" * 100 + b"]" * 100, "nested deeper"),
        (b"[" * 100_000, "nested deeper than 32 levels"),
        (b"1" * 5000, "more than 20 digits"),
    ],
)
def test_malformed_json_is_refused(client, body, said):
    answer = client.generic("POST", "/api/v1/raise/x/", body, content_type="application/json")
    assert said in check_problem(answer, 400, "unreadable")["detail"]


@pytest.mark.parametrize("value", [0, "ü 🚢", [], {"a": {"b": [1.5, True, None]}}, 10**15])
def test_valid_json_values_reach_the_view(client, value):
    assert (
        client.post("/api/v1/raise/x/", json.dumps(value), content_type="application/json").json()
        == value
    )


def test_byte_order_mark_is_ignored(client):
    assert client.generic(
        "POST", "/api/v1/raise/x/", b"\xef\xbb\xbf[1]", content_type="application/json"
    ).json() == [1]


def post(client: Client, value: Any) -> Any:
    return client.post("/api/v1/validate/", json.dumps(value), content_type="application/json")


def test_five_faults_get_five_messages_at_once(client):
    answer = post(
        client,
        {
            "name": "far too long",
            "size": 0,
            "sise": 1,
            "ports": [{"port": 80}, {"port": 0, "prot": 1}],
        },
    )
    body = check_problem(answer, 400, "invalid")
    assert {e["field"] for e in body["errors"]} == {
        "name",
        "size",
        "sise",
        "ports[1].port",
        "ports[1].prot",
    }
    assert body["detail"].startswith("5 fields are wrong")


@pytest.mark.parametrize(
    ("field", "value", "wrong"),
    [
        ("name", "short    ", "name"),
        ("note", " " * 9, "note"),
        ("tags", ["abc", "a   "], "tags[1]"),
    ],
)
def test_white_space_around_a_text_counts_toward_its_limit(client, field, value, wrong):
    answer = post(client, {"name": "a", "size": 1, field: value})
    (error,) = check_problem(answer, 400, "invalid")["errors"]
    assert error["field"] == wrong
    assert "no more than" in error["message"]


def test_text_at_its_limit_loses_the_white_space_around_it(client):
    assert post(client, {"name": " short  ", "size": 1}).json()["name"] == "short"


def test_unknown_field_is_refused_with_the_closest_known_one(client):
    (error,) = check_problem(post(client, {"name": "a", "size": 1, "prots": []}), 400, "invalid")[
        "errors"
    ]
    assert error == {
        "field": "prots",
        "message": "This field is not known.",
        "way_out": "Did you mean ports?",
    }


def test_unknown_field_without_a_close_match_lists_the_known_ones(client):
    (error,) = check_problem(post(client, {"name": "a", "size": 1, "zzz": 1}), 400, "invalid")[
        "errors"
    ]
    assert error["way_out"] == "Known: name, note, tags, size, at, ports."


def test_field_that_berth_sets_is_refused(client):
    (error,) = check_problem(
        post(client, {"name": "a", "size": 1, "state": "active"}), 400, "invalid"
    )["errors"]
    assert error["field"] == "state"
    assert "Berth sets" in error["message"]


@pytest.mark.parametrize("value", [[], "x", 3, None])
def test_body_that_is_no_object_is_refused(client, value):
    check_problem(post(client, value), 400, "invalid")


def test_time_without_offset_is_refused(client):
    (error,) = check_problem(
        post(client, {"name": "a", "size": 1, "at": "2026-03-29T14:00:00"}), 400, "invalid"
    )["errors"]
    assert (error["field"], error["message"]) == ("at", "This time has no offset.")


def test_time_with_offset_is_accepted(client):
    assert (
        post(client, {"name": "a", "size": 1, "at": "2026-03-29T14:00:00+02:00"}).json()["at"]
        == "2026-03-29T12:00:00Z"
    )


@pytest.mark.parametrize(
    ("header", "status", "code"),
    [
        (None, 428, "if_match_required"),
        ('"v1"', 412, "changed_meanwhile"),
        ("v2", 412, "changed_meanwhile"),
    ],
)
def test_change_without_the_current_etag_is_refused(client, header, status, code):
    headers = {"If-Match": header} if header else {}
    check_problem(client.put("/api/v1/versioned/", headers=headers), status, code)


@pytest.mark.parametrize("header", ['"v2"', '"v1", "v2"', "*"])
def test_change_with_the_current_etag_is_made(client, header):
    assert client.put("/api/v1/versioned/", headers={"If-Match": header}).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_locked_row_is_503_with_retry_after(client):
    connection.cursor().execute("INSERT INTO kernel_budget (key, tokens) VALUES ('x', 1)")
    with connect_direct("test") as session, session.transaction():
        session.execute("SELECT FROM kernel_budget FOR UPDATE")
        answer = client.get("/api/v1/locked/")
    check_problem(answer, 503, "busy")
    assert answer["Retry-After"] == "1"


def test_pages_get_pages_and_programs_get_problems(client):
    page = client.get("/plain/http404/", headers={"Accept": "text/html"})
    assert (page.status_code, page["Content-Type"]) == (404, "text/html; charset=utf-8")
    check_problem(
        client.get("/plain/http404/", headers={"Accept": "application/json"}), 404, "not_found"
    )


def test_csrf_failure_is_a_problem_for_programs_and_a_page_for_browsers():
    requests = RequestFactory()
    check_problem(problems.csrf_failure(requests.post("/api/v1/claims/"), "no cookie"), 403, "csrf")
    page = problems.csrf_failure(
        requests.post("/claims/", headers={"Accept": "text/html"}), "no cookie"
    )
    assert (page.status_code, page["Content-Type"]) == (403, "text/html; charset=utf-8")


def test_database_error_text_is_not_passed_on():
    body, _ = describe(from_database(OperationalError, "57P01"))
    assert "words of the database" not in json.dumps(body)
