"""Access to the WebSocket of live pages, checked when it opens and again while it is open.

A person has a session, and then the Origin must be a page of Berth. A program has a token in the
Authorization header; a browser cannot send that header, so a token needs no Origin. The address
never contains a secret.
"""

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.http.request import split_domain_port, validate_host
from django.urls import path

from pools.access.authentication import Unauthenticated, identify_header, read_bearer
from pools.access.permissions import Identity, load_identity
from pools.access.rate_limit import count_request
from pools.access.tokens import BadToken, identify_token
from project.kernel.http.asgi_types import Receive, Scope, Send
from project.kernel.live.socket import LiveSocket
from project.kernel.security.sessions import is_over


class SessionAccess:
    def __init__(self, key: str | None) -> None:
        self.key = key

    def identify(self) -> Identity | None:
        if not self.key:
            return None
        session = import_module(settings.SESSION_ENGINE).SessionStore(self.key)
        request: Any = SimpleNamespace(session=session)
        user = get_user(request)
        if not user.is_authenticated or is_over(session, time.time()):
            return None
        return load_identity(user.pk)


class TokenAccess:
    """The first check counts as a call of the API, and an unknown token as a failed attempt. Later
    checks do not count.
    """

    def __init__(self, secret: str, first: Callable[[], Identity]) -> None:
        self.secret = secret
        self.first: Callable[[], Identity] | None = first

    def identify(self) -> Identity | None:
        first, self.first = self.first, None
        try:
            return identify_token(self.secret) if first is None else first()
        except (BadToken, Unauthenticated):
            return None


def is_from_here(origin: str, host: str) -> bool:
    """Whether a page of Berth opens the socket: its origin has the host and port of the request, or
    the settings name it (behind a proxy). The host must be allowed, because after DNS rebinding a
    foreign page also has an origin equal to the host.
    """
    at = urlsplit(origin)
    if at.scheme not in ("http", "https") or not validate_host(
        split_domain_port(host)[0], settings.ALLOWED_HOSTS
    ):
        return False
    return at.netloc == host or origin in settings.CSRF_TRUSTED_ORIGINS


async def live(scope: Scope, receive: Receive, send: Send) -> None:
    headers = dict(scope["headers"])
    header = headers.get(b"authorization", b"").decode("latin-1")
    access: SessionAccess | TokenAccess
    if (secret := read_bearer(header)) is not None:
        address = (scope.get("client") or ("",))[0]
        access = TokenAccess(secret, partial(identify_header, header, address, count_request))
    elif is_from_here(
        headers.get(b"origin", b"").decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
    ):
        access = SessionAccess(scope.get("cookies", {}).get(settings.SESSION_COOKIE_NAME))
    else:
        await receive()
        # The socket is not accepted yet, so the client gets 403.
        await send({"type": "websocket.close", "code": 4403})
        return
    await LiveSocket(access, send).run(receive)


sockets = [path("ws/live/", live)]  # type: ignore[arg-type]  # an ASGI application, for URLRouter
