"""Simple creates on the event loop are batched and answered like creates on a thread."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import OperationalError, connection

from claims import claims_sql
from claims.allocation import batching, new_claim
from claims.allocation.requests.claim_request import ClaimRequest, parse_claim
from claims.allocation.requests.resolve import forget_routes
from claims.models import Claim
from pools.access import rate_limit, tokens
from pools.access.tokens import CachedToken, create_token
from pools.models import Token
from pools.roles.services import create_grant
from project.kernel.http.asgi import Http
from tests.api.helpers import make_pool
from tests.database import helpers as model

pytestmark = pytest.mark.django_db(transaction=True)
LONG = 30.0


class Asker:
    """POSTs through the product's own handler, without a socket."""

    def __init__(self, http: Http, secret: str) -> None:
        self.http, self.secret = http, secret
        self.headers: dict[str, str] = {}

    async def __call__(
        self, body: Any, *headers: tuple[bytes, bytes], query: bytes = b""
    ) -> tuple[int, Any]:
        coming = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
        sent: list[Any] = []

        async def receive() -> Any:
            return coming.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "method": "POST",
            "path": "/api/v1/claims/",
            "raw_path": b"",
            "root_path": "",
            "query_string": query,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "headers": [
                (b"host", b"localhost"),
                (b"authorization", f"Bearer {self.secret}".encode()),
                (b"content-type", b"application/json"),
                *headers,
            ],
        }
        await self.http(scope, receive, send)
        self.headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        answer = b"".join(message["body"] for message in sent[1:])
        assert int(self.headers["Content-Length"]) == len(answer)
        return sent[0]["status"], json.loads(answer)


def prepare() -> str:
    tokens._seen.clear()
    forget_routes()
    for name, slots in (("lab", 20), ("small", 1)):
        make_pool(name, slots=slots)
    user = User.objects.create_user("ana")
    create_grant(role="claimant", user=user)
    return create_token(user=user, name="ci")[1]


async def away(function: Any, *arguments: Any) -> Any:
    return await asyncio.to_thread(_once, function, arguments)


def _once(function: Any, arguments: Any) -> Any:
    try:
        return function(*arguments)
    finally:
        connection.close()


@pytest.fixture
async def ask() -> AsyncIterator[Asker]:
    """A caller and pools that are cached: each pool got one claim."""
    asker = Asker(Http(), await away(prepare))
    assert (await asker({"pool": "lab"}))[0] == 201
    assert (await asker({"pool": "small"}))[0] == 201
    yield asker
    await away(end_threads, asker.http)


def end_threads(http: Http) -> None:
    """Ends the threads of the handler with their connections."""
    everybody = threading.Barrier(settings.BERTH_WEB_THREADS)

    def leave() -> None:
        everybody.wait(LONG)
        connection.close()

    for left in [http.threads.submit(leave) for _ in range(settings.BERTH_WEB_THREADS)]:
        left.result()
    http.threads.shutdown()


def is_under_way(http: Http, count: int) -> bool:
    return batching.batcher_of(http.threads).under_way == count


