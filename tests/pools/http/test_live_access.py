"""Access to the live socket by its address and headers: Origin, session, token and roles."""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from channels.routing import URLRouter
from channels.sessions import CookieMiddleware
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

import project.urls  # noqa: F401  (every view, which registers its regions)
from pools.access.permissions import ADMIN, VIEWER
from pools.access.tokens import create_token, revoke_token
from pools.http.consumers import sockets
from pools.models import Pool, Token
from pools.roles.services import create_grant
from project.kernel.events.log import now_position
from project.kernel.live.socket import SIGNED_OUT
from project.kernel.security.sessions import SEEN
from slots.members.services import cordon_member
from tests.dashboard.helpers import chief, make_pool, member, person
from tests.live_stories import in_thread, play

pytestmark = pytest.mark.django_db(transaction=True)

HOST = "berth.example:8000"
HERE = f"http://{HOST}"
PATIENCE = 10.0  # seconds until a message that must come counts as lost
FORBIDDEN = 4403
application: Any = CookieMiddleware(URLRouter([*sockets]))  # as in project.asgi


@pytest.fixture(autouse=True)
def _hosts(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["berth.example"]
    settings.CSRF_TRUSTED_ORIGINS = ["https://berth.example.org"]


class Socket:
    """A client that opens /ws/live/ with these headers."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.incoming.put_nowait({"type": "websocket.connect"})
        scope = {
            "type": "websocket", "path": "/ws/live/", "raw_path": b"/ws/live/", "query_string": b"",
            "scheme": "ws", "client": ("192.0.2.7", 5000), "server": ("127.0.0.1", 8000),
            "subprotocols": [], "asgi": {"version": "3.0"},
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "extensions": {"websocket.http.response": {}},
        }  # fmt: skip
        self.task = asyncio.ensure_future(application(scope, self.incoming.get, self.sent.put))

    async def next(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            return await self.sent.get()

    async def answer(self) -> str:
        """How the server answers the handshake: open, signed out, or forbidden."""
        first = await self.next()
        if first["type"] == "websocket.accept":
            second = await self.next()
            if second["type"] == "websocket.close":
                assert second["code"] == SIGNED_OUT
                assert self.sent.empty(), "a frame for an unknown reader"
                return "signed out"
            assert "hello" in json.loads(second["text"])
            return "open"
        assert (first["type"], first["code"]) == ("websocket.close", FORBIDDEN)
        return "forbidden"

    async def watch(self, *names: str, after: str) -> set[str]:
        """The names that the reader may not see."""
        order = {"watch": [*names, "no-such-region"], "after": after}
        self.incoming.put_nowait({"type": "websocket.receive", "text": json.dumps(order)})
        gone = await self.hear(lambda frame: "gone" in frame)
        return set(gone["gone"]) - {"no-such-region"}

    async def hear(self, fits: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(PATIENCE):
            while True:
                message = await self.sent.get()
                if message["type"] == "websocket.send" and fits(json.loads(message["text"])):
                    return json.loads(message["text"])

    async def closed(self) -> int:
        async with asyncio.timeout(PATIENCE):
            while (message := await self.sent.get())["type"] != "websocket.close":
                pass
            return int(message["code"])

    async def leave(self) -> None:
        self.incoming.put_nowait({"type": "websocket.disconnect"})
        async with asyncio.timeout(PATIENCE):
            await self.task


def open_with(headers: dict[str, str]) -> str:
    answers = list[str]()

    async def story() -> None:
        socket = Socket(headers)
        answers.append(await socket.answer())
        await socket.leave()

    play(story)
    return answers[0]


def signed_in(user: User) -> Client:
    client = Client(HTTP_HOST=HOST)
    client.force_login(user)
    return client


def page_of(client: Client, origin: str = HERE, host: str = HOST) -> dict[str, str]:
    """Headers of a page's socket in this browser."""
    name = configured.SESSION_COOKIE_NAME
    cookie = f"{name}={client.cookies[name].value}" if name in client.cookies else "theme=dark"
    return {"Host": host, "Cookie": cookie} | ({"Origin": origin} if origin else {})


def program(secret: str, **more: str) -> dict[str, str]:
    return {"Host": HOST, "Authorization": f"Bearer {secret}", **more}


def session_of(client: Client) -> Any:
    key = client.cookies[configured.SESSION_COOKIE_NAME].value
    return import_module(configured.SESSION_ENGINE).SessionStore(key)


# -- Origin ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("origin", [HERE, f"https://{HOST}", "https://berth.example.org"])
def test_a_page_of_this_host_or_a_trusted_origin_opens_the_socket(origin: str) -> None:
    assert open_with(page_of(signed_in(chief()), origin)) == "open"


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "https://evil.example",
        "http://berth.example",
        "http://berth.example:8001",
        "http://berth.example:8000.evil.example",
        "http://evil.example/berth.example:8000",
        "ws://berth.example:8000",
        "http://berth.example.org",
        "https://sub.berth.example.org",
    ],
)
def test_another_origin_is_refused_though_the_session_is_valid(origin: str) -> None:
    assert open_with(page_of(signed_in(chief()), origin)) == "forbidden"


