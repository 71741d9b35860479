"""The agent against a broken or hostile server: no crash, no redirect followed, no invalid data
accepted.
"""

import gzip
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from slots.agent.common.errors import (
    AgentError,
    AnswerTooLarge,
    RequestRefused,
    ServerUnavailable,
    TokenRejected,
    Unusable,
)
from slots.agent.server.client import BerthClient
from slots.agent.server.protocol import Order, UploadLimits, read_hello, read_orders, read_work

from .conftest import Agent
from .fake_berth import TOKEN, Exchange, Server


@pytest.fixture
def client(server: Server) -> BerthClient:
    return BerthClient(server.url, lambda: TOKEN)


BYTES = 1200  # of a drip


@dataclass
class Drip:
    """Sends a byte now and then, for a minute or until the client is gone."""

    head: bytes
    is_over: bool = False

    def __call__(self, exchange: Exchange) -> None:
        exchange.wfile.write(self.head)
        for number in range(BYTES):
            time.sleep(0.05)
            self.is_over = number == BYTES - 1
            exchange.wfile.write(b" ")
            exchange.wfile.flush()


DRIPS = {
    "drip": Drip(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BYTES),
    "drip of headers": Drip(b"HTTP/1.1 200 OK\r\nX: 1"),
}


def short(exchange: Exchange) -> None:
    exchange.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"a":')
    exchange.close_connection = True


def endless(exchange: Exchange) -> None:
    exchange.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(200):
        exchange.wfile.write(b"ffff\r\n" + b"a" * 0xFFFF + b"\r\n")
    exchange.close_connection = True


HOOKS: dict[str, tuple[Callable[[Exchange], None], type[AgentError]]] = {
    "not JSON": (lambda exchange: exchange.answer(200, raw=b"<html>"), ServerUnavailable),
    "a list": (lambda exchange: exchange.answer(200, []), ServerUnavailable),
    "nested": (lambda exchange: exchange.answer(200, raw=b"[" * 200_000), ServerUnavailable),
    "compressed anyway": (
        lambda exchange: exchange.answer(
            200, raw=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"}
        ),
        ServerUnavailable,
    ),
    "redirect": (
        lambda exchange: exchange.answer(
            302, headers={"Location": f"{exchange.server.url}/elsewhere"}
        ),
        ServerUnavailable,
    ),
    "500": (lambda exchange: exchange.answer(500, raw=b"oops"), ServerUnavailable),
    "404 of something in between": (
        lambda exchange: exchange.answer(404, raw=b"not found"),
        ServerUnavailable,
    ),
    "429": (lambda exchange: exchange.refuse(429, "too_many"), ServerUnavailable),
    "409 of Berth": (lambda exchange: exchange.refuse(409, "stale_generation"), RequestRefused),
    "401": (lambda exchange: exchange.refuse(401, "bad_token"), TokenRejected),
    "no HTTP": (
        lambda exchange: exchange.wfile.write(b"SSH-2.0-OpenSSH\r\n\r\n"),
        ServerUnavailable,
    ),
    "closed": (lambda exchange: setattr(exchange, "close_connection", True), ServerUnavailable),
    "too short": (short, ServerUnavailable),
    "endless": (endless, AnswerTooLarge),
    **{name: (drip, ServerUnavailable) for name, drip in DRIPS.items()},
    "huge header": (
        lambda exchange: exchange.wfile.write(
            b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n"
        ),
        ServerUnavailable,
    ),
}


@pytest.mark.parametrize("name", HOOKS)
def test_invalid_answer_raises_and_the_next_call_works(
    name: str, server: Server, client: BerthClient
) -> None:
    server.hooks["x/"], expected = HOOKS[name]
    with pytest.raises(expected) as caught:
        client.get("x/", timeout=0.8)
    assert name not in DRIPS or not DRIPS[name].is_over, "the client reads to the end"
    assert caught.type is expected
    server.hooks.clear()
    assert client.get("y/") == {}  # the next call is none the worse
    assert not any("elsewhere" in path for _, path in server.calls)
    client.close()


def test_download_is_bounded(server: Server, client: BerthClient, tmp_path: Path) -> None:
    server.hooks["x/"] = lambda exchange: exchange.answer(200, raw=b"a" * 2000)
    with pytest.raises(AnswerTooLarge):
        client.download("x/", tmp_path / "file", 1999)
    assert client.download("x/", tmp_path / "file", 2000)
    client.close()


def test_refusal_before_the_upload_ends_raises_an_error(
    server: Server, client: BerthClient, tmp_path: Path
) -> None:
    """413 comes before the body was taken, and the connection ends."""
    file = tmp_path / "plan"
    file.write_bytes(b"a" * 30_000_000)

    def refuse(exchange: Exchange) -> None:
        exchange.refuse(413, "too_large")

    server.hooks["x/"] = refuse
    with pytest.raises((RequestRefused, ServerUnavailable)):
        client.put("x/", file, "application/octet-stream")
    client.close()


@pytest.mark.parametrize(
    "url", ["ftp://h", "http://", "http://u:p@h/", "h:80", "http://h:99999999", "http://h/?a=b"]
)
def test_invalid_server_address_is_refused(url: str) -> None:
    with pytest.raises(Unusable):
        BerthClient(url, lambda: TOKEN)


