"""The WebSocket of an agent: its orders, its heartbeat, and the reasons that close it."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from django.db import connections
from django.utils import timezone

from claims.lifecycle.cancel import cancel_claim
from claims.tasks.agent_api import socket as sockets
from claims.tasks.runs import orders
from pools.access import rate_limit
from pools.models import Heartbeat, Member, Pool
from slots.members.liveness import take_offline
from slots.members.services import remove_member
from slots.members.tokens import issue_token, revoke_tokens
from tests.claims.tasks.agent_api.conftest import Agent, agent_of, make_agents, make_claim

pytestmark = pytest.mark.django_db(transaction=True)
LONG = 40.0


class Line:
    """One connection, as the web server hands it over."""

    def __init__(
        self, secret: str = "", *, header: str = "", query: bytes = b"", is_answering: bool = True
    ) -> None:
        self.inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.outbox: asyncio.Queue[Any] = asyncio.Queue()
        told = (
            [(b"authorization", (header or f"Bearer {secret}").encode())]
            if secret or header
            else []
        )
        more: dict[str, Any] = {"websocket.http.response": {}} if is_answering else {}
        about = {
            "headers": told,
            "query_string": query,
            "client": ("127.0.0.1", 1),
            "extensions": more,
        }
        scope = {"type": "websocket", "path": "/ws/agent/", **about}
        self.inbox.put_nowait({"type": "websocket.connect"})
        self.task = asyncio.create_task(
            sockets.agent_socket(scope, self.inbox.get, self.outbox.put)
        )

    async def next(self) -> Any:
        return await asyncio.wait_for(self.outbox.get(), LONG)

    async def hear(self) -> Any:
        message = await self.next()
        assert message["type"] == "websocket.send", message
        return json.loads(message["text"])

    def say(self, body: Any) -> None:
        self.inbox.put_nowait(
            {
                "type": "websocket.receive",
                "text": body if isinstance(body, str) else json.dumps(body),
            }
        )

    async def closed(self) -> tuple[int, str]:
        while (message := await self.next())["type"] != "websocket.close":
            pass
        await asyncio.wait_for(self.task, LONG)
        return message["code"], message.get("reason", "")

    async def leave(self) -> None:
        self.inbox.put_nowait({"type": "websocket.disconnect", "code": 1006})
        await asyncio.wait_for(self.task, LONG)


def prepare() -> tuple[Pool, Agent]:
    pool = make_agents()
    return pool, agent_of(pool.members.get())


@pytest_asyncio.fixture
async def world(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Pool, Agent]]:
    threads = ThreadPoolExecutor(2)
    both = threading.Barrier(2)

    def close_own() -> None:
        both.wait(LONG)
        connections.close_all()

    monkeypatch.setattr(sockets, "_threads", threads)
    yield await sync_to_async(prepare)()
    await orders.watches.here().close()
    await asyncio.gather(sockets.in_thread(close_own), sockets.in_thread(close_own))
    threads.shutdown()
    assert not sockets._open, "a connection is remembered that is over"
    await sync_to_async(connections.close_all)()


async def opened(secret: str) -> tuple[Line, Any]:
    line = Line(secret)
    assert (await line.next())["type"] == "websocket.accept"
    line.say({"have": ""})
    return line, await line.hear()


async def test_the_socket_sends_no_orders_before_the_first_message(world: Any) -> None:
    """The poll that it was in meanwhile is answered later than this was opened: what was looked
    at before would be the older list.
    """
    pool, agent = world
    line = Line(agent.secret)
    assert (await line.next())["type"] == "websocket.accept"
    await until(lambda: bool(sockets._open))
    claim = await sync_to_async(make_claim)(pool)
    assert line.outbox.empty()
    line.say({"have": ""})
    assert [order["claim"] for order in (await line.hear())["orders"]] == [claim.id]
    await line.leave()


def heard_at(member: Member) -> Any:
    return Heartbeat.objects.get(member=member).at


async def until(condition: Any) -> None:
    async with asyncio.timeout(LONG):
        while not await sync_to_async(condition)():  # noqa: ASYNC110  (another thread's statement)
            await asyncio.sleep(0.02)


async def test_the_socket_sends_the_orders_at_once_and_on_every_change(world: Any) -> None:
    pool, agent = world
    line, told = await opened(agent.secret)
    assert told == await sync_to_async(lambda: agent.get("orders/").body)() and told["orders"] == []
    claim = await sync_to_async(make_claim)(pool)
    told = await line.hear()
    assert [order["claim"] for order in told["orders"]] == [claim.id]
    await sync_to_async(cancel_claim)(claim_id=claim.id)
    told = await line.hear()
    assert (told["orders"], len(told["stop"])) == ([], 1)
    await sync_to_async(remove_member)(member_id=agent.member.pk, reason="a test")
    assert (await line.hear())["is_leaving"]
    await line.leave()


async def test_a_heartbeat_is_answered_with_the_version_and_recorded(world: Any) -> None:
    _, agent = world
    line, told = await opened(agent.secret)
    await until(lambda: Heartbeat.objects.filter(member=agent.member).exists())
    long_ago = timezone.now() - timedelta(seconds=90)
    await sync_to_async(Heartbeat.objects.filter(member=agent.member).update)(at=long_ago)
    line.say({"have": told["version"]})
    assert await line.hear() == {"version": told["version"]}
    await until(lambda: heard_at(agent.member) > long_ago + timedelta(seconds=60))
    line.say({"have": "0123456789abcdef"})
    assert await line.hear() == told, "it has something else: all of it once more"
    line.say({"have": told["version"], "load": {"running": 3}})
    assert await line.hear() == {"version": told["version"]}
    load: Any = (await sync_to_async(Heartbeat.objects.get)(member=agent.member)).load
    assert load["running"] == 3
    await line.leave()


async def test_older_orders_are_never_sent_after_newer_ones(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red where a heartbeat with a change of its own reads the orders itself, beside the task
    that follows changes.
    """
    pool, agent = world
    looking, most, read = threading.Lock(), [0], sockets.read_orders

    def slow(member_id: int) -> Any:
        is_alone = looking.acquire(blocking=False)
        most[0] += not is_alone
        found = read(member_id)
        threading.Event().wait(0.1)
        if is_alone:
            looking.release()
        return found

    line, _ = await opened(agent.secret)
    monkeypatch.setattr(sockets, "read_orders", slow)
    for _ in range(5):
        line.say({"have": "0123456789abcdef"})
    claim = await sync_to_async(make_claim)(pool)
    while not (await line.hear()).get("orders"):
        pass
    assert most[0] == 0
    line.say({"have": "0123456789abcdef"})
    assert [order["claim"] for order in (await line.hear())["orders"]] == [claim.id]
    await line.leave()


