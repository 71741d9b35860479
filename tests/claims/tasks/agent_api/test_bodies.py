"""A large body is read only from a known caller, and only up to the limit of its endpoint."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client

from pools.access.tokens import create_token
from pools.roles.services import create_grant
from project.kernel.http.asgi import Http
from project.kernel.http.bodies import UNKNOWN_MOST
from tests.claims.tasks.agent_api.conftest import agent_of, make_agents, make_claim

pytestmark = pytest.mark.django_db(transaction=True)
MB = 1_000_000


class Sender:
    """Counts how much of a body is taken."""

    def __init__(self, size: int) -> None:
        self.left, self.taken, self.sent = size, 0, list[Any]()

    async def receive(self) -> Any:
        part = min(self.left, 100_000)
        self.left -= part
        self.taken += part
        return {"type": "http.request", "body": b"x" * part, "more_body": self.left > 0}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


async def call(
    http: Http, method: str, path: str, size: int, *, is_said: bool = True, **headers: str
) -> tuple[int, Any, int]:
    sender = Sender(size)
    where = path if path.startswith("/") else f"/api/v1/{path}"
    told = {
        "host": "localhost",
        "content-type": "application/octet-stream",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    told |= {"content-length": str(size)} if is_said else {"transfer-encoding": "chunked"}
    scope = {
        "type": "http", "http_version": "1.1", "scheme": "http", "method": method, "path": where,
        "raw_path": b"", "root_path": "", "query_string": b"", "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "headers": [(name.encode(), value.encode()) for name, value in told.items()],
    }  # fmt: skip
    await http(scope, sender.receive, sender.send)
    return sender.sent[0]["status"], json.loads(sender.sent[1]["body"]), sender.taken


@pytest_asyncio.fixture
async def http(settings: Any, transactional_db: None) -> AsyncIterator[Http]:
    settings.BERTH_WEB_THREADS = 1
    found = Http()
    yield found
    await asyncio.get_running_loop().run_in_executor(found.threads, connections.close_all)
    found.threads.shutdown()
    await sync_to_async(connections.close_all)()


def prepare() -> tuple[str, str, str, str]:
    pool = make_agents()
    agent, claim = agent_of(pool.members.get()), make_claim(pool)
    user = User.objects.create_user("ana")
    create_grant(role="claimant", user=user, pool=pool)
    client = Client()
    client.force_login(user)
    return (
        agent.secret,
        f"agent/tasks/{claim.id}/{claim.generation}/plan/",
        create_token(user=user, name="t")[1],
        client.cookies["sessionid"].value,
    )


@pytest.mark.parametrize("is_said", [True, False])
async def test_a_large_body_of_an_unknown_caller_is_not_read(http: Http, is_said: bool) -> None:
    agent, where, user, _ = await sync_to_async(prepare)()
    wrong: list[dict[str, str]] = [{}]
    wrong += [{"authorization": f"Bearer {prefix}{'x' * 43}"} for prefix in ("berth_", "berthm_1_")]
    most = 0 if is_said else UNKNOWN_MOST + 100_000  # up to the part that is one too many
    for path, method in (
        ("sources/", "POST"),
        (where, "PUT"),
        ("claims/", "POST"),
        ("/login/", "POST"),
    ):
        for headers in wrong:
            status, body, taken = await call(
                http, method, path, 20 * MB, is_said=is_said, **headers
            )
            assert status == 401 and taken <= most, (path, headers, body)
    status, _, taken = await call(
        http, "PUT", where, 20 * MB, is_said=is_said, authorization=f"Bearer {user}"
    )
    assert status == 401 and taken <= most, "a person's token is none of an agent"
    status, _, taken = await call(
        http, "POST", "sources/", 20 * MB, is_said=is_said, authorization=f"Bearer {agent}"
    )
    assert status == 401 and taken <= most, "nor the other way round"


async def test_a_known_caller_may_send_up_to_the_limit_of_the_endpoint(http: Http) -> None:
    agent, where, user, session = await sync_to_async(prepare)()
    status, body, taken = await call(
        http, "POST", "sources/", 20 * MB, authorization=f"Bearer {user}"
    )
    assert (status, body["code"], taken) == (422, "source_refused", 20 * MB)
    status, body, taken = await call(
        http, "POST", "sources/", 20 * MB, cookie=f"sessionid={session}"
    )
    assert (status, body["code"], taken) == (403, "forbidden", 20 * MB)
    status, body, taken = await call(http, "POST", "sources/", 20 * MB, cookie="sessionid=made-up")
    assert (status, taken) == (401, 0)
    status, body, taken = await call(
        http, "POST", "sources/", 40 * MB, authorization=f"Bearer {user}"
    )
    assert (status, body["limit"]) == (413, 32 * MB), "what is sent all the same is passed over"
    status, body, taken = await call(
        http, "PUT", where, 33 * MB, authorization=f"Bearer {agent}", berth_digest="ab" * 32
    )
    assert (status, body["code"]) == (413, "too_large"), "its pool takes less"
    status, body, taken = await call(
        http, "PUT", where, 300 * MB, authorization=f"Bearer {agent}", berth_digest="ab" * 32
    )
    assert status == 413 and taken < 261 * MB
    status, body, taken = await call(http, "POST", "/claims/run/", 20 * MB)
    assert (status, taken) == (401, 0), "the form in the browser, of nobody"
    for path, caller in (("sources", user), (where.rstrip("/"), agent)):
        status, body, taken = await call(
            http, "POST", path, 10 * MB, authorization=f"Bearer {caller}"
        )
        assert (status, body["code"]) == (308, "slash_missing"), "not that less is taken than it is"
    assert (await call(http, "POST", "sources", 10 * MB))[::2] == (401, 0)
    status, body, taken = await call(
        http, "POST", "claims/", 5 * MB, authorization=f"Bearer {user}"
    )
    assert (status, body["limit"]) == (413, 4 * MB)
