"""Base of all REST resources: the caller, the query, pages of results, and an OpenAPI schema that
names each possible answer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import cache
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

from django.db.models import Model
from django.http import QueryDict
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotAuthenticated
from rest_framework.request import Request as DRFRequest
from rest_framework.response import Response
from rest_framework.views import APIView

from pools.access.authentication import PersonAuthentication, TokenAuthentication
from pools.access.permissions import Identity
from project.kernel.actor import acting_as
from project.kernel.errors import FieldError, Invalid, wrong_field
from project.kernel.events.log import Position
from project.kernel.http.api_base import BIGINT
from project.kernel.http.problems import CONTENT_TYPE
from project.kernel.http.schema import Problem, ProblemSchema
from project.kernel.validation import parse_moment

Handler = TypeVar("Handler", bound=Callable[..., Any])
M = TypeVar("M", bound=Model)
Shape = serializers.Serializer[Any]


class Request(Protocol):
    """DRF's request, or a FastRequest, for the functions that parse a query."""

    @property
    def query_params(self) -> QueryDict: ...
    @property
    def path(self) -> str: ...
    def build_absolute_uri(self, location: str) -> str: ...


ALWAYS = (400, 401, 403, 429, 503)
WITH_BODY = (408, 413, 415, 507)
LIMIT, MAX_PAGE_SIZE = 50, 500


class EndpointSchema(ProblemSchema):
    """Lists each error by its status, because with a default response every answer would count as
    documented.
    """

    def _get_response_bodies(self, direction: str = "response") -> dict[str, object]:
        bodies = super()._get_response_bodies(direction)
        bodies.pop("default", None)
        for status in list_problems(self.view, self.method, self.path):
            bodies[str(status)] = self.describe_problem(status)
        return dict(sorted(bodies.items()))

    def describe_problem(self, status: int) -> dict[str, object]:
        schema = self.resolve_serializer(Problem, "response").ref
        body: dict[str, object] = {
            "description": HTTPStatus(status).phrase,
            "content": {CONTENT_TYPE: {"schema": schema}},
        }
        if status in (429, 503):
            body["headers"] = {
                "Retry-After": {
                    "description": "Seconds.",
                    "schema": {"type": "string", "pattern": r"^\d+$"},
                }
            }
        return body


def list_problems(view: object, method: str, path: str) -> list[int]:
    handler = getattr(view, method.lower())
    found = {*ALWAYS, *getattr(handler, "problems", ())}
    if method in ("POST", "PUT", "PATCH"):
        found |= set(WITH_BODY)
    if "{" in path:
        found.add(404)
    return sorted(found)


def describe(
    summary: str,
    # By status, or by status and media type.
    answers: Mapping[int, object] | Mapping[tuple[int, str], object],
    *,
    body: object = None,  # a serializer, or a JSON Schema
    media: str = "application/json",  # of a body with a schema
    query: Sequence[OpenApiParameter] = (),
    headers: Sequence[OpenApiParameter] = (),
    problems: Iterable[int] = (),
    name: str = "",
    tag: str = "",
    examples: Sequence[OpenApiExample] = (),
) -> Callable[[Handler], Handler]:
    """Declares a call for the OpenAPI schema and for the parser: other query parameters are
    refused.
    """

    def decorate(handler: Handler) -> Handler:
        handler.known_query = frozenset(p.name for p in query)  # type: ignore[attr-defined]
        handler.problems = tuple(problems)  # type: ignore[attr-defined]
        return extend_schema(
            summary=summary,
            description=handler.__doc__ or "",
            operation_id=name or None,
            request={media: body} if isinstance(body, dict) else body,
            responses={
                key: OpenApiResponse(what, description=phrase_of(key))
                for key, what in answers.items()
            },
            parameters=[*query, *headers],
            tags=[tag] if tag else None,
            examples=list(examples),
        )(handler)

    return decorate


class DescribeChange(Protocol):
    def __call__(
        self, summary: str, body: object, name: str, *problems: int
    ) -> Callable[[Handler], Handler]: ...


def describe_changes(answer: object, tag: str) -> DescribeChange:
    """Declares calls that answer with what they changed, or with 409."""

    def describe_change(
        summary: str, body: object, name: str, *problems: int
    ) -> Callable[[Handler], Handler]:
        return describe(
            summary, {200: answer}, body=body, problems=(409, *problems), name=name, tag=tag
        )

    return describe_change


def phrase_of(key: int | tuple[int, str]) -> str:
    return HTTPStatus(key[0] if isinstance(key, tuple) else key).phrase


