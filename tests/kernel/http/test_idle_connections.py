"""A long poll and a WebSocket are silent by design: limits of idle connections do not end them."""

import json

import pytest
from django.contrib.auth.models import User
from websockets.sync.client import connect as open_socket

from pools.access.tokens import create_token
from pools.roles.services import create_grant
from tests.api.helpers import make_pool
from tests.kernel.http.conftest import Connect
from tests.kernel.http.raw_socket import head, status_of

pytestmark = pytest.mark.django_db(transaction=True)
BEYOND = 3  # seconds; three times what an idle connection of this server has


def make_token() -> str:
    user = User.objects.create_user("ana")
    create_grant(role="claimant", user=user)
    return create_token(user=user, name="t")[1]


def test_long_poll_outlasts_the_idle_limit(strict: str, connect: Connect) -> None:
    make_pool("full", slots=1)
    token = f"Authorization: Bearer {make_token()}"
    raw = connect(strict)
    for status in (201, 202):
        body = b'{"pool": "full"}'
        raw.send(
            head(
                "POST",
                "/api/v1/claims/",
                token,
                "Content-Type: application/json",
                f"Content-Length: {len(body)}",
            )
            + body
        )
        answer = raw.read_answer()
        assert status_of(answer) == status
    waiting = json.loads(answer.partition(b"\r\n\r\n")[2])["id"]
    answer = raw.send(head("GET", f"/api/v1/claims/{waiting}/?wait={BEYOND}", token)).read_answer()
    assert status_of(answer) == 200
    assert b'"waiting"' in answer


def test_websocket_outlasts_the_idle_limit(strict: str) -> None:
    make_pool("quiet", slots=1)
    token = make_token()
    with open_socket(
        strict.replace("http", "ws") + "/ws/live/",
        additional_headers={"Authorization": f"Bearer {token}"},
    ) as socket:
        socket.send(json.dumps({"watch": ["pool.head:quiet"], "after": "1.0"}))
        while "at" not in json.loads(socket.recv(30)):  # said every five seconds
            continue