async def test_a_message_makes_an_offline_member_ready(world: Any) -> None:
    _, agent = world
    line, told = await opened(agent.secret)
    await sync_to_async(take_offline)(member_id=agent.member.pk, reason="silent")
    told = await line.hear()
    line.say({"have": told["version"]})
    await until(lambda: Member.objects.get(pk=agent.member.pk).state == "ready")
    await line.leave()


@pytest.mark.parametrize(
    ("header", "query", "status"),
    [
        ("", b"", 401),
        ("Bearer nonsense", b"", 401),
        (f"Bearer berthm_1_{'x' * 43}", b"", 401),
        ("Basic YTpi", b"", 401),
        ("right", b"token=berthm_1_x", 400),
    ],
)
async def test_an_unauthorised_socket_is_refused_before_it_is_accepted(
    world: Any, header: str, query: bytes, status: int
) -> None:
    _, agent = world
    header = f"Bearer {agent.secret}" if header == "right" else header
    line = Line(header=header, query=query)
    start, body = await line.next(), await line.next()
    assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
    assert json.loads(body["body"])["code"] and agent.secret not in body["body"].decode()
    plain = Line(header=header, query=query, is_answering=False)
    assert (await plain.next())["type"] == "websocket.close"


async def test_an_address_that_tries_many_tokens_is_refused(world: Any, settings: Any) -> None:
    settings.BERTH_STRANGERS_PER_MINUTE = 2
    rate_limit._of_strangers.cache_clear()
    found = []
    for i in range(4):
        found.append((await Line(f"berthm_9_{i}{'x' * 42}").next())["status"])
    assert found == [401, 401, 429, 429]
    rate_limit._of_strangers.cache_clear()


