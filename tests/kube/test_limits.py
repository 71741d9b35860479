"""An API server, or an identity provider, that sends a byte now and then, or hangs in the middle: no call waits for it without end."""

import base64
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from pools.providers.kubernetes import calling, client, oidc
from project.kernel.operations import Misconfigured, ProviderError
from tests.agent.sockets import make_certificate
from tests.local.kit import load

LIMIT = 0.5  # seconds for a call in these tests
PACE = 0.05  # seconds between two bytes
LASTS = 15.0  # seconds after which a server that trickles has had enough: a test without the limit fails, and ends
PODS = json.dumps({"kind": "PodList", "metadata": {}, "items": []}).encode()
Answer = Callable[["Slow", socket.socket, str], None]


class Slow:
    """Says what it is told to, at its own pace, until it is closed."""

    def __init__(self, folder: Path, answer: Answer, *, is_secure: bool) -> None:
        self.answer, self.stopped, self.asked = answer, threading.Event(), list[str]()
        certificate, key = make_certificate(folder)
        self.authority = str(certificate)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.is_secure, self.open = is_secure, list[int]()
        self.url = f"http{'s' * is_secure}://127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = [threading.Thread(target=self.listen)]
        self.threads[0].start()

    def listen(self) -> None:
        with suppress(OSError):  # closed
            while True:
                raw, _ = self.listener.accept()
                self.open.append(os.dup(raw.fileno()))
                thread = threading.Thread(target=self.serve, args=(raw,))
                self.threads.append(thread)
                thread.start()

    def serve(self, raw: socket.socket) -> None:
        with suppress(OSError), self.context.wrap_socket(raw, server_side=True) if self.is_secure else raw as sock:
            sock.settimeout(LASTS)
            while head := read_head(sock):
                self.asked.append(head.splitlines()[0])
                self.answer(self, sock, head)

    def trickle(self, sock: socket.socket, text: bytes) -> None:
        until = time.monotonic() + LASTS
        for i in range(len(text)):
            sock.sendall(text[i : i + 1])
            if self.stopped.wait(PACE) or time.monotonic() > until:
                return

    def close(self) -> None:
        self.stopped.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for number in self.open:
            with socket.socket(fileno=number) as sock, suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()


