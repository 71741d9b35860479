"""Behind a proxy, clients are told apart only by the headers of a trusted proxy."""

import re
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User

from pools.access.tokens import create_token
from pools.roles.services import create_grant
from project.kernel.doctor.checks import find_untrusted_proxies
from project.kernel.doctor.registry import Finding
from project.kernel.models import Event
from project.kernel.security.client_address import read_networks
from project.kernel.security.login_throttle import ADDRESS
from tests.conftest import serve_web
from tests.kernel.http.conftest import Connect
from tests.kernel.http.raw_socket import HEALTH, Raw, head, status_of
from tests.waiting import wait_until

PROXY, STRANGER = "127.0.0.1", "127.0.0.9"
STRANGERS = 2  # unknown tokens a minute: the next one is allowed after half a minute


@pytest.fixture(scope="module")
def server(django_db_setup: None) -> Iterator[str]:
    limits = {
        "BERTH_CONNECTIONS_PER_ADDRESS": "3",
        "BERTH_BODY_SECONDS": "600",
        "BERTH_STRANGERS_PER_MINUTE": str(STRANGERS),
    }
    with serve_web(BERTH_TRUSTED_PROXIES=f"{PROXY},10.0.0.0/8", **limits) as url:
        yield url


def forwarded(client: str) -> str:
    return f"X-Forwarded-For: {client}"


class Form:
    """The sign-in page, with its token against forged forms."""

    def __init__(self, raw: Raw, client: str) -> None:
        self.raw, self.client = raw, client
        answer = raw.send(head("GET", "/login/", forwarded(client))).read_answer().decode()
        self.cookie = re.search(r"csrftoken=\w+", answer)[0]  # type: ignore[index]
        self.token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', answer)[1]  # type: ignore[index]

    def sign_in(self, name: str, password: str) -> int:
        body = f"csrfmiddlewaretoken={self.token}&username={name}&password={password}".encode()
        form = "Content-Type: application/x-www-form-urlencoded"
        told = head(
            "POST",
            "/login/",
            forwarded(self.client),
            f"Cookie: {self.cookie}",
            form,
            f"Content-Length: {len(body)}",
        )
        return status_of(self.raw.send(told + body).read_answer())


@pytest.mark.django_db(transaction=True)
def test_wrong_passwords_of_one_client_lock_out_no_other_client(
    server: str, connect: Connect
) -> None:
    for name in ("ana", "ben", "eve"):
        User.objects.create_user(name, password="correct-horse")
    guessing = Form(connect(server), "198.51.100.1")
    assert [guessing.sign_in(f"guessed{n}", "wrong") for n in range(ADDRESS.free + 4)][-1] == 429
    assert [
        Form(connect(server), f"198.51.100.{n}").sign_in(name, "correct-horse")
        for n, name in ((2, "ana"), (3, "ben"))
    ] == [302, 302]
    assert Form(connect(server), "198.51.100.1, 10.0.0.7").sign_in("eve", "correct-horse") == 429, (
        "behind two trusted proxies"
    )


@pytest.mark.django_db(transaction=True)
def test_unknown_tokens_of_one_client_refuse_no_valid_token(server: str, connect: Connect) -> None:
    user = User.objects.create_user("ana")
    create_grant(role="viewer", user=user)
    raw = connect(server)
    statuses = [
        status_of(
            raw.send(
                head(
                    "GET",
                    "/api/v1/me/",
                    forwarded("198.51.100.9"),
                    f"Authorization: Bearer berth_{n:043}",
                )
            ).read_answer()
        )
        for n in range(STRANGERS + 1)
    ]
    assert statuses == [401] * STRANGERS + [429]
    for client in ("198.51.100.9", "198.51.100.10"):
        token = create_token(user=user, name=client)[1]
        answer = raw.send(
            head("GET", "/api/v1/me/", forwarded(client), f"Authorization: Bearer {token}")
        ).read_answer()
        assert status_of(answer) == 200
    unknown = raw.send(
        head(
            "GET",
            "/api/v1/me/",
            forwarded("198.51.100.10"),
            "Authorization: Bearer berth_" + "z" * 43,
        )
    ).read_answer()
    assert status_of(unknown) == 401, "another client's count"


def hold(raw: Raw, *headers: str) -> Raw:
    raw.send(head("POST", "/login/", "Content-Length: 100", "Expect: 100-continue", *headers))
    while b"100 Continue" not in raw.heard:
        raw._read_more()
    return raw


def test_connection_limit_counts_clients_behind_a_proxy_separately(
    server: str, connect: Connect
) -> None:
    for n in range(8):
        hold(connect(server, PROXY), forwarded(f"198.51.100.{n}"))
    for _ in range(2):
        hold(connect(server, PROXY), forwarded("198.51.100.7"))
    raw = connect(server, PROXY)
    refused = raw.send(head("GET", "/healthz", forwarded("198.51.100.7"))).read_answer()
    assert status_of(refused) == 429
    assert (
        status_of(raw.send(head("GET", "/healthz", forwarded("198.51.100.8"))).read_answer()) == 200
    )
    assert status_of(raw.send(HEALTH).read_answer()) == 200, "the proxy's own request"


def test_finished_requests_do_not_count(server: str, connect: Connect) -> None:
    raw = connect(server, PROXY)
    for _ in range(10):
        assert (
            status_of(raw.send(head("GET", "/healthz", forwarded("198.51.100.50"))).read_answer())
            == 200
        )


@pytest.mark.django_db(transaction=True)
def test_untrusted_proxy_is_not_believed_and_the_doctor_warns(
    server: str, connect: Connect
) -> None:
    assert not list(find_untrusted_proxies())
    raw = connect(server, STRANGER)
    assert status_of(raw.send(head("GET", "/healthz", forwarded("10.1.2.3"))).read_answer()) == 200
    raw.send(head("GET", "/login/", forwarded("198.51.100.1"))).read_answer()
    for _ in range(2):
        hold(connect(server, STRANGER), forwarded("198.51.100.2"))
    connect(server, STRANGER)
    refused = connect(server, STRANGER).read_to_end()
    assert not refused or status_of(refused) == 429, "all of its connections are its own"
    finding = wait_for_finding()
    assert STRANGER in finding.detail
    assert "BERTH_TRUSTED_PROXIES" in finding.repair
    assert Event.objects.filter(verb="untrusted_proxy").count() == 1, "not once for each request"


def wait_for_finding() -> Finding:
    return wait_until(lambda: list(find_untrusted_proxies()), "the doctor finds no proxy")[0]


def test_invalid_network_in_the_setting_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="proxy.example is neither an address nor a network"):
        read_networks(["10.0.0.0/8", "proxy.example"])
