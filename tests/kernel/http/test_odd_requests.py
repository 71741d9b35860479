"""Malformed requests that no page of Berth sends are refused with a reason and never answered
with 500.
"""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DataError
from django.test import Client, RequestFactory
from django.urls import reverse
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect as open_socket

from claims.scaling.web.urls import urlpatterns
from pools.access.tokens import create_token
from pools.models import Pool
from pools.roles.services import create_grant
from project.kernel.http import problems
from tests.api.conftest import Callers, caller
from tests.api.helpers import make_pool
from tests.kernel.http.raw_socket import PATIENCE

__all__ = ["caller"]
LONG = "9" * 30


@pytest.fixture
def person(db: None) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("ana"))
    return client


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/pools/%00/", 404), ("/workspaces/%00/", 404), ("/search/?q=%00", 400),
        (f"/claims/{LONG}/", 404), (f"/approvals/{LONG}/", 404), (f"/pools/p/members/{LONG}/", 404),
        (f"/members/{LONG}/drain/", 404), (f"/tokens/{LONG}/revoke/", 404), ("/claims/?q=%00", 400),
        ("/events/?q=%00", 400), ("/api/v1/pools/%00/", 404), (f"/api/v1/claims/{LONG}/", 404),
    ],
)  # fmt: skip
def test_malformed_address_is_refused(path: str, status: int, person: Client) -> None:
    make_pool("p", slots=1)
    answer = person.get(path)
    assert answer.status_code in (
        status,
        200 if "?" in path and "search" not in path else status,
    ), answer.content[:500]


def test_user_name_with_a_nul_does_not_sign_in(client: Client, db: None) -> None:
    client.raise_request_exception = False
    assert client.post("/login/", {"username": "a\x00b", "password": "x"}).status_code == 422


def test_page_with_data_that_the_database_refuses_is_400(rf: RequestFactory) -> None:
    request = rf.get("/somewhere/")
    try:
        raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    except DataError:
        answer: Any = problems.server_error(request)
    assert answer.status_code == 400
    assert b"A value cannot be stored" in answer.content


def test_unexpected_error_does_not_claim_that_nothing_changed(rf: RequestFactory) -> None:
    """It may have come after a commit."""
    body, _ = problems.describe(RuntimeError("whatever"))
    assert "may or may not have been made" in body["detail"]
    try:
        raise RuntimeError("whatever")
    except RuntimeError:
        page: Any = problems.server_error(rf.get("/"))
    assert page.status_code == 500
    for text in (json.dumps(body), page.content.decode()):
        assert "Nothing was changed" not in text


def test_pinning_a_pool_without_scaling_is_refused(caller: Callers) -> None:
    make_pool("p", slots=1)
    answer = caller("superuser").post(
        "pools/p/scaling/pin/", {"count": 1, "until": "2099-01-01T00:00:00Z", "reason": "test"}
    )
    assert answer.status in (409, 422), answer.body


@pytest.mark.parametrize("name", [route.name for route in urlpatterns])
def test_scaling_orders_for_a_pool_without_scaling_are_refused_or_have_no_effect(
    name: str, person: Client
) -> None:
    pool = make_pool("p", slots=1)
    before = Pool.objects.values().get(pk=pool.pk)
    for method in (person.get, person.post):
        answer = method(reverse(name, args=["p"]))
        assert answer.status_code in (200, 409, 422), answer.content[:500]
    assert Pool.objects.values().get(pk=pool.pk) == before


def test_two_items_of_one_call_with_the_same_key_are_one_claim(caller: Callers) -> None:
    pool = make_pool("p", slots=4)
    item = {"pool": "p", "owner": "ci", "key": "build-7"}
    items = [item, item, {**item, "owner": "other"}, {"pool": "p", "owner": "ci"}]
    answer = caller("claimant", pool).post("claims/bulk/", {"claims": items})
    assert answer.status == 200, answer.body
    results = answer.body["results"]
    assert [result["status"] for result in results] == [201, 201, 409, 201]
    assert results[0]["body"]["id"] == results[1]["body"]["id"]


# -- WebSockets ------------------------------------------------------------------------------------
def make_headers(site: str) -> dict[str, str]:
    user = User.objects.create_user("ana")
    create_grant(role="viewer", user=user)
    return {"Authorization": f"Bearer {create_token(user=user, name='t')[1]}"}


@pytest.mark.parametrize("path", ["/ws/nowhere/", "/", "/ws/%00/"])
def test_websocket_to_an_unknown_address_is_404(path: str, site: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        open_socket(site.replace("http", "ws") + path)
    assert refused.value.response.status_code == 404
    assert b"/ws/live/" in (refused.value.response.body or b"")


def test_region_name_with_a_nul_is_refused(site: str) -> None:
    with open_socket(
        site.replace("http", "ws") + "/ws/live/", additional_headers=make_headers(site)
    ) as socket:
        socket.send(json.dumps({"watch": ["pool.head:\x00"], "after": "1.0"}))
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                socket.recv(PATIENCE)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4400


def test_unknown_tokens_at_the_live_socket_are_limited_and_valid_pass(site: str) -> None:
    headers = make_headers(site)
    statuses = []
    for n in range(2000):  # 300 a minute are allowed, and a slow machine gains some meanwhile
        if 429 in statuses:
            break
        try:
            with open_socket(
                site.replace("http", "ws") + "/ws/live/",
                additional_headers={"Authorization": f"Bearer berth_{n:043}"},
            ) as s:
                with pytest.raises(ConnectionClosed):
                    s.recv(PATIENCE)
                statuses.append(4401)
        except InvalidStatus as refused:
            statuses.append(refused.response.status_code)
    assert (statuses[0], statuses[-1]) == (4401, 429)
    with open_socket(
        site.replace("http", "ws") + "/ws/live/", additional_headers=headers
    ) as socket:
        assert "hello" in json.loads(socket.recv(PATIENCE))