async def test_revoking_a_token_closes_its_socket(world: Any) -> None:
    _, agent = world
    line, _ = await opened(agent.secret)
    await sync_to_async(revoke_tokens)(member_id=agent.member.pk, reason="lost laptop")
    assert (await line.closed())[0] == sockets.BAD_TOKEN


async def test_a_token_revoked_during_a_check_closes_its_socket(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red where the token is checked before the version of the orders is read: that version
    contains the end of the token, and no later change would wake the socket.
    """
    _, agent = world
    line, _ = await opened(agent.secret)
    done = threading.Event()

    def revoked(member_id: int) -> orders.OrderList:
        if not done.is_set():
            done.set()
            revoke_tokens(member_id=member_id, reason="lost laptop")
        return orders.read_orders(member_id)

    monkeypatch.setattr(sockets, "read_orders", revoked)
    line.say({"have": "something else"})
    assert (await line.closed())[0] == sockets.BAD_TOKEN
    assert done.is_set()


async def test_a_new_token_closes_the_socket_once_and_the_old_token_stays_valid(
    world: Any,
) -> None:
    _, agent = world
    line, _ = await opened(agent.secret)
    fresh = await sync_to_async(issue_token)(member_id=agent.member.pk)
    assert (await line.closed())[0] == sockets.REPLACED
    old, _ = await opened(agent.secret)
    new, told = await opened(fresh)
    for each in (old, new):
        each.say({"have": told["version"]})
        assert await each.hear() == {"version": told["version"]}
        await each.leave()
    last = await sync_to_async(issue_token)(member_id=agent.member.pk, keep_previous=False)
    assert (await Line(fresh).next())["status"] == 401
    await (await opened(last))[0].leave()


async def test_a_new_incarnation_closes_the_socket(world: Any) -> None:
    _, agent = world
    line, _ = await opened(agent.secret)
    await sync_to_async(Member.objects.filter(pk=agent.member.pk).update)(incarnation=2)
    assert (await line.closed())[0] == sockets.BAD_TOKEN


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "[]",
        "{}",
        '{"have": 3}',
        '{"have": "x", "load": 3}',
        "[" * 5000,
        '{"have": "' + "x" * 20_000 + '"}',
    ],
)
async def test_a_malformed_message_closes_the_socket(world: Any, text: str) -> None:
    _, agent = world
    line, _ = await opened(agent.secret)
    line.say(text)
    assert (await line.closed())[0] == sockets.BAD_MESSAGE


async def test_a_load_beyond_its_limit_closes_the_socket(world: Any) -> None:
    _, agent = world
    line, _ = await opened(agent.secret)
    line.say({"have": "x", "load": {"a": "x" * 15_000}})
    assert (await line.closed())[0] == sockets.BAD_MESSAGE


async def test_too_many_messages_or_silence_close_the_socket(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, agent = world
    line, told = await opened(agent.secret)
    for _ in range(sockets.PACE + 1):
        line.say({"have": told["version"]})
    assert (await line.closed())[0] == sockets.TOO_FAST
    monkeypatch.setattr(sockets, "heartbeat_interval", lambda spec: 0.05)
    line, _ = await opened(agent.secret)
    assert (await line.closed())[0] == sockets.SILENT


async def test_a_member_may_have_only_a_few_sockets(world: Any) -> None:
    _, agent = world
    lines = [(await opened(agent.secret))[0] for _ in range(sockets.MAX_CONNECTIONS + 1)]
    assert (await lines[0].closed())[0] == sockets.TOO_MANY
    for line in lines[1:]:
        await line.leave()
