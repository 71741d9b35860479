"""Long polls of agents and log readers are woken by changes and share one thread."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connections

from claims.lifecycle.cancel import cancel_claim
from claims.models import Run
from claims.tasks.logs import long_poll
from claims.tasks.logs.logs import Piece, add_log
from claims.tasks.runs import orders
from pools.access.tokens import create_token
from pools.models import Member, Pool
from pools.roles.services import create_grant
from project.kernel.http.asgi import Http
from slots.members.services import remove_member
from tests.api.asgi_request import ask, close, record_waits
from tests.claims.tasks.agent_api.conftest import Agent, agent_of, make_agents, make_claim

pytestmark = pytest.mark.django_db(transaction=True)


class Server:
    """The product's own handler, with a single thread for all requests."""

    def __init__(self) -> None:
        self.http = Http()

    async def get(
        self, path: str, secret: str, gone: asyncio.Event | None = None
    ) -> tuple[int, Any]:
        return await ask(self.http, path, secret, gone)

    async def close(self) -> None:
        await close(self.http)
        await orders.watches.here().close()
        await long_poll.watches.here().close()


def prepare() -> tuple[Pool, Agent]:
    pool = make_agents()
    return pool, agent_of(pool.members.get())


@pytest_asyncio.fixture
async def world(settings: Any, transactional_db: None) -> AsyncIterator[tuple[Server, Pool, Agent]]:
    settings.BERTH_WEB_THREADS = 1
    pool, agent = await sync_to_async(prepare)()
    server = Server()
    yield server, pool, agent
    await server.close()
    await sync_to_async(connections.close_all)()


async def until_watched(watches: Any, count: int = 1) -> None:
    watch = watches.here()
    async with asyncio.timeout(20):
        while (  # noqa: ASYNC110
            sum(len(waiters) for waiters in watch._waiting.values()) < count
            or watch._connection is None
        ):
            await asyncio.sleep(0.005)


async def test_an_orders_poll_waits_only_with_the_present_version(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _, agent = world
    waits = record_waits(monkeypatch)
    _, told = await server.get("agent/orders/?wait=30", agent.secret)
    assert (await server.get("agent/orders/?wait=30&have=0123456789abcdef", agent.secret))[
        1
    ] == told
    assert (await server.get("agent/orders/?wait=30&have=nonsense", agent.secret))[1] == told
    assert waits == []
    assert (await server.get(f"agent/orders/?wait=0.5&have={told['version']}", agent.secret))[
        1
    ] == told
    assert 0.4 < waits[0] <= 0.5


@pytest.mark.parametrize("what", ["bind", "cancel", "leave"])
async def test_an_orders_poll_is_woken_by_bind_cancel_and_leave(world: Any, what: str) -> None:
    server, pool, agent = world
    held = await sync_to_async(make_claim)(pool)
    _, told = await server.get("agent/orders/", agent.secret)
    poll = asyncio.create_task(
        server.get(f"agent/orders/?wait=30&have={told['version']}", agent.secret)
    )
    await until_watched(orders.watches)
    if what == "bind":
        await sync_to_async(make_claim)(pool)
    elif what == "cancel":
        await sync_to_async(cancel_claim)(claim_id=held.id)
    else:
        await sync_to_async(remove_member)(member_id=agent.member.pk, reason="a test")
    _, now = await asyncio.wait_for(poll, 20)  # before the 30 s of the poll are over
    assert {
        "bind": len(now["orders"]) == 2,
        "cancel": len(now["stop"]) == 1,
        "leave": now["is_leaving"],
    }[what], now


async def test_a_bind_wakes_only_the_poll_of_its_agent(world: Any) -> None:
    server, pool, agent = world
    others = await sync_to_async(
        lambda: [agent_of(m) for m in make_agents("many", tuple("abcdefghij")).members.all()]
    )()
    polls = []
    for each in (agent, *others):
        _, told = await server.get("agent/orders/", each.secret)
        polls.append(
            asyncio.create_task(
                server.get(f"agent/orders/?wait=30&have={told['version']}", each.secret)
            )
        )
    await until_watched(orders.watches, len(polls))
    await sync_to_async(make_claim)(pool)
    _, now = await asyncio.wait_for(polls[0], 20)
    assert len(now["orders"]) == 1
    assert not any(poll.done() for poll in polls[1:])
    for poll in polls[1:]:
        poll.cancel()  # the server stops: each waiting poll gets the last known answer
    assert {status for status, _ in await asyncio.gather(*polls[1:])} == {200}


async def test_a_poll_whose_token_became_invalid_gets_401(world: Any) -> None:
    server, pool, agent = world
    _, told = await server.get("agent/orders/", agent.secret)
    poll = asyncio.create_task(
        server.get(f"agent/orders/?wait=30&have={told['version']}", agent.secret)
    )
    await until_watched(orders.watches)
    await sync_to_async(Member.objects.filter(pk=agent.member.pk).update)(incarnation=2)
    await sync_to_async(make_claim)(pool)
    assert (await asyncio.wait_for(poll, 20))[0] == 401


async def test_a_disconnected_agent_poll_is_forgotten(world: Any) -> None:
    server, _, agent = world
    gone = asyncio.Event()
    _, told = await server.get("agent/orders/", agent.secret)
    poll = asyncio.create_task(
        server.get(f"agent/orders/?wait=30&have={told['version']}", agent.secret, gone)
    )
    await until_watched(orders.watches)
    gone.set()
    assert await asyncio.wait_for(poll, 20) == (0, None)
    assert not orders.watches.here()._waiting


async def test_a_log_is_followed_by_long_polls_to_its_end(world: Any) -> None:
    server, pool, _ = world

    def begin() -> tuple[Any, str]:
        user = User.objects.create_user("ana")
        create_grant(role="viewer", user=user, pool=pool)
        return make_claim(pool), create_token(user=user, name="test")[1]

    claim, secret = await sync_to_async(begin)()
    where = f"claims/{claim.id}/runs/{claim.generation}/log/"

    def add(seq: int) -> None:
        piece = Piece(seq, f"line {seq}\n")
        add_log(
            claim_id=claim.id,
            generation=claim.generation,
            member_id=claim.slots[0].member_id,
            pieces=[piece],
            most=10**6,
        )

    for seq in range(3):
        poll = asyncio.create_task(server.get(f"{where}?after={seq}&wait=30", secret))
        await until_watched(long_poll.watches)
        assert not poll.done()
        await sync_to_async(add)(seq)
        _, page = await asyncio.wait_for(poll, 20)
        assert ([chunk["text"] for chunk in page["chunks"]], page["next"]) == (
            [f"line {seq}\n"],
            seq + 1,
        )
    poll = asyncio.create_task(server.get(f"{where}?after=3&wait=30", secret))
    await until_watched(long_poll.watches)
    await sync_to_async(Run.objects.filter(claim_id=claim.id).update)(
        ended_at="2026-01-01T00:00:00Z"
    )
    assert (await asyncio.wait_for(poll, 20))[1]["is_whole"]
    assert (await server.get(f"{where}?format=text", secret))[1] == b"line 0\nline 1\nline 2\n"
    assert (await server.get(f"claims/{claim.id}/runs/", secret))[1]["results"][0]["log"][
        "lines"
    ] == 3