async def until(is_so: Callable[[], bool]) -> None:
    """A few turns of the event loop."""
    for _ in range(1_000_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to be")


@pytest.fixture
def statements(ask: Asker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every named statement of claims from here on; each read of a token from the database is
    recorded as `token`.
    """
    called: list[str] = []
    text, asked = claims_sql.statements.text, tokens._query

    def noted(name: str, n: int | None = None) -> str:
        called.append(name)
        return text(name, n)

    def noted_token(hashed: str) -> Any:
        called.append("token")
        return asked(hashed)

    monkeypatch.setattr(claims_sql.statements, "text", noted)
    monkeypatch.setattr(tokens, "_query", noted_token)
    return called


async def test_a_create_on_the_event_loop_takes_one_statement(
    ask: Asker, statements: list[str]
) -> None:
    status, body = await ask({"pool": "lab", "owner": "pod:1"}, (b"idempotency-key", b"k"))
    assert (status, body["state"], body["owner"], body["requested_by"], body["key"]) == (
        201,
        "bound",
        "pod:1",
        "ana",
        "k",
    )
    assert len(body["slots"]) == 1
    assert statements == ["create_and_bind_here"]
    assert ask.headers["Location"] == f"/api/v1/claims/{body['id']}/"
    on_loop = ask.headers
    assert (await ask({"pool": "lab", "size": 2}))[0] == 201  # this one is for a thread
    assert "token" in statements
    assert {
        name: value for name, value in on_loop.items() if name not in ("Location", "Content-Length")
    } == {
        name: value
        for name, value in ask.headers.items()
        if name not in ("Location", "Content-Length")
    }


async def test_simultaneous_creates_share_one_statement(ask: Asker, statements: list[str]) -> None:
    answers = await asyncio.gather(*[ask({"pool": "lab", "owner": f"o{n}"}) for n in range(6)])
    assert statements == ["create_gathered"]
    assert [(status, body["owner"]) for status, body in answers] == [
        (201, f"o{n}") for n in range(6)
    ]
    assert len({body["slots"][0]["id"] for _, body in answers}) == 6


async def test_a_waiting_claim_in_a_batch_gets_its_wait_reason(ask: Asker) -> None:
    (first, bound), (second, waits) = await asyncio.gather(
        ask({"pool": "lab"}), ask({"pool": "small"})
    )
    assert (first, bound["state"], bound["wait"]) == (201, "bound", None)
    assert (second, waits["state"], waits["wait"]["code"]) == (202, "waiting", "full")


async def test_a_reused_key_on_the_event_loop_replays_its_claim_or_is_refused(ask: Asker) -> None:
    first, second = await ask({"pool": "lab", "key": "k"}), await ask({"pool": "lab", "key": "k"})
    assert (first[0], second[0], second[1]["id"]) == (201, 201, first[1]["id"])
    assert ask.headers["Idempotency-Replayed"] == "true"
    assert (await ask({"pool": "lab", "key": "k", "owner": "x"}))[0] == 409


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ("UPDATE pools_token SET revoked_at = now()", 401),
        ("UPDATE auth_user SET is_active = false", 401),
        ("UPDATE pools_grant SET role = 'viewer'", 403),
    ],
)
async def test_a_caller_that_lost_its_permission_is_refused(
    ask: Asker, change: str, status: int
) -> None:
    await away(model_sql, change)
    assert (await ask({"pool": "lab"}))[0] == status
    assert (await ask({"pool": "lab", "colour": "red"}))[0] in (400, status)
    assert await away(Claim.objects.count) == 2


def model_sql(text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text)


async def test_an_invalid_create_gets_a_problem_answer(ask: Asker) -> None:
    assert (await ask({"pool": "lab", "size": 0, "colour": "red"}))[0] == 400
    assert ask.headers["Content-Type"] == "application/problem+json"
    assert (await ask({"pool": "lab"}, query=b"x=1"))[0] == 400
    assert (await ask({"pool": "lab", "owner": "x" * 20_000}))[0] == 400
    assert (await ask({"pool": "lab"}, (b"cookie", b"sessionid=nobody")))[0] == 201


async def test_a_caller_over_its_rate_limit_gets_429(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "BERTH_REQUESTS_PER_MINUTE", 3)
    rate_limit._of_callers.cache_clear()
    assert [(await ask({"pool": "lab"}))[0] for _ in range(4)] == [201, 201, 201, 429], (
        "each counts once"
    )
    assert "Retry-After" in ask.headers
    rate_limit._of_callers.cache_clear()


async def test_a_locked_pool_delays_only_its_own_creates(ask: Asker) -> None:
    """Seen red with two statements at once at most: the third waited for a lock of the others."""
    lock = await away(model.connect)
    try:
        await away(lock.execute, "BEGIN")
        await away(lock.execute, "SELECT FROM pools_pool WHERE name = 'small' FOR UPDATE")
        held = []
        # Each alone in its statement: in company the locked pool would be left out.
        for n in (1, 2):
            held.append(asyncio.create_task(ask({"pool": "small"})))
            await until(partial(is_under_way, ask.http, n))
        status, body = await asyncio.wait_for(ask({"pool": "lab"}), LONG)
        assert (status, body["state"]) == (201, "bound")
        assert not any(task.done() for task in held)
        await away(lock.execute, "ROLLBACK")
        assert [status for status, _ in await asyncio.wait_for(asyncio.gather(*held), LONG)] == [
            202,
            202,
        ]
    finally:
        await away(lock.close)


async def test_a_cancelled_caller_does_not_disturb_its_batch(ask: Asker) -> None:
    gone = asyncio.create_task(ask({"pool": "lab", "owner": "gone"}))
    stays = asyncio.create_task(ask({"pool": "lab"}))
    await until(lambda: bool(batching.batcher_of(ask.http.threads).waiting))
    gone.cancel()
    assert (await stays)[0] == 201
    assert await away(Claim.objects.filter(owner="gone").count) == 1, "it was asked for"


async def test_a_deleted_token_is_refused_despite_the_cache(ask: Asker) -> None:
    await away(Token.objects.all().delete)
    assert (await ask({"pool": "lab"}))[0] == 401


async def test_a_created_claim_is_answered_when_a_later_step_fails(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error, a caller without a key would create the claim twice."""

    def fail(*args: Any, **values: Any) -> None:
        raise OperationalError("the database went away")

    monkeypatch.setattr(new_claim, "explain_claims", fail)
    monkeypatch.setattr(batching, "notify_made", fail)
    (first, bound), (second, waits) = await asyncio.gather(
        ask({"pool": "lab"}), ask({"pool": "small"})
    )
    assert (first, bound["state"]) == (201, "bound")
    assert (second, waits["state"], waits["wait"]) == (202, "waiting", None)


async def test_an_error_in_one_answer_of_a_batch_reaches_only_its_caller(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = batching.claim_made

    def one_fails(request: ClaimRequest, *args: Any) -> Any:
        if request.owner == "o1":
            raise ZeroDivisionError
        return made(request, *args)

    monkeypatch.setattr(batching, "claim_made", one_fails)
    answers = await asyncio.gather(*[ask({"pool": "lab", "owner": f"o{n}"}) for n in range(3)])
    assert [status for status, _ in answers] == [201, 500, 201]


async def test_a_batch_without_a_thread_fails_and_the_next_create_succeeds(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*args: Any) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    with monkeypatch.context() as patched:
        patched.setattr(ask.http.threads, "submit", none_left)
        asked = [batching.batcher_of(ask.http.threads).join(asking(n)) for n in range(2)]
        found = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), LONG)
    assert [type(error) for error in found] == [RuntimeError, RuntimeError]
    assert (await ask({"pool": "lab"}))[0] == 201, "it goes on"


def asking(n: int) -> batching.PendingCreate:
    request = parse_claim({"pool": "lab", "owner": f"o{n}"}, requested_by="ana")
    asked = batching.begin_create(request, CachedToken("", ""))
    assert asked is not None
    return asked


async def test_creates_succeed_after_the_database_ended_its_sessions(ask: Asker) -> None:
    """Without a key, too: the connection is looked at before it is used."""
    for _ in range(3):
        await away(end_sessions, ask.http)
        assert (await ask({"pool": "lab"}))[0] == 201


def end_sessions(http: Http) -> None:
    """Terminates the database sessions of the handler's threads."""
    everybody = threading.Barrier(settings.BERTH_WEB_THREADS)

    def session() -> int:
        everybody.wait(LONG)
        connection.close()  # one that is dead already
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    sessions = [
        asked.result()
        for asked in [http.threads.submit(session) for _ in range(settings.BERTH_WEB_THREADS)]
    ]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid, 20000) FROM unnest(%s) AS pid", [sessions])
        assert all(is_over for (is_over,) in cursor.fetchall())


@pytest.mark.parametrize("size", [1, 2], ids=["on the loop", "on a thread"])
async def test_a_create_cancelled_by_the_stop_of_the_server_gets_503(ask: Asker, size: int) -> None:
    """The create waits for a lock longer than the server waits for its calls. Seen red: 500 in
    plain text.
    """
    lock = await away(model.connect)
    try:
        await away(lock.execute, "BEGIN")
        await away(lock.execute, "SELECT FROM pools_pool WHERE name = 'lab' FOR UPDATE")
        held = asyncio.create_task(ask({"pool": "lab", "size": size}))
        await asyncio.sleep(0)  # it is read, and waits for its answer
        held.cancel()
        status, body = await asyncio.wait_for(held, LONG)
        assert (status, body["code"]) == (503, "stopping")
        assert {"Retry-After", "Content-Type"} <= set(ask.headers)
    finally:
        await away(lock.execute, "ROLLBACK")
        await away(lock.close)
