"""Who calls the API: a program with a token, or a person with a session (whose changes carry the
CSRF token).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.request import Request

from pools.access.permissions import Identity, load_identity
from pools.access.rate_limit import buckets, count_request, count_unknown, refuse_repeated
from pools.access.tokens import (
    BadToken,
    CachedToken,
    find_cached_token,
    hash_secret,
    identify_token,
)
from project.kernel.http.bodies import BodyCaller

SCHEME = "bearer "
COUNTED = "berth_counted"


class Unauthenticated(AuthenticationFailed):
    """401 with the reason of the token."""

    def __init__(self, error: BadToken) -> None:
        super().__init__(error.detail)
        self.default_code = error.code
        self.auth_header = 'Bearer error="invalid_token"'


def identify_bearer(request: HttpRequest) -> Identity | None:
    """None: no token came with it."""
    header: str = request.META.get("HTTP_AUTHORIZATION", "")
    if not header:
        return None
    return identify_header(header, request.META.get("REMOTE_ADDR", ""), partial(count, request))


def identify_header(header: str, address: str, take: Callable[[str], None]) -> Identity:
    """The caller of a header Authorization. A caller beyond its share is refused before the
    database is asked.
    `take`: counts a call of a known caller."""
    if header[: len(SCHEME)].lower() != SCHEME:
        raise Unauthenticated(BadToken("The header Authorization does not begin with Bearer."))
    secret = header[len(SCHEME) :].strip()
    caller = hash_secret(secret)
    if known := buckets().is_known(caller):
        take(caller)
    else:
        refuse_repeated(address, caller)
    try:
        identity = identify_token(secret)
    except BadToken as error:
        if error.is_unknown:
            count_unknown(address, caller)
        elif not known:  # one that was revoked has a share of its own, too
            take(caller)
        raise Unauthenticated(error)
    if not known:
        take(caller)
    return identity


def find_cached_bearer(request: HttpRequest) -> tuple[Identity, CachedToken] | None:
    """The caller as it was a moment ago, for what is done in one statement that looks again. The
    request is counted.
    """
    header: str = request.META.get("HTTP_AUTHORIZATION", "")
    if header[: len(SCHEME)].lower() != SCHEME:
        return None
    secret = header[len(SCHEME) :].strip()
    known = find_cached_token(secret)
    if known is not None:
        count(request, known[1].hash)
    return known


def identify_session(request: HttpRequest) -> Identity | None:
    user: Any = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    identity = load_identity(user.pk)
    if identity is not None:
        count(request, f"user:{identity.user_id}")
    return identity


def guard_caller(request: HttpRequest) -> BodyCaller:
    """Before a large body is read: the name of a known caller. What it may do is checked
    with the body.
    """
    if (known := find_cached_bearer(request)) is not None:
        return _as_body_caller(known[0].user_id)
    if (identity := identify_bearer(request)) is not None:
        return _as_body_caller(identity.user_id)
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
    session = SessionStore(key)
    if not key or SESSION_KEY not in session:
        raise NotAuthenticated
    return _as_body_caller(session[SESSION_KEY])


def _as_body_caller(user: object) -> BodyCaller:
    return BodyCaller(f"user:{user}", f"user:{user}")


def count(request: HttpRequest, caller: str) -> None:
    """A request that waits is answered more than once inside, and is one request all the same."""
    scope: dict[str, Any] = getattr(request, "scope", {})
    if not scope.get(COUNTED):
        scope[COUNTED] = True
        count_request(caller)


class TokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[Any, Identity] | None:
        identity = identify_bearer(request._request)
        return None if identity is None else (AnonymousUser(), identity)

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class PersonAuthentication(SessionAuthentication):
    """A session; what changes something needs its CSRF token."""

    def authenticate(self, request: Request) -> tuple[Any, Identity] | None:  # type: ignore[override]
        identity = identify_session(request._request)
        if identity is None:
            return None
        self.enforce_csrf(request)
        return request._request.user, identity


def identify(request: HttpRequest) -> Identity:
    """For views that are not DRF's. Raises what DRF's handler knows."""
    identity = identify_bearer(request)
    if identity is None:
        identity = identify_session(request)
        if identity is None:
            raise NotAuthenticated
        PersonAuthentication().enforce_csrf(request)  # type: ignore[arg-type]
    return identity


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "pools.access.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A token: from the page Tokens, or `manage.py token create`.",
        }


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "pools.access.authentication.PersonAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {
            "type": "apiKey",
            "in": "cookie",
            "name": "sessionid",
            "description": "As in the browser; changes need X-CSRFToken, too.",
        }
