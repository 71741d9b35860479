"""Limits on heads and connections hold against hostile clients on raw sockets."""

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from project.settings import base
from tests.conftest import serve_web
from tests.kernel.http.conftest import Connect
from tests.kernel.http.raw_socket import HEALTH, Raw, chunk, head, status_of

HEADER = b"X-Filler: " + b"x" * 1000 + b"\r\n"


@pytest.mark.parametrize("fill", [HEADER, b"x" * 10_000], ids=["many headers", "one long header"])
def test_endless_head_is_refused(fill: bytes, strict: str, connect: Connect) -> None:
    raw = (
        connect(strict)
        .send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-First: ")
        .flood(fill, 40_000)
    )
    answer = raw.read_to_end()
    assert not answer or status_of(answer) == 431, "some clients see only that the connection ends"


def test_complete_head_over_its_limit_is_refused_with_431(strict: str, connect: Connect) -> None:
    count = base.BERTH_HEAD_BYTES // len(HEADER) + 1
    raw = connect(strict).send(
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + HEADER * count + b"\r\n"
    )
    answer = raw.read_to_end()
    assert status_of(answer) == 431
    assert b"head_too_large" in answer


def test_head_within_its_limit_is_answered(strict: str, connect: Connect) -> None:
    count = base.BERTH_HEAD_BYTES // len(HEADER) - 1
    raw = connect(strict).send(
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + HEADER * count + b"\r\n"
    )
    assert status_of(raw.read_answer()) == 200


def test_trailers_count_as_head(strict: str, connect: Connect) -> None:
    begin = head("POST", "/login/", "Transfer-Encoding: chunked") + chunk(b"x") + b"0\r\n"
    answer = connect(strict).send(begin).flood(HEADER, 40_000).read_to_end()
    assert not answer or status_of(answer) in (431, 408)


def test_silent_connection_is_closed(strict: str, connect: Connect) -> None:
    assert connect(strict).read_to_end() == b""


def test_incomplete_head_is_refused(strict: str, connect: Connect) -> None:
    answer = connect(strict).send(b"GET /healthz HTTP/1.1\r\nHost: loc").read_to_end()
    assert status_of(answer) == 408


@pytest.mark.parametrize(
    "begin", [b"GET /healthz HTTP/1.1\r\nX: ", b""], ids=["a head", "empty lines"]
)
def test_dripping_head_gets_no_more_time(begin: bytes, strict: str, connect: Connect) -> None:
    raw = connect(strict).send(begin)
    has_ended = threading.Event()

    def drip() -> None:
        with suppress(OSError):
            while not has_ended.wait(0.1):
                raw.socket.sendall(b"x" if begin else b"\r\n")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        raw.read_to_end()
    finally:
        has_ended.set()
        dripping.join()


def test_connection_without_another_request_is_closed(strict: str, connect: Connect) -> None:
    raw = connect(strict).send(HEALTH)
    assert status_of(raw.read_answer()) == 200
    assert raw.read_to_end() == b""


@pytest.fixture(scope="module")
def patient(django_db_setup: None) -> Iterator[str]:
    """Few connections, and time enough that none ends by itself."""
    limits = {
        "BERTH_IDLE_CONNECTIONS": "8",
        "BERTH_CONNECTIONS_PER_ADDRESS": "5",
        "BERTH_CONNECTIONS": "20",
    }
    with serve_web(
        **limits, BERTH_BODY_SECONDS="600", BERTH_HEAD_SECONDS="600", BERTH_IDLE_SECONDS="600"
    ) as url:
        yield url


def test_oldest_of_too_many_idle_connections_is_closed(patient: str, connect: Connect) -> None:
    opened: list[Raw] = []
    for n in range(9):
        opened.append(connect(patient, f"127.0.1.{n + 1}").send(HEALTH))
        assert status_of(opened[-1].read_answer()) == 200
    assert opened[0].read_to_end() == b""
    assert [status_of(raw.send(HEALTH).read_answer()) for raw in opened[1:]] == [200] * 8


def hold(raw: Raw) -> Raw:
    """A request in progress: its body is not complete."""
    return raw.send(head("POST", "/login/", "Content-Length: 100", "Expect: 100-continue"))


def wait_until_held(raw: Raw) -> None:
    while b"100 Continue" not in raw.heard:
        raw._read_more()


def test_connection_limit_of_an_address_leaves_others_unaffected(
    patient: str, connect: Connect
) -> None:
    for raw in [hold(connect(patient, "127.0.2.1")) for _ in range(5)]:
        wait_until_held(raw)
    refused = connect(patient, "127.0.2.1").read_to_end()
    assert status_of(refused) == 429
    assert b"BERTH_CONNECTIONS_PER_ADDRESS" in refused
    assert status_of(connect(patient, "127.0.2.2").send(HEALTH).read_answer()) == 200


def test_idle_connection_makes_room_for_the_next_of_its_address(
    patient: str, connect: Connect
) -> None:
    opened = [connect(patient, "127.0.3.1") for _ in range(6)]
    assert opened[0].read_to_end() == b""
    assert status_of(opened[5].send(HEALTH).read_answer()) == 200


def test_closed_connections_do_not_count(patient: str, connect: Connect) -> None:
    for _ in range(12):
        raw = connect(patient, "127.0.4.1").send(head("GET", "/healthz", "Connection: close"))
        assert status_of(raw.read_to_end()) == 200


def test_silent_connections_beyond_the_limit_block_no_new_client(
    patient: str, connect: Connect
) -> None:
    """Thirty silent clients of a server that takes twenty: the next one is served all the same."""
    for n in range(30):
        connect(patient, f"127.0.5.{n + 1}")
    assert status_of(connect(patient, "127.0.6.1").send(HEALTH).read_answer()) == 200