def test_an_origin_that_equals_a_host_that_is_not_allowed_is_refused() -> None:
    """DNS rebinding: the browser believes that the foreign page and Berth have one host."""
    headers = page_of(signed_in(chief()), "http://evil.example:8000", "evil.example:8000")
    assert open_with(headers) == "forbidden"


# -- sessions --------------------------------------------------------------------------------------
def test_without_a_session_the_socket_is_closed_without_a_frame() -> None:
    assert open_with(page_of(Client())) == "signed out"
    name = configured.SESSION_COOKIE_NAME
    unknown = {"Host": HOST, "Origin": HERE, "Cookie": f"{name}={'x' * 32}"}
    assert open_with(unknown) == "signed out"


def test_an_ended_session_does_not_open_the_socket() -> None:
    client = signed_in(chief())
    headers = page_of(client)
    assert open_with(headers) == "open"
    session = session_of(client)
    session[SEEN] = int(time.time()) - configured.BERTH_SESSION_IDLE - 60
    session.save()
    assert open_with(headers) == "signed out"


def test_the_session_of_an_inactive_user_does_not_open_the_socket() -> None:
    user = chief()
    headers = page_of(signed_in(user))
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert open_with(headers) == "signed out"


def test_the_session_of_a_changed_password_does_not_open_the_socket() -> None:
    user = chief()
    headers = page_of(signed_in(user))
    user.set_password("another horse battery")
    user.save()
    assert open_with(headers) == "signed out"


def test_signing_out_closes_the_open_socket_of_the_session() -> None:
    client = signed_in(chief())
    headers = page_of(client)

    async def story() -> None:
        socket = Socket(headers)
        assert await socket.answer() == "open"
        await in_thread(lambda: client.post("/logout/"))
        assert await socket.closed() == SIGNED_OUT
        await socket.leave()

    play(story)


# -- tokens ----------------------------------------------------------------------------------------
def token_of(user: User, **limits: Any) -> tuple[Token, str]:
    return create_token(user=user, name=f"t{Token.objects.count()}", **limits)


def test_a_token_opens_the_socket_without_an_origin() -> None:
    assert open_with(program(token_of(chief())[1])) == "open"


