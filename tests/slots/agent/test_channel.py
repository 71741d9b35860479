"""The agent's WebSocket channel: with each supported library, and polls where it cannot be
opened.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slots.agent.common.log import AgentLog
from slots.agent.poller import Poller
from slots.agent.server import channel
from slots.agent.server.channel import (
    ByWebsocketClient,
    ByWebsockets,
    Channel,
    ChannelOpener,
    ConnectionCut,
    find_library,
)
from slots.agent.server.client import BerthClient
from tests.waiting import wait_until

from .conftest import Agent
from .fake_berth import TOKEN, Exchange, Server
from .fake_websocket import Line, Sockets, encrypt

LIBRARIES = [ByWebsockets, ByWebsocketClient]


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.needs)
def library(request: pytest.FixtureRequest) -> Any:
    return request.param


def door_to(server: Server, library: Any, url: str = "", ca: Path | None = None) -> ChannelOpener:
    door = ChannelOpener(
        BerthClient(url or server.url, lambda: TOKEN, str(ca) if ca else None), AgentLog()
    )
    door.library, door.is_looked_for = find_library((library,)), True
    assert door.library is not None
    return door


class Talk:
    """What a poller needs of its agent."""

    def __init__(self, client: BerthClient) -> None:
        self.client, self.log, self.quit_now = client, AgentLog(), threading.Event()


def no_hello() -> Any:
    raise AssertionError("it has said hello")


_opened: list[Channel] = []


@pytest.fixture(autouse=True)
def close_all() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def enter(door: ChannelOpener, sockets: Sockets) -> tuple[Channel, Line]:
    found = wait_until(door.get_open)
    _opened.append(found)
    return found, sockets.next()


def test_websocket_libraries_are_found_and_optional() -> None:
    assert [find_library((library,)) is not None for library in LIBRARIES] == [True, True]
    assert find_library(()) is None
    door = ChannelOpener(BerthClient("http://127.0.0.1:1", lambda: TOKEN), AgentLog())
    door.is_looked_for = True
    assert door.get_open() is None and door.thread is None and door.until_check > 60


def test_channel_sends_heartbeats_and_receives_orders(server: Server, library: Any) -> None:
    sockets = Sockets(server)
    found, line = enter(door_to(server, library), sockets)
    assert line.headers["Authorization"] == f"Bearer {TOKEN}"
    assert "Origin" not in line.headers and TOKEN not in line.exchange.path
    assert found.receive(20) == server.lists()
    assert found.receive(0.05) is None
    found.beat("v1", {"running": 2})
    assert line.said.get(timeout=20) == {"have": "v1", "load": {"running": 2}}
    line.send({"version": "v1"})
    assert found.receive(20) == {"version": "v1"} and found.until_beat > 10
    line.send({"orders": [], "version": "x" * 200_000})
    assert len((found.receive(20) or {})["version"]) == 200_000
    found.close()
    assert line.said.get(timeout=20) is None


def test_channel_over_tls_verifies_the_named_authority(
    server: Server, library: Any, tmp_path: Path
) -> None:
    certificate = encrypt(server, tmp_path)
    sockets = Sockets(server)
    url = server.url.replace("http:", "https:")
    found, line = enter(door_to(server, library, url, certificate), sockets)
    assert found.receive(20) == server.lists()
    found.beat("v1", None)
    assert line.said.get(timeout=20) == {"have": "v1"}
    found.close()
    stranger = ChannelOpener(BerthClient(url, lambda: TOKEN), AgentLog())
    stranger.library, stranger.is_looked_for = find_library((library,)), True
    stranger.get_open()
    assert stranger.thread is not None
    stranger.thread.join(20)
    assert stranger.get_open() is None and stranger.failures == 1, (
        "a certificate that nobody vouches for"
    )


@pytest.mark.parametrize("how", ["cut", "close", "huge", "not json", "silent"])
def test_channel_ends_on_cut_close_silence_or_bad_data(
    server: Server, library: Any, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "MOST_JSON", 100_000)
    if how == "silent":
        monkeypatch.setattr(channel, "ANSWER", 0.2)
    sockets = Sockets(server)
    door = door_to(server, library)
    found, line = enter(door, sockets)
    found.receive(20)
    found.beat("v1", None)
    if how == "cut":
        line.cut()
    elif how == "close":
        line.close(4401)
    elif how == "huge":
        with contextlib.suppress(OSError, ValueError):  # it may have closed at the first bytes
            line.send({"orders": ["x" * 200_000]})
    elif how == "not json":
        line.send("<html>")
    with pytest.raises(ConnectionCut) as cut:
        while True:
            found.receive(0.1)
    if how == "close":
        assert cut.value.code == 4401
    began = time.monotonic()
    door.lose(found, cut.value)
    assert began + 1.0 <= door.next_at <= time.monotonic() + 2.0, "soon, but not at once"


@pytest.mark.parametrize(
    "opens", [True, False], ids=["the new one opens", "what stands in the file opens nothing"]
)
def test_channel_closed_for_its_token_tries_the_new_token_first(
    server: Server, library: Any, opens: bool
) -> None:
    """The old token may stay valid for a while, so it is not given up for any content of the
    file.
    """
    other, seen = "berthm_7_another_one", list[str]()

    def beat(exchange: Exchange) -> None:
        seen.append(exchange.headers["Authorization"])
        if opens or not seen[-1].endswith(other):
            exchange.answer(200, {})
        else:
            exchange.refuse(401, "bad_token")

    server.hooks["heartbeat/"] = beat
    sockets = Sockets(server)
    door = door_to(server, library)
    found, line = enter(door, sockets)
    server.token = other if opens else TOKEN
    door.client.read_token = lambda: other
    poller = Poller(Talk(door.client), lambda told: None, no_hello)  # type: ignore[arg-type]
    poller.opener, poller.channel, poller.needs_hello, poller.load = door, found, False, dict
    line.close(4410)
    wait_until(lambda: poller._step() or poller.channel is None)  # type: ignore[func-returns-value]
    assert (door.client.token, seen) == (TOKEN, [])
    poller._step()
    door.client.close()
    assert (door.client.token, seen) == (other if opens else TOKEN, [f"Bearer {other}"])


def refuse(exchange: Exchange) -> None:
    exchange.refuse(403, "no_websocket_here")


def send_elsewhere(exchange: Exchange) -> None:
    host, port = exchange.server.server_address[:2]
    exchange.answer(302, headers={"Location": f"ws://{host!r}:{port}/elsewhere/".replace("'", "")})


def upgrade_to_nothing(exchange: Exchange) -> None:
    exchange.wfile.write(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    )


@pytest.mark.parametrize(
    "hook", [refuse, send_elsewhere, upgrade_to_nothing], ids=lambda hook: hook.__name__
)
def test_refused_upgrade_is_retried_with_growing_delay(
    server: Server, library: Any, hook: Any
) -> None:
    server.hooks["/ws/agent/"] = hook
    door = door_to(server, library)
    for failures in (1, 2, 3):
        door.next_at = 0.0
        assert door.get_open() is None and door.thread is not None
        door.thread.join(30)
        assert door.get_open() is None and door.failures == failures
        assert door.until_due > 4 ** (failures - 1) - 1
    assert not [path for _, path in server.calls if "elsewhere" in path], (
        "no redirect is followed: the token would go along"
    )


# The agent itself ---------------------------------------------------------------------------------


def test_order_arrives_over_the_channel_without_a_poll(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    sockets = Sockets(server)
    agent = start_agent()
    line = sockets.next()
    wait_until(lambda: "connected" in agent.log)
    # The agent listens, so the poll that was under way has ended.
    assert (line.said.get(timeout=40) or {})["have"]
    polls = server.calls.count(("GET", "orders/"))
    server.order(1, 1)
    line.send(server.lists())
    assert server.result(1, 1)["outcome"] == "planned"
    assert server.calls.count(("GET", "orders/")) == polls
    assert agent.end() == 0 and server.goodbyes == 1


def hang(exchange: Exchange) -> None:
    threading.Event().wait(8)


@pytest.mark.parametrize("hook", [refuse, hang], ids=lambda hook: hook.__name__)
def test_agent_polls_at_once_behind_a_proxy_without_upgrades(
    server: Server, start_agent: Callable[..., Agent], hook: Callable[[Exchange], None]
) -> None:
    asked = threading.Event()

    def proxy(exchange: Exchange) -> None:
        asked.set()
        hook(exchange)

    server.hooks["/ws/agent/"] = proxy
    start_agent()
    assert asked.wait(40)
    began = time.monotonic()
    server.order(1, 1)
    server.wait(lambda: server.started)
    assert hook is refuse or time.monotonic() - began < 8, "it did not wait for the connection"
    assert server.result(1, 1)["outcome"] == "planned"


def test_cut_channel_is_followed_by_a_poll_and_a_reconnect(
    server: Server, start_agent: Callable[..., Agent]
) -> None:
    sockets = Sockets(server)
    agent = start_agent()
    line = sockets.next()
    wait_until(lambda: "connected" in agent.log)
    server.order(1, 1, commands={"plan": "sleep 4"})
    line.cut()
    server.wait(lambda: server.started)
    again = sockets.next()
    server.order(2, 2, slot=2)
    again.send(server.lists())
    for claim in (1, 2):
        assert server.result(claim, claim)["outcome"] == "planned", "what ran meanwhile went on"
    assert len(server.hellos) == 1