def read_head(sock: socket.socket) -> str:
    """With the body that it announces, which nobody here needs."""
    text = b""
    while b"\r\n\r\n" not in text:
        piece = sock.recv(1)
        if not piece:
            return ""
        text += piece
    head = text.decode()
    length = next((int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length:")), 0)
    while length > 0:
        length -= len(sock.recv(length)) or length
    return head


def said(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def at_once(slow: Slow, sock: socket.socket, head: str) -> None:
    sock.sendall(said(PODS))


def in_its_head(slow: Slow, sock: socket.socket, head: str) -> None:
    slow.trickle(sock, b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000)


def in_its_body(slow: Slow, sock: socket.socket, head: str) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
    slow.trickle(sock, b" " * 10_000)


def in_a_chunk(slow: Slow, sock: socket.socket, head: str) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2710\r\n")
    slow.trickle(sock, b" " * 10_000)


def in_a_refusal(slow: Slow, sock: socket.socket, head: str) -> None:
    sock.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 10000\r\n\r\n")
    slow.trickle(sock, b" " * 10_000)


def without_a_length(slow: Slow, sock: socket.socket, head: str) -> None:
    """Where the end of the connection is that of the answer: cut off, it looks whole."""
    sock.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + PODS)
    slow.trickle(sock, b" " * 10_000)


def not_at_all(slow: Slow, sock: socket.socket, head: str) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n{")
    slow.stopped.wait(LASTS)


SLOW = [in_its_head, in_its_body, in_a_chunk, in_a_refusal, without_a_length, not_at_all]
Begin = Callable[..., Slow]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """A server, and a kubeconfig that leads there."""
    begun = list[Slow]()

    def begin(answer: Answer, *, is_secure: bool = False, user: Any = None) -> Slow:
        slow = Slow(tmp_path, answer, is_secure=is_secure)
        begun.append(slow)
        text = {
            "apiVersion": "v1", "kind": "Config", "current-context": "slow",
            "clusters": [{"name": "c", "cluster": {"server": slow.url} | ({"certificate-authority": slow.authority} if is_secure else {})}],
            "users": [{"name": "u", "user": (user(slow) if user else {"token": "t"})}],
            "contexts": [{"name": "slow", "context": {"cluster": "c", "user": "u"}}],
        }  # fmt: skip
        (tmp_path / "config").write_text(yaml.safe_dump(text))
        monkeypatch.setenv("BERTH_KUBECONFIG", str(tmp_path / "config"))
        client.forget()
        return slow

    yield begin
    client.forget()
    for slow in begun:
        slow.close()


def api() -> client.Api:
    return client.api_for({"context": "slow", "namespace": "n"})


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("answer", SLOW, ids=lambda answer: answer.__name__)
def test_an_answer_that_does_not_end_is_given_up(begin: Begin, monkeypatch: pytest.MonkeyPatch, answer: Answer, is_secure: bool) -> None:
    monkeypatch.setattr(calling, "TOTAL", LIMIT)
    begin(answer, is_secure=is_secure)
    begun = time.monotonic()
    with pytest.raises(ProviderError, match="not complete after 0.5 s") as caught:
        api().list_pods("a=b")
    assert type(caught.value) is ProviderError, "asked again, and nothing is believed of what came"
    assert "asked again by itself" in str(caught.value)
    assert time.monotonic() - begun < min(8.0 * load(), LASTS - 3)


def test_what_changes_something_is_given_up_too_and_asked_once(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "TOTAL", LIMIT)
    slow = begin(in_its_body)
    with pytest.raises(ProviderError, match="not complete after 0.5 s"):
        api().create_pod({"metadata": {"name": "p"}})
    assert len(slow.asked) == 1


def test_a_call_that_is_over_does_no_harm_to_the_next_on_its_connection(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call has a time of its own: many short ones may take longer together."""
    monkeypatch.setattr(calling, "TOTAL", LIMIT * load())
    slow = begin(at_once)
    found, until = api(), time.monotonic() + 2 * LIMIT * load()
    calls = 0
    while time.monotonic() < until:
        assert found.list_pods("a=b") == []
        calls += 1
    assert len(slow.asked) == calls, "none was asked twice"
    assert len(slow.threads) == 2, "all of them on one connection"


# -- an identity provider ------------------------------------------------------------------------------------------------------------------


def token(expires: int) -> str:
    parts = ({"alg": "none"}, {"exp": expires})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + ".x"


def by_oidc(slow: Slow) -> Any:
    """A user whose token has run out, and who is to get another one from the same server."""
    config = {
        "idp-issuer-url": f"{slow.url}/idp",
        "client-id": "berth",
        "client-secret": "s3cret",
        "refresh-token": "r",
        "id-token": token(1),
    }
    return {"auth-provider": {"name": "oidc", "config": config | {"idp-certificate-authority": slow.authority}}}


def identity(renewed: bytes, slow_at: str = "") -> Answer:
    def answer(slow: Slow, sock: socket.socket, head: str) -> None:
        if slow_at and slow_at in head.splitlines()[0]:
            in_its_body(slow, sock, head)
        elif "openid-configuration" in head:
            sock.sendall(said(json.dumps({"token_endpoint": f"{slow.url}/token"}).encode()))
        elif head.startswith("POST /token"):
            sock.sendall(renewed)
        else:
            at_once(slow, sock, head)

    return answer


GOOD = said(json.dumps({"id_token": "renewed", "refresh_token": "r2"}).encode())


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
def test_a_token_that_has_run_out_is_renewed(begin: Begin, is_secure: bool) -> None:
    slow = begin(identity(GOOD), is_secure=is_secure, user=by_oidc)
    assert api().connection.client.configuration.api_key["BearerToken"] == "Bearer renewed"
    assert api().list_pods("a=b") == []
    assert [line.split()[0] for line in slow.asked] == ["GET", "POST", "GET"], "once"


@pytest.mark.parametrize("where", ["openid-configuration", "/token"])
def test_an_identity_provider_that_trickles_is_given_up(begin: Begin, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setattr(oidc, "PATIENCE", LIMIT)
    begin(identity(GOOD, where), is_secure=True, user=by_oidc)
    begun = time.monotonic()
    with pytest.raises(ProviderError, match=r"does not answer within 0.5 s. It is asked again") as caught:
        api()
    assert time.monotonic() - begun < min(8.0 * load(), LASTS - 3)
    assert not isinstance(caught.value, Misconfigured)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (said(b'{"error": "invalid_grant"}', "400 Bad Request"), "does not renew our token: 400 invalid_grant. Sign in anew"),
        (said(b'{"access_token": "s3cret"}'), "answers without an id_token"),
        (said(b"<html>s3cret</html>"), "does not answer with an object of JSON"),
        (said(b"{}", "503 Unavailable"), "answers 503. It is asked again"),
    ],
    ids=["refused", "no id_token", "no JSON", "503"],
)
def test_one_that_does_not_renew_is_said_and_nobody_goes_on_with_the_old_token(begin: Begin, answer: bytes, words: str) -> None:
    slow = begin(identity(answer), user=by_oidc)
    with pytest.raises(ProviderError, match=words) as caught:
        api()
    assert "s3cret" not in str(caught.value)
    assert not any("/api/" in line for line in slow.asked)


def test_one_whose_certificate_nobody_vouches_for_is_not_told_our_secret(begin: Begin) -> None:
    def without_authority(slow: Slow) -> Any:
        user = by_oidc(slow)
        del user["auth-provider"]["config"]["idp-certificate-authority"]
        return user

    slow = begin(identity(GOOD), is_secure=True, user=without_authority)
    with pytest.raises(ProviderError, match="certificate"):
        api()
    assert slow.asked == []
