"""Base of resources with thousands of calls a minute. Declarations and answers are those of an
Endpoint, without the cost of DRF's request, negotiation and serializers. A claim over HTTP costs
little more than its two statements.
"""

import functools
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar

from django.core.exceptions import SynchronousOnlyOperation
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import APIException, MethodNotAllowed, UnsupportedMediaType

from pools.access.authentication import find_cached_bearer, identify
from pools.access.permissions import Identity
from pools.http.endpoint import Endpoint, refuse_unknown_query
from project.kernel.actor import acting_as
from project.kernel.errors import BerthError, TooLarge
from project.kernel.http.api_base import read_json, refuse_encoded
from project.kernel.http.deferred import DeferredResponse, threads_of, was_tried
from project.kernel.http.problems import CONTENT_TYPE, describe
from project.kernel.ui.formatting import rfc3339

JSON = "application/json"


class FastRequest:
    """A request with the attributes that handlers read, named as in DRF's request."""

    __slots__ = ("identity", "request")

    def __init__(self, request: HttpRequest, identity: Identity) -> None:
        self.request = request
        self.identity = identity

    @property
    def actor(self) -> str:
        return self.identity.actor

    @property
    def query_params(self) -> QueryDict:
        return self.request.GET

    @property
    def headers(self) -> Mapping[str, str]:
        return self.request.headers

    @property
    def path(self) -> str:
        return self.request.path

    def build_absolute_uri(self, location: str) -> str:
        return self.request.build_absolute_uri(location)

    def read(self) -> Any:
        """The parsed body; an empty object if there is none."""
        body = self.request.body
        if not body:
            return {}
        refuse_encoded(self.request.META)
        if self.request.content_type != JSON:
            raise UnsupportedMediaType(self.request.content_type or "")
        return read_json(body)

    def read_raw(self, limit: int, what: str, types: Collection[str] = ()) -> bytes:
        """The bytes of the body. `limit` replaces Django's limit for forms and JSON."""
        refuse_encoded(self.request.META)
        if types and self.request.content_type not in types:
            raise UnsupportedMediaType(self.request.content_type or "")
        data = self.request.read(limit + 1)
        if len(data) > limit:
            raise TooLarge(f"{what} is larger than {limit} bytes.", limit=limit)
        return data


class LeanEndpoint(Endpoint):
    """Handlers take a FastRequest and return `answer(...)`. `as_view` returns a plain view, which
    the OpenAPI schema reads like a view of DRF.
    """

    methods: ClassVar[tuple[str, ...]] = ("get", "post", "put", "patch", "delete")

    def make_call(self, request: HttpRequest) -> FastRequest:
        """Identifies the caller, before the handler runs."""
        return FastRequest(request, identify(request))

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        described = super().as_view(**initkwargs)
        handlers = {name.upper(): getattr(cls, name) for name in cls.methods if hasattr(cls, name)}
        short = {
            name.upper(): getattr(cls, f"{name}_at_once")
            for name in cls.methods
            if hasattr(cls, f"{name}_at_once")
        }
        view = cls()

        @csrf_exempt  # `identify` checks the CSRF token if the caller has a session
        @functools.wraps(described, updated=())
        def answer_call(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            try:
                at_once = short.get(request.method or "")
                if (
                    at_once is not None
                    and (done := answer_at_once(view, at_once, request)) is not None
                ):
                    return done
                if threads_of(request) is not None:
                    return DeferredResponse(None)
                handler = handlers.get("GET" if request.method == "HEAD" else request.method or "")
                call = view.make_call(request)
                if handler is None:
                    raise MethodNotAllowed(request.method or "")
                with acting_as(call.actor):
                    if request.META.get("QUERY_STRING"):
                        refuse_unknown_query(call, handler.known_query)
                    found: HttpResponseBase = handler(view, call, **kwargs)
                    return found
            except Exception as error:
                return refuse(error, handlers)

        answer_call.cls = cls  # type: ignore[attr-defined]  # for the OpenAPI schema
        answer_call.initkwargs = initkwargs  # type: ignore[attr-defined]
        return answer_call


def answer_at_once(
    view: LeanEndpoint, handler: Callable[..., HttpResponseBase | None], request: HttpRequest
) -> HttpResponseBase | None:
    """Answers a call without a lookup of the caller. The handler (`post_at_once`) acts in one
    statement that also checks the token, or makes no change and returns None. The usual way then
    answers the call, so that a revoked token gets its refusal.
    """
    if (
        was_tried(request)
        or request.META.get("QUERY_STRING")
        or (known := find_cached_bearer(request)) is None
    ):
        return None
    identity, cached_token = known
    with acting_as(identity.actor):
        try:
            return handler(view, FastRequest(request, identity), cached_token)
        except (BerthError, APIException, SynchronousOnlyOperation):
            # SynchronousOnlyOperation: the handler needs the database on the event loop.
            return None


def answer(body: object, status: int = 200, **headers: str) -> HttpResponse:
    response = HttpResponse(write_json(body), status=status, content_type=JSON)
    for name, value in headers.items():
        response.headers[name.replace("_", "-")] = value
    return response


def refuse(error: Exception, handlers: Iterable[str]) -> HttpResponse:
    body, headers = describe(error)
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(handlers)
    return HttpResponse(
        write_json(body), status=body["status"], content_type=CONTENT_TYPE, headers=headers
    )


def write_json(body: object) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=_write_other)


def _write_other(value: object) -> object:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
