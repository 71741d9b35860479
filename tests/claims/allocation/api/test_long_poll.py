"""`?wait=` answers when the state is reached or the time is over, and holds neither a thread nor
a database connection meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connections

from claims.allocation.api.long_poll import watch
from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.lifecycle.cancel import cancel_claim
from claims.lifecycle.release import release_claim
from pools.access.tokens import create_token
from pools.models import Grant
from pools.roles.services import create_grant, revoke_grant
from project.kernel.http.asgi import Http
from tests.api.asgi_request import ask, close, record_waits
from tests.api.helpers import make_pool

pytestmark = pytest.mark.django_db(transaction=True)
Get = Callable[[str], Awaitable[tuple[int, Any]]]


def claim(pool: str = "one") -> ClaimView:
    return create_claim(ClaimRequest(pools=(pool,), kind="slot", requested_by="ana"))


def prepare() -> tuple[str, ClaimView, ClaimView]:
    make_pool("one", slots=1)
    user = User.objects.create_user("ana")
    create_grant(role="claimant", user=user)
    return create_token(user=user, name="test")[1], claim(), claim()


class Server:
    """The product's own handler, with a single thread for all requests."""

    def __init__(self, secret: str) -> None:
        self.http = Http()
        self.secret = secret

    async def get(self, path: str, gone: asyncio.Event | None = None) -> tuple[int, Any]:
        return await ask(self.http, path, self.secret, gone)

    async def close(self) -> None:
        await close(self.http)
        task = watch()._task
        # Cut off half-way, its connection would keep the database from being dropped.
        while task is not None and not task.done() and watch()._connection is None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await watch().close()


@pytest_asyncio.fixture
async def world(
    settings: Any, transactional_db: None
) -> AsyncIterator[tuple[Server, ClaimView, ClaimView]]:
    settings.BERTH_WEB_THREADS = 1
    secret, held, waiting = await sync_to_async(prepare)()
    server = Server(secret)
    yield server, held, waiting
    await server.close()
    await sync_to_async(connections.close_all)()


async def until_watched(count: int) -> None:
    async with asyncio.timeout(20):
        # The watch offers no notification, so this loop polls.
        while sum(len(waiters) for waiters in watch()._waiting.values()) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_poll_for_a_state_that_is_reached_answers_at_once(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, held, waiting = world
    waits = record_waits(monkeypatch)
    assert (await server.get(f"claims/{held.id}/?wait=30&until=bound"))[1]["state"] == "bound"
    assert (await server.get(f"claims/{waiting.id}/?wait=30&until=waiting,ended"))[1]["wait"][
        "code"
    ] == "full"
    assert (await server.get(f"claims/{waiting.id}/?wait=0"))[1]["state"] == "waiting"
    assert waits == []


async def test_a_poll_answers_the_present_state_after_its_timeout(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _, waiting = world
    waits = record_waits(monkeypatch)
    status, body = await server.get(f"claims/{waiting.id}/?wait=0.5&until=bound")
    assert (status, body["state"], body["wait"]["place"]) == (200, "waiting", 1)
    assert 0.4 < waits[0] <= 0.5


async def test_thirty_polls_leave_the_only_thread_free(world: Any) -> None:
    server, held, _ = world
    polls = [
        asyncio.create_task(server.get(f"claims/{held.id}/?wait=60&until=ended")) for _ in range(30)
    ]
    await until_watched(30)
    assert (await server.get("me/"))[0] == 200, "the only thread is free"
    await sync_to_async(release_claim)(claim_id=held.id, generation=held.generation)
    answers = await asyncio.wait_for(asyncio.gather(*polls), 20)
    assert {(status, body["outcome"]) for status, body in answers} == {(200, "released")}


async def test_a_poll_ends_when_the_claim_has_ended(world: Any) -> None:
    server, _, waiting = world
    poll = asyncio.create_task(server.get(f"claims/{waiting.id}/?wait=60&until=bound"))
    await until_watched(1)
    await sync_to_async(cancel_claim)(claim_id=waiting.id)
    assert (await asyncio.wait_for(poll, 20))[1]["outcome"] == "cancelled"


async def test_a_poll_checks_permissions_again_before_its_answer(world: Any) -> None:
    server, held, _ = world
    poll = asyncio.create_task(server.get(f"claims/{held.id}/?wait=60&until=ended"))
    await until_watched(1)
    grant = await sync_to_async(Grant.objects.get)()
    await sync_to_async(revoke_grant)(grant.pk)
    await sync_to_async(release_claim)(claim_id=held.id, generation=held.generation)
    status, body = await asyncio.wait_for(poll, 20)
    assert (status, body["code"], "role" in body) == (404, "not_found", False)


async def test_a_disconnected_poll_is_forgotten(world: Any) -> None:
    server, held, _ = world
    gone = asyncio.Event()
    poll = asyncio.create_task(server.get(f"claims/{held.id}/?wait=60&until=ended", gone))
    await until_watched(1)
    gone.set()
    assert await asyncio.wait_for(poll, 20) == (0, None)
    assert not watch()._waiting


async def test_a_poll_cancelled_by_the_stop_of_the_server_answers_the_present_state(
    world: Any,
) -> None:
    server, held, _ = world
    poll = asyncio.create_task(server.get(f"claims/{held.id}/?wait=60&until=ended"))
    await until_watched(1)
    poll.cancel()
    assert (await asyncio.wait_for(poll, 20))[1]["state"] == "bound"


@pytest.mark.parametrize(
    "query", ["wait=-1", "wait=301", "wait=soon", "wait=nan", "wait=1&until=never"]
)
async def test_invalid_poll_parameters_are_refused(world: Any, query: str) -> None:
    server, held, _ = world
    assert (await server.get(f"claims/{held.id}/?{query}"))[0] == 400
