"""No call waits without end for an API server or an identity provider that trickles or hangs."""

import base64
import json
import socket
import time
from typing import Any

import pytest

from project.kernel.kubernetes import oidc, request
from project.kernel.outbox.operations import Misconfigured, ProviderError
from tests.kernel.kubernetes.slow_server import (
    LASTS,
    LIMIT,
    SLOW,
    Answer,
    Begin,
    Slow,
    api,
    at_once,
    in_its_body,
    said,
)
from tests.waiting import load


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("answer", SLOW, ids=lambda answer: answer.__name__)
def test_endless_answer_times_out(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, answer: Answer, is_secure: bool
) -> None:
    monkeypatch.setattr(request, "TOTAL", LIMIT)
    slow = begin(answer, is_secure=is_secure)
    with pytest.raises(ProviderError, match="not complete after 0.5 s") as caught:
        api().list_pods("a=b")
    assert type(caught.value) is ProviderError, "asked again, and nothing is believed of what came"
    assert "Berth tries again" in str(caught.value)
    assert not slow.has_given_up


def test_endless_handshake_times_out(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS has taken the socket over by then."""
    monkeypatch.setattr(request, "TOTAL", LIMIT)
    monkeypatch.setattr(request, "CONNECT", LASTS)
    slow = begin(at_once, is_secure=True)
    slow.before = b"\x16\x03\x03\x3f\xff" + b"\x02" * 10_000
    with pytest.raises(ProviderError, match="not complete after 0.5 s"):
        api().list_pods("a=b")
    assert not slow.has_given_up


def test_write_call_times_out_and_is_sent_once(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "TOTAL", LIMIT)
    slow = begin(in_its_body)
    with pytest.raises(ProviderError, match="not complete after 0.5 s"):
        api().create_pod({"metadata": {"name": "p"}})
    assert len(slow.asked) == 1


def test_finished_call_does_not_harm_the_next_on_its_connection(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call has a time of its own: many short ones may take longer together."""
    monkeypatch.setattr(request, "TOTAL", LIMIT * load())
    slow = begin(at_once)
    found, until = api(), time.monotonic() + 2 * LIMIT * load()
    calls = 0
    while time.monotonic() < until:
        assert found.list_pods("a=b") == []
        calls += 1
    assert len(slow.asked) == calls, "none was asked twice"
    assert len(slow.threads) == 2, "all of them on one connection"


# -- an identity provider --------------------------------------------------------------------------


def token(expires: int) -> str:
    parts = ({"alg": "none"}, {"exp": expires})
    return (
        ".".join(
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in parts
        )
        + ".x"
    )


def by_oidc(slow: Slow) -> Any:
    """A user with an expired token, for which the same server issues a new one."""
    config = {
        "idp-issuer-url": f"{slow.url}/idp",
        "client-id": "berth",
        "client-secret": "s3cret",
        "refresh-token": "r",
        "id-token": token(1),
    }
    return {
        "auth-provider": {
            "name": "oidc",
            "config": config | {"idp-certificate-authority": slow.authority},
        }
    }


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
def test_expired_token_is_renewed(begin: Begin, is_secure: bool) -> None:
    slow = begin(identity(GOOD), is_secure=is_secure, user=by_oidc)
    assert api().connection.client.configuration.api_key["BearerToken"] == "Bearer renewed"
    assert api().list_pods("a=b") == []
    assert [line.split()[0] for line in slow.asked] == ["GET", "POST", "GET"], "once"


@pytest.mark.parametrize("where", ["openid-configuration", "/token"])
def test_trickling_identity_provider_times_out(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(oidc, "PATIENCE", LIMIT)
    slow = begin(identity(GOOD, where), is_secure=True, user=by_oidc)
    with pytest.raises(
        ProviderError, match=r"does not answer within 0.5 s. Berth tries again"
    ) as caught:
        api()
    assert not slow.has_given_up
    assert not isinstance(caught.value, Misconfigured)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            said(b'{"error": "invalid_grant"}', "400 Bad Request"),
            "does not renew the token: 400 invalid_grant. Sign in again",
        ),
        (said(b'{"access_token": "s3cret"}'), "answers without an id_token"),
        (said(b"<html>s3cret</html>"), "does not answer with a JSON object"),
        (said(b"{}", "503 Unavailable"), "answers 503. Berth tries again"),
    ],
    ids=["refused", "no id_token", "no JSON", "503"],
)
def test_failed_token_renewal_is_reported_and_the_old_token_is_not_used(
    begin: Begin, answer: bytes, words: str
) -> None:
    slow = begin(identity(answer), user=by_oidc)
    with pytest.raises(ProviderError, match=words) as caught:
        api()
    assert "s3cret" not in str(caught.value)
    assert not any("/api/" in line for line in slow.asked)


def test_untrusted_identity_provider_does_not_receive_the_client_secret(begin: Begin) -> None:
    def without_authority(slow: Slow) -> Any:
        user = by_oidc(slow)
        del user["auth-provider"]["config"]["idp-certificate-authority"]
        return user

    slow = begin(identity(GOOD), is_secure=True, user=without_authority)
    with pytest.raises(ProviderError, match="certificate"):
        api()
    assert slow.asked == []