class Endpoint(APIView):
    authentication_classes = (TokenAuthentication, PersonAuthentication)
    permission_classes = ()
    schema = EndpointSchema()

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        with ExitStack() as self.request_context:
            return super().dispatch(request, *args, **kwargs)

    def initial(self, request: DRFRequest, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.auth is None:
            raise NotAuthenticated
        self.request_context.enter_context(acting_as(self.identity.actor))
        handler = getattr(self, (request.method or "").lower(), None)
        if handler is not None:  # None: DRF refuses the method
            refuse_unknown_query(request, getattr(handler, "known_query", frozenset()))

    @property
    def identity(self) -> Identity:
        return self.request.auth  # type: ignore[return-value]


def refuse_unknown_query(request: Request, known: frozenset[str]) -> None:
    """Raise Invalid for unknown and repeated parameters, because a misspelt filter would show all
    rows, and one of two values would be ignored.
    """
    names = ", ".join(sorted(known))
    way_out = f"Known: {names}." if names else "Leave it out."
    faults = [
        FieldError(name[:80], "This parameter is not known.", way_out)
        for name in request.query_params
        if name not in known
    ]
    faults += [
        FieldError(name, "This text holds a NUL character.")
        for name in known
        if "\x00" in request.query_params.get(name, "")
    ]
    for name, values in request.query_params.lists():
        if name in known and len(values) > 1:
            faults.append(
                FieldError(
                    name,
                    f"This parameter is given {len(values)} times.",
                    "Give it once; most take several values with commas between.",
                )
            )
    if faults:
        raise Invalid(fields=faults)


def read_body(request: DRFRequest, kind: type[Shape]) -> dict[str, Any]:
    """The checked values of the body. Raises all faults at once."""
    if not isinstance(request.data, Mapping):
        raise Invalid("The body is not an object.", way_out='Send JSON like {"reason": "..."}.')
    given = kind(data=request.data)
    given.is_valid(raise_exception=True)
    return dict(given.validated_data)


@cache
def names_in(answer: type[Shape]) -> tuple[str, ...]:
    return tuple(answer().fields)


def show(answer: type[Shape], thing: object, **others: object) -> dict[str, object]:
    """The fields that an answer declares: attributes of `thing` with the same names, and `others`
    for fields that have another name or form there.
    """
    return {
        name: others[name] if name in others else getattr(thing, name) for name in names_in(answer)
    }


# Query parameters ---------------------------------------------------------------------------------


def in_query(
    name: str,
    description: str,
    kind: type[str] | type[bool] | type[int] | type[datetime] | dict[str, Any] = str,
    *,
    choices: Sequence[str] | None = None,
    many: bool = False,
) -> OpenApiParameter:
    return OpenApiParameter(
        name,
        kind,
        OpenApiParameter.QUERY,
        description=description,
        enum=choices,
        many=many,
        explode=False,
    )


PAGES = (
    in_query(
        "limit",
        f"Results per page, up to {MAX_PAGE_SIZE}.",
        {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": LIMIT},
    ),
    in_query("cursor", "Start of the page, from `next` of the previous page.", str),
)
NEEDED_REASON = OpenApiParameter(
    "reason",
    {"type": "string", "minLength": 1, "maxLength": 500},
    OpenApiParameter.QUERY,
    required=True,
    description="Reason, recorded in the event log.",
)
REASON = in_query(
    "reason", "Reason, recorded in the event log.", {"type": "string", "maxLength": 500}
)


def read_integer(request: Request, name: str, *, low: int = 1, high: int = BIGINT) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        raise wrong_field(name, f"This is not a whole number from {low} to {high}.")
    return int(text)


def read_flag(request: Request, name: str) -> bool | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if text not in ("true", "false"):
        raise wrong_field(name, "This is neither true nor false.")
    return text == "true"


def read_choices(request: Request, name: str, known: Iterable[str]) -> tuple[str, ...]:
    """One or several values, separated by commas."""
    text = request.query_params.get(name)
    if text is None:
        return ()
    known = tuple(known)
    found = tuple(dict.fromkeys(text.split(",")))
    if unknown := [word for word in found if word not in known]:
        raise wrong_field(
            name,
            f"{', '.join(unknown)[:60] or 'Nothing'} is not known here.",
            f"Known: {', '.join(known)}.",
        )
    return found


def read_text(request: Request, name: str, longest: int = 200) -> str:
    text: str = request.query_params.get(name, "")
    if len(text) > longest:
        raise wrong_field(name, f"{len(text)} characters are too many.", f"Use {longest} at most.")
    return text


def read_moment(request: Request, name: str) -> datetime | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    way_out = "Write 2026-03-29T14:00:00+01:00 (with + as %2B), or end it with Z."
    moment = parse_moment(text)
    if moment is None:
        raise wrong_field(name, "This is not a moment in ISO 8601.", way_out)
    if moment.tzinfo is None:
        raise wrong_field(name, "This time has no offset.", way_out)
    if not 1970 < moment.year < 9999:
        raise wrong_field(name, "This moment is out of reach.", way_out)
    return moment


def read_position(request: Request, name: str) -> Position | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        return Position.parse(text)
    except ValueError:
        raise wrong_field(
            name,
            "This position is not one that was given out.",
            "Take it from an answer, or leave it out.",
        )


# Pages --------------------------------------------------------------------------------------------


def read_page(request: Request) -> tuple[int, int | None]:
    """The number of results, and the id after (or before) which the page begins."""
    return read_integer(request, "limit", high=MAX_PAGE_SIZE) or LIMIT, read_integer(
        request, "cursor", low=0
    )


def page(request: Request, results: Sequence[object], cursor: int | str | None) -> Response:
    return Response(page_of(request, results, cursor))


def page_of(
    request: Request, results: Sequence[object], cursor: int | str | None
) -> dict[str, object]:
    return {"results": results, "next": next_url(request, cursor)}


def next_url(request: Request, cursor: int | str | None, name: str = "cursor") -> str | None:
    if cursor is None:
        return None
    query = request.query_params.copy()
    query[name] = str(cursor)
    return request.build_absolute_uri(f"{request.path}?{query.urlencode()}")


def cut(rows: Sequence[M], limit: int) -> tuple[Sequence[M], int | None]:
    """The page, and the id after which the next page begins. `rows` has one row more than `limit`
    if there is a next page.
    """
    return rows[:limit], rows[limit - 1].pk if len(rows) > limit else None


def pages_of(item: type[Shape], name: str = "") -> type[Shape]:
    """The schema of a page of results."""
    fields = {
        "results": item(many=True),
        "next": serializers.CharField(
            allow_null=True, help_text="The next page; null: this is the last."
        ),
    }
    return type(f"{name or item.__name__}Page", (serializers.Serializer,), fields)