def test_an_invalid_token_does_not_open_the_socket() -> None:
    """Also where the same request has a valid session."""
    user = chief()
    revoked, revoked_secret = token_of(user)
    revoke_token(revoked.pk)
    expired, expired_secret = token_of(user, expires_at=timezone.now() + timedelta(hours=1))
    Token.objects.filter(pk=expired.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    session = page_of(signed_in(user))
    for secret in ("", "abc", "berth_" + "x" * 43, revoked_secret, expired_secret):
        assert open_with(program(secret)) == "signed out", secret
        assert open_with({**session, **program(secret)}) == "signed out", secret


def test_the_token_of_an_inactive_user_does_not_open_the_socket() -> None:
    user = chief()
    _, secret = token_of(user)
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert open_with(program(secret)) == "signed out"


def test_a_token_does_not_open_the_socket_under_another_scheme() -> None:
    _, secret = token_of(chief())
    for header in (secret, f"Token {secret}", f"Basic {secret}"):
        assert open_with({"Host": HOST, "Authorization": header}) == "forbidden"


def test_revoking_a_token_closes_its_open_socket() -> None:
    token, secret = token_of(chief())

    async def story() -> None:
        socket = Socket(program(secret))
        assert await socket.answer() == "open"
        await in_thread(lambda: revoke_token(token.pk))
        assert await socket.closed() == SIGNED_OUT
        await socket.leave()

    play(story)


# -- roles -----------------------------------------------------------------------------------------
REGIONS = ("pool.now:mine", "cells:mine", "pool.now:other", "cells:other")
OF_MINE, OF_OTHER = set(REGIONS[:2]), set(REGIONS[2:])


def hidden_from(headers: dict[str, str]) -> set[str]:
    found, start = set[str](), str(now_position())

    async def story() -> None:
        socket = Socket(headers)
        assert await socket.answer() == "open"
        found.update(await socket.watch(*REGIONS, after=start))
        await socket.leave()

    play(story)
    return found


@pytest.fixture
def mine() -> Pool:
    make_pool("other")
    return make_pool("mine")


def test_a_session_sees_the_pools_of_its_roles_only(mine: Pool) -> None:
    assert hidden_from(page_of(signed_in(person("nobody")))) == OF_MINE | OF_OTHER
    assert hidden_from(page_of(signed_in(person("vera", VIEWER, pool=mine)))) == OF_OTHER
    assert hidden_from(page_of(signed_in(person("olga", VIEWER)))) == set()


def test_a_token_sees_the_pools_of_its_roles_and_limits_only(mine: Pool) -> None:
    assert hidden_from(program(token_of(person("nobody"))[1])) == OF_MINE | OF_OTHER
    vera = person("vera", VIEWER, pool=mine)
    assert hidden_from(program(token_of(vera)[1])) == OF_OTHER
    olga = person("olga", ADMIN)
    assert hidden_from(program(token_of(olga)[1])) == set()
    assert hidden_from(program(token_of(olga, pools=[mine])[1])) == OF_OTHER


def test_a_session_gets_no_frame_of_a_pool_that_it_may_not_see(mine: Pool) -> None:
    headers = page_of(signed_in(person("vera", VIEWER, pool=mine)))
    start = str(now_position())

    async def story() -> None:
        socket = Socket(headers)
        assert await socket.answer() == "open"
        await socket.watch(*REGIONS, "overview.events", after=start)
        for name in ("other-1", "mine-1"):
            reason = f"reason of {name}"
            await in_thread(
                lambda name=name, reason=reason: cordon_member(  # type: ignore[misc]
                    member_id=member(name).pk, reason=reason
                )
            )
        heard = list[str]()

        def is_last(frame: Any) -> bool:
            heard.append(json.dumps(frame))
            return frame.get("region") == "overview.events" and "reason of mine-1" in frame["html"]

        await socket.hear(is_last)
        assert not any("other-1" in text or ":other" in text for text in heard)
        await socket.leave()

    play(story)


def test_a_new_role_is_used_by_the_open_socket(mine: Pool) -> None:
    user = person("nobody")
    headers, start = page_of(signed_in(user)), str(now_position())

    async def story() -> None:
        socket = Socket(headers)
        assert await socket.answer() == "open"
        assert await socket.watch(*REGIONS, after=start) == OF_MINE | OF_OTHER
        await in_thread(lambda: create_grant(role=VIEWER, user=user, pool=mine))
        await socket.hear(lambda frame: "reload" in frame)
        assert await socket.watch(*REGIONS, after=start) == OF_OTHER
        await socket.leave()

    play(story)
