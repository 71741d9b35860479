"""Slow and endless bodies over raw sockets, as an attacker without a token sends them."""

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from pools.access.tokens import create_token
from pools.roles.services import create_grant
from project.kernel.http.bodies import LARGE, LARGE_AT_ONCE
from tests.claims.tasks.agent_api.conftest import agent_of, make_agents
from tests.conftest import serve_web
from tests.kernel.http.conftest import Connect
from tests.kernel.http.raw_socket import Raw, chunk, head, status_of

PART = b"x" * 50_000
SOURCES = "/api/v1/sources/"
PLAN = "/api/v1/agent/tasks/1/1/plan/"
BINARY = "Content-Type: application/octet-stream"


@pytest.fixture(scope="module")
def server(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Slow bodies are allowed here: the tests prove that other requests do not wait for them."""
    files: Path = tmp_path_factory.mktemp("files")
    with serve_web(BERTH_BODY_SECONDS="600", BERTH_FILES=str(files)) as url:
        yield url


def make_token(name: str) -> str:
    user = User.objects.create_user(name)
    create_grant(role="claimant", user=user)
    return create_token(user=user, name="t")[1]


def archive() -> bytes:
    """More than a megabyte, so that it needs a turn."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as tar:
        info = tarfile.TarInfo("main.tf")
        info.size = 2 * LARGE
        tar.addfile(info, io.BytesIO(os.urandom(info.size)))
    return found.getvalue()


def upload(raw: Raw, token: str, data: bytes) -> int:
    raw.send(
        head(
            "POST",
            SOURCES,
            f"Authorization: Bearer {token}",
            BINARY,
            f"Content-Length: {len(data)}",
        )
    )
    return status_of(raw.send(data).read_answer())


@pytest.mark.parametrize(
    "path", [SOURCES, "/login/", "/api/v1/claims/", "/api/v1/agent/tasks/1/1/plan/"]
)
@pytest.mark.parametrize("is_said", [True, False], ids=["length", "chunked"])
@pytest.mark.django_db(transaction=True)
def test_unauthenticated_clients_take_no_turn_for_large_bodies(
    path: str, is_said: bool, server: str, connect: Connect
) -> None:
    token = make_token("ana")
    length = "Content-Length: 3000000" if is_said else "Transfer-Encoding: chunked"
    for _ in range(LARGE_AT_ONCE + 1):
        connect(server).send(head("POST", path, BINARY, length)).flood(
            PART if is_said else chunk(PART), 1
        )
    assert upload(connect(server), token, archive()) == 201


@pytest.mark.django_db(transaction=True)
def test_unauthenticated_large_body_is_cut_off_or_gets_401(server: str, connect: Connect) -> None:
    raw = (
        connect(server)
        .send(head("POST", SOURCES, BINARY, "Transfer-Encoding: chunked"))
        .flood(chunk(PART), 200)
    )
    answer = raw.read_to_end()
    assert not answer or status_of(answer) == 401


def begin_large(raw: Raw, token: str, path: str = SOURCES) -> Raw:
    """Past the size from which a body needs a turn, and not complete."""
    raw.send(
        head("POST", path, f"Authorization: Bearer {token}", BINARY, "Transfer-Encoding: chunked")
    )
    return raw.send(chunk(PART) * (LARGE // len(PART) + 1))


@pytest.mark.django_db(transaction=True)
def test_two_tokens_of_one_person_share_one_turn(server: str, connect: Connect) -> None:
    """With as many uploads at once as there are turns, of two tokens of one person, another
    one's upload goes through.
    """
    ana, ben = make_token("ana"), make_token("ben")
    second = create_token(user=User.objects.get(username="ana"), name="second")[1]
    for n in range(LARGE_AT_ONCE + 1):
        begin_large(connect(server), (ana, second)[n % 2])
    assert upload(connect(server), ben, archive()) == 201


@pytest.mark.django_db(transaction=True)
def test_agents_of_one_pool_leave_turns_to_other_callers(server: str, connect: Connect) -> None:
    """As many members of a pool as there are turns send a large plan slowly; another pool's
    agent and a person still get a turn.
    """
    crowd, other = (
        make_agents("crowd", tuple("abcdefgh"[: LARGE_AT_ONCE + 1])),
        make_agents("other"),
    )
    for member in crowd.members.all():
        begin_large(connect(server), agent_of(member).secret, PLAN)
    raw = connect(server)
    token = agent_of(other.members.get()).secret
    raw.send(
        head("POST", PLAN, f"Authorization: Bearer {token}", BINARY, f"Content-Length: {2 * LARGE}")
    )
    raw.flood(PART, 2 * LARGE // len(PART))
    assert status_of(raw.read_answer()) == 405, (
        "its body is read as a whole before anything else is looked at"
    )
    assert upload(connect(server), make_token("ben"), archive()) == 201


@pytest.mark.parametrize(
    "length", ["Content-Length: 1000", "Content-Length: 3000000", "Transfer-Encoding: chunked"]
)
@pytest.mark.django_db(transaction=True)
def test_body_that_does_not_arrive_is_refused(length: str, strict: str, connect: Connect) -> None:
    token = make_token("ana")
    raw = connect(strict).send(
        head("POST", SOURCES, f"Authorization: Bearer {token}", BINARY, length)
    )
    answer = raw.read_to_end()
    assert status_of(answer) == 408
    assert b"too_slow" in answer


def test_dripping_body_is_refused(strict: str, connect: Connect) -> None:
    """Single bytes count as progress, but slower than BERTH_BODY_RATE."""
    raw = connect(strict).send(head("POST", "/login/", "Transfer-Encoding: chunked"))
    raw.socket.settimeout(0.1)
    while not raw.heard:
        raw.flood(chunk(b"x"), 1)
        try:
            raw.heard += raw.socket.recv(65536)
        except TimeoutError:
            continue
    assert status_of(raw.heard) == 408


@pytest.mark.django_db(transaction=True)
def test_large_form_of_a_signed_in_person_is_read(server: str, connect: Connect) -> None:
    client = Client()
    client.force_login(User.objects.create_user("ana"))
    cookie = f"Cookie: sessionid={client.cookies['sessionid'].value}"
    body = b"a=" + b"x" * 500_000
    form = "Content-Type: application/x-www-form-urlencoded"
    raw = connect(server).send(
        head("POST", "/pools/new/", form, cookie, f"Content-Length: {len(body)}")
    )
    raw.flood(body, 1)
    assert status_of(raw.read_answer()) == 403, "read, and refused for its CSRF token"