GOOD = {
    "version": "1",
    "orders": [{"claim": 1, "generation": 2, "step": "plan", "slot": 3}],
    "stop": [],
}


@pytest.mark.parametrize(
    "change",
    [
        {"orders": None},
        {"orders": {}},
        {"version": None},
        {"orders": [{"claim": "1", "generation": 2, "step": "plan", "slot": 3}]},
        {"orders": [{"claim": True, "generation": 2, "step": "plan", "slot": 3}]},
        {"orders": [{"claim": -1, "generation": 2, "step": "plan", "slot": 3}]},
        {"orders": [{"claim": 1, "generation": 2**70, "step": "plan", "slot": 3}]},
        {"orders": [{"claim": 1, "step": "plan", "slot": 3}]},
        {"stop": [{"slot": "x", "generation": 1}]},
    ],
)
def test_invalid_order_list_is_rejected(change: dict[str, object]) -> None:
    with pytest.raises(ServerUnavailable):
        read_orders({**GOOD, **change})


def test_unknown_steps_and_extra_fields_are_ignored() -> None:
    orders = read_orders(
        {**GOOD, "orders": [*GOOD["orders"], {"step": "destroy"}, "x", None], "more": 1}
    )  # type: ignore[misc]
    assert [order.claim for order in orders.orders] == [1]
    hello = read_hello({**GOOD, "limits": {"chunk_bytes": 1000}, "member": 5})
    assert (hello.limits.chunk_bytes, hello.limits.plan_bytes) == (1000, 32_000_000)
    with pytest.raises(ServerUnavailable):
        read_hello({**GOOD, "limits": {"chunk_bytes": 10**9}})


@pytest.mark.parametrize(
    "change",
    [
        {"claim": 5},
        {"step": "apply"},
        {"executor": "python"},
        {"env": {"A=B": "x"}},
        {"env": {"A": "x\0y"}},
        {"env": {"A": {}}},
        {"secrets": ["a"]},
        {"timeout_s": -1},
        {"timeout_s": "1"},
        {"timeout_s": float("nan")},
        {"plan": {"digest": "../x"}},
        {"source": {"kind": "ftp"}},
        {"limits": {"log_head_bytes": 10**15}},
    ],
)
def test_invalid_work_order_is_rejected(change: dict[str, object]) -> None:
    body = {"claim": 1, "generation": 2, "step": "plan", "executor": "command", **change}
    with pytest.raises(ServerUnavailable):
        read_work(json.loads(json.dumps(body)), Order(1, 2, "plan", 3), UploadLimits())


def test_agent_survives_a_server_that_answers_nonsense(server: Server, agent: Agent) -> None:
    server.wait(lambda: server.hellos)
    for answer in (b"<html>", b'{"version": 1, "orders": [{"step": "plan"}], "stop": [7]}'):
        seen = len(server.calls)
        server.hooks["orders/"] = lambda exchange, answer=answer: exchange.answer(200, raw=answer)  # type: ignore[misc]
        server.wait(lambda seen=seen: len(server.calls) > seen + 1)  # type: ignore[misc]
    server.hooks.clear()
    server.order(1, 10)
    assert server.result(1, 10)["outcome"] == "planned"
    assert agent.process.poll() is None


def test_refused_generation_does_not_run(server: Server, agent: Agent) -> None:
    server.hooks["tasks/1/10/started/"] = lambda exchange: exchange.refuse(409, "stale_generation")
    server.order(1, 10, commands={"plan": f"echo ran > {agent.folder}/proof"})
    server.wait(lambda: ("POST", "tasks/1/10/started/") in server.calls)
    server.order(2, 20, slot=2)
    server.result(2, 20)
    assert not (agent.folder / "proof").exists()
    assert (1, 10) not in server.results


def test_archive_with_another_digest_is_refused(server: Server, agent: Agent) -> None:
    source = server.archive(b"first")
    server.sources[source["digest"]] = b"second"
    server.order(1, 10, source=source)
    result = server.result(1, 10)
    assert (result["outcome"], result["code"]) == ("failed", "source_refused")


def test_saved_plan_that_differs_from_the_approved_one_is_refused(
    server: Server, agent: Agent
) -> None:
    server.plans[1, 9] = b"evil"
    plan = {"digest": "1" * 64, "size": 4, "facts": {}, "has_file": True}
    server.order(1, 10, "apply", commands={"apply": f"echo ran > {agent.folder}/proof"}, plan=plan)
    result = server.result(1, 10)
    assert (result["outcome"], result["code"]) == ("plan_again", "plan_differs")
    assert not (agent.folder / "proof").exists()


def test_plan_that_the_server_refuses_fails_as_too_large(server: Server, agent: Agent) -> None:
    server.hooks["tasks/1/10/plan/"] = lambda exchange: exchange.refuse(413, "too_large")
    server.order(1, 10, commands={"plan": "echo x > $BERTH_PLAN_FILE"})
    result = server.result(1, 10)
    assert (result["outcome"], result["code"]) == ("failed", "plan_too_large")
