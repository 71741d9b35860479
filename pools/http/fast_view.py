"""Resources that are called thousands of times a minute: the same declarations and answers as any
Endpoint, without DRF's own request, negotiation and serializers in between. A claim over HTTP costs
little more than its two statements.
"""

import functools
import json
from collections.abc import Collection, Mapping
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
CHANGES = ("POST", "PUT", "PATCH", "DELETE")


class FastRequest:
    """One request, as far as anybody reads it. The names are those of DRF's request."""

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
        """The body; an empty one is an empty object."""
        body = self.request.body
        if not body:
            return {}
        refuse_encoded(self.request.META)
        if self.request.content_type != JSON:
            raise UnsupportedMediaType(self.request.content_type or "")
        return read_json(body)

    def read_raw(self, limit: int, what: str, types: Collection[str] = ()) -> bytes:
        """The body as it is. Django's own limit is for forms and JSON; this one is the caller's."""
        refuse_encoded(self.request.META)
        if types and self.request.content_type not in types:
            raise UnsupportedMediaType(self.request.content_type or "")
        data = self.request.read(limit + 1)
        if len(data) > limit:
            raise TooLarge(f"{what} is larger than {limit} bytes.", limit=limit)
        return data


class LeanEndpoint(Endpoint):
    """Handlers take a Call and answer with `answer(...)`. `as_view` gives a plain view that the
    schema reads like DRF's.
    """

    methods: ClassVar[tuple[str, ...]] = ("get", "post", "put", "patch", "delete")

    def make_call(self, request: HttpRequest) -> FastRequest:
        """Who calls is found out here, before anything else."""
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

        @csrf_exempt  # a session's CSRF token is checked once it is known that a session calls
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

        answer_call.cls = cls  # type: ignore[attr-defined]  # where the schema looks
        answer_call.initkwargs = initkwargs  # type: ignore[attr-defined]
        return answer_call


def answer_at_once(
    view: LeanEndpoint, handler: Any, request: HttpRequest
) -> HttpResponseBase | None:
    """A way around asking who calls: the handler (`post_at_once`) acts in one statement that makes
    sure of it, or does nothing and answers None. Then the call is answered in the usual way,
    refusals included: nobody is told anything who may not call any more."""
    if (
        was_tried(request)
        or request.META.get("QUERY_STRING")
        or (known := find_cached_bearer(request)) is None
    ):
        return None
    identity, proof = known
    with acting_as(identity.actor):
        try:
            found: HttpResponseBase | None = handler(view, FastRequest(request, identity), proof)
        except (BerthError, APIException, SynchronousOnlyOperation):
            # The last: it would have asked the database on the event loop.
            return None
    return found


def answer(body: Any, status: int = 200, **headers: str) -> HttpResponse:
    response = HttpResponse(write_json(body), status=status, content_type=JSON)
    for name, value in headers.items():
        response.headers[name.replace("_", "-")] = value
    return response


def refuse(error: Exception, handlers: Mapping[str, Any]) -> HttpResponse:
    body, headers = describe(error)
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(handlers)
    return HttpResponse(
        write_json(body), status=body["status"], content_type=CONTENT_TYPE, headers=headers
    )


def write_json(body: Any) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=_write_other)


def _write_other(value: Any) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
