"""Authentication of callers of the API: programs by token, people by session. A change in a session
needs its CSRF token.
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.request import Request

from pools.access.permissions import Identity, load_identity
from pools.access.rate_limit import count_request, count_unknown, limit_caller
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


def read_bearer(header: str) -> str | None:
    """The token of a header Authorization; None if it is empty or names another scheme."""
    return header[len(SCHEME) :].strip() if header[: len(SCHEME)].lower() == SCHEME else None


def identify_bearer(request: HttpRequest) -> Identity | None:
    """The caller of a request with a token, or None if the request has no token."""
    header: str = request.META.get("HTTP_AUTHORIZATION", "")
    if not header:
        return None
    return identify_header(header, request.META.get("REMOTE_ADDR", ""), partial(count, request))


def identify_header(header: str, address: str, count_call: Callable[[str], None]) -> Identity:
    """The caller of a header Authorization. `count_call` counts a call. A caller beyond its rate
    limit is rejected before the token is looked up in the database.
    """
    secret = read_bearer(header)
    if secret is None:
        raise Unauthenticated(BadToken("The header Authorization does not begin with Bearer."))
    caller = hash_secret(secret)
    with limit_caller(caller, address, count_call) as is_counted:
        try:
            return identify_token(secret)
        except BadToken as error:
            if error.is_unknown:
                count_unknown(address, caller)
            elif not is_counted:  # a revoked token has a rate limit of its own, too
                count_call(caller)
            raise Unauthenticated(error)


def find_cached_bearer(request: HttpRequest) -> tuple[Identity, CachedToken] | None:
    """The cached caller of a token. The statement that uses it checks that the cache is still
    valid. Counts the request. None: the token is not cached.
    """
    secret = read_bearer(request.META.get("HTTP_AUTHORIZATION", ""))
    known = None if secret is None else find_cached_token(secret)
    if known is not None:
        count(request, known[1].hash)
    return known


def identify_session(request: HttpRequest) -> Identity | None:
    """The caller of a request with a session, or None."""
    user: User | AnonymousUser | None = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    identity = load_identity(user.pk)
    if identity is not None:
        count(request, f"user:{identity.user_id}")
    return identity


def guard_caller(request: HttpRequest) -> BodyCaller:
    """The name of the caller, before a large body is read. Permissions are checked with the
    body. Raises NotAuthenticated for unknown callers.
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
    """Count the request once, also where a long poll runs its view several times."""
    scope: dict[str, object] = getattr(request, "scope", {})
    if not scope.get(COUNTED):
        scope[COUNTED] = True
        count_request(caller)


class TokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[AnonymousUser, Identity] | None:
        identity = identify_bearer(request._request)
        return None if identity is None else (AnonymousUser(), identity)

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class PersonAuthentication(SessionAuthentication):
    """Sessions. A request that changes data needs the CSRF token."""

    def authenticate(self, request: Request) -> tuple[User | AnonymousUser, Identity] | None:
        identity = identify_session(request._request)
        if identity is None:
            return None
        self.enforce_csrf(request)
        return request._request.user, identity


def identify(request: HttpRequest) -> Identity:
    """The caller, for views outside of DRF. Raises the exceptions that DRF's handler answers."""
    identity = identify_bearer(request)
    if identity is None:
        identity = identify_session(request)
        if identity is None:
            raise NotAuthenticated
        PersonAuthentication().enforce_csrf(request)  # type: ignore[arg-type]
    return identity


class AuthenticationScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes a class of authentication in OpenAPI."""

    kind: ClassVar[dict[str, str]] = {"type": "http", "scheme": "bearer"}
    description: ClassVar[str]

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {**self.kind, "description": self.description}


class TokenScheme(AuthenticationScheme):  # type: ignore[no-untyped-call]
    target_class = TokenAuthentication
    name = "token"
    description = "A token, from the page Tokens or from `manage.py token create`."


class SessionScheme(AuthenticationScheme):  # type: ignore[no-untyped-call]
    target_class = PersonAuthentication
    name = "session"
    kind = {"type": "apiKey", "in": "cookie", "name": "sessionid"}
    description = "The session of a browser. Changes also need the header X-CSRFToken."
