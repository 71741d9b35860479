"""Errors over HTTP as RFC 9457 problem details, with field, reason and way out."""

import errno
import json
import logging
import sys
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from django.core import exceptions as django_errors
from django.db import DataError, InterfaceError, OperationalError
from django.db import Error as DatabaseError
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponsePermanentRedirect,
    JsonResponse,
)
from django.template import loader
from django.urls import Resolver404
from django.views import defaults
from rest_framework import exceptions as drf
from rest_framework.response import Response

from project.kernel import errors as berth
from project.kernel import metrics

from .asgi_types import Send

logger = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
FULL_FOR = 30.0  # seconds in Retry-After: a disk stays full until an operator frees space
BROKEN_RULES = {"BR001", "BR002", "23505", "23514", "23P01", "23503", "23502"}
DISK_FULL = "53100"
FULL = {errno.ENOSPC, errno.EDQUOT}
# Lock and statement timeouts, deadlocks: the same call may succeed later.
BUSY = {"55P03", "57014", "40001", "40P01", "55006"}

STATUS: dict[type[berth.BerthError], int] = {
    berth.Invalid: 400,
    berth.Forbidden: 403,
    berth.NotFound: 404,
    berth.Conflict: 409,
    berth.Refused: 422,
    berth.TooLarge: 413,
    berth.TooMany: 429,
    berth.OutOfSpace: 507,
    berth.SlowClient: 408,
    berth.Unavailable: 503,
}

WAYS_OUT = {
    400: "Change the request as described; the same request gets the same error.",
    401: (
        "Send the header 'Authorization: Bearer TOKEN'. Create a token on the tokens page or "
        "with 'manage.py token create'."
    ),
    403: "Ask a person with the role admin.",
    404: "Read the list of these objects: the object may have another id, or be deleted.",
    405: "The schema at /api/docs/ lists the methods.",
    406: "Accept application/json.",
    413: "Send less in one request.",
    415: "Send JSON, with the header 'Content-Type: application/json'.",
    429: "Wait for the seconds in Retry-After.",
    500: "Check whether the change took place, then send the request again with the same "
    "Idempotency-Key. If it fails again, report the id to the operator of this server.",
    503: "Send the request again after a second.",
    507: "Ask the operator of this server to free disk space, then send the request again.",
}
UNKNOWN_OUTCOME = "If this request changes something, the change may or may not have been made."
RETRY_SAFELY = (
    "Send the request again after a few seconds; with the same Idempotency-Key the change is "
    "made only once."
)

ProblemBody = dict[str, Any]


class EncodedBody(drf.APIException):
    """Compressed bodies are refused: a small one can expand without limit."""

    status_code = 415
    default_code = "encoded_body"
    default_detail = "The body is encoded (Content-Encoding); only plain bodies are accepted."
    way_out = "Send the body uncompressed, without the header Content-Encoding."


class PreconditionFailed(berth.BerthError):
    code = "changed_meanwhile"


class PreconditionRequired(berth.BerthError):
    code = "if_match_required"


STATUS[PreconditionFailed] = 412
STATUS[PreconditionRequired] = 428


def problem(
    status: int,
    code: str,
    detail: str,
    way_out: str = "",
    errors: Iterable[berth.FieldError] = (),
    **data: object,
) -> ProblemBody:
    return {
        "type": f"urn:berth:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        "way_out": way_out or WAYS_OUT.get(status, ""),
        "errors": [asdict(e) for e in errors],
        **data,
    }


def problem_handler(error: Exception, context: dict[str, object]) -> Response:
    """DRF's EXCEPTION_HANDLER. No rollback is needed: requests are no transactions, and services
    open and close their own.
    """
    body, headers = describe(error)
    return Response(body, status=body["status"], headers=headers, content_type=CONTENT_TYPE)


def describe(error: BaseException) -> tuple[ProblemBody, dict[str, str]]:
    """The body and the headers of a problem. An unexpected error is logged with an id that the
    caller can quote.
    """
    error = _translate(error)
    if isinstance(error, berth.BerthError):
        status = status_of(error)
        body = problem(status, error.code, error.detail, error.way_out, error.fields, **error.data)
        wait = error.retry_after
        return body, {} if wait is None else {"Retry-After": str(max(1, round(wait)))}
    if isinstance(error, drf.APIException):
        return _describe_drf(error)
    number = uuid.uuid4().hex[:12]
    if (state := _sqlstate(error)) in BROKEN_RULES:
        metrics.BROKEN_RULES.labels(state).inc()
    logger.error("unexpected error %s", number, exc_info=error)
    detail = f"An unexpected error occurred on the server. {UNKNOWN_OUTCOME}"
    return problem(500, "unexpected", detail, id=number), {}


def status_of(error: berth.BerthError) -> int:
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 422)


def list_faults(detail: object, path: str = "") -> Iterator[berth.FieldError]:
    """One field error for each fault in DRF's nested lists and dicts, with the path of the field
    ("spec.members[2].name").
    """
    if isinstance(detail, dict):
        for name, inner in detail.items():
            if name == "non_field_errors":
                yield from list_faults(inner, path)
            else:
                yield from list_faults(
                    inner,
                    f"{path}[{name}]"
                    if isinstance(name, int)
                    else f"{path}.{name}"
                    if path
                    else str(name),
                )
    elif isinstance(detail, list | tuple):
        for place, inner in enumerate(detail):
            yield from list_faults(inner, path if isinstance(inner, str) else f"{path}[{place}]")
    else:
        yield berth.FieldError(
            path, str(detail), getattr(getattr(detail, "code", None), "way_out", "")
        )


# -- errors outside DRF, from middleware, the URL resolver and CSRF: handlers of project/urls.py ---


def is_for_programs(request: HttpRequest) -> bool:
    if request.path_info.startswith("/api/docs/"):
        return False
    return request.path_info.startswith("/api/") or "text/html" not in request.headers.get(
        "Accept", "text/html"
    )


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if is_for_programs(request):
        return respond(exception)
    page = "400-host.html" if isinstance(exception, django_errors.DisallowedHost) else "400.html"
    return defaults.bad_request(request, exception, page)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return (
        respond(exception)
        if is_for_programs(request)
        else defaults.permission_denied(request, exception)
    )


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if not is_for_programs(request):
        return defaults.page_not_found(request, exception)
    if isinstance(exception, Resolver404):
        way_out = "/api/docs/ lists the addresses; each ends with a slash."
        return respond(berth.NotFound("This address does not exist.", way_out=way_out))
    return respond(Http404())


def redirect_call(location: str) -> HttpResponsePermanentRedirect:
    """308: the client repeats the call with its body at the other address. The body tells clients
    that follow no redirects what to do.
    """
    detail = "The slash at the end of the address is missing; the request was not carried out."
    body = problem(308, "slash_missing", detail, f"Send the same request to {location}.")
    return HttpResponsePermanentRedirect(
        location, preserve_request=True, content=json.dumps(body), content_type=CONTENT_TYPE
    )


def server_error(request: HttpRequest) -> HttpResponseBase:
    error = sys.exc_info()[1]  # Django calls this while it handles the exception
    known = _translate(error) if error is not None else None
    if isinstance(known, berth.BerthError):
        answer = respond(known) if is_for_programs(request) else _show(known)
        # Keeps Django from logging a traceback of an expected error.
        answer._has_been_logged = True  # type: ignore[attr-defined]
        return answer
    if is_for_programs(request):
        return respond(error or RuntimeError("unknown"))
    return defaults.server_error(request)


def _show(error: berth.BerthError) -> HttpResponse:
    """A page about the error; it needs no database."""
    body, headers = describe(error)
    context = {"code": body["status"], "detail": body["detail"], "way": body["way_out"]}
    return HttpResponse(
        loader.render_to_string("refused.html", context), status=body["status"], headers=headers
    )


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """CSRF_FAILURE_VIEW."""
    if is_for_programs(request):
        detail = f"The request has a session but no valid CSRF token: {reason}"
        return respond(
            berth.Forbidden(
                detail,
                code="csrf",
                way_out="Send the header X-CSRFToken, or use a token instead of a session.",
            )
        )
    return defaults.permission_denied(request, django_errors.PermissionDenied(reason))


def respond(error: BaseException) -> HttpResponse:
    """The response of a problem, for middleware, handlers and ASGI."""
    body, headers = describe(error)
    return JsonResponse(body, status=body["status"], headers=headers, content_type=CONTENT_TYPE)


async def send_problem(
    send: Send, body: ProblemBody, headers: dict[str, str], *, is_handshake: bool
) -> None:
    """Sends a problem over ASGI, also as the answer to the handshake of a WebSocket."""
    content = json.dumps(body).encode()
    pairs = {**headers, "Content-Type": CONTENT_TYPE, "Content-Length": str(len(content))}
    kind = "websocket.http.response" if is_handshake else "http.response"
    encoded = [(name.lower().encode(), value.encode()) for name, value in pairs.items()]
    await send({"type": f"{kind}.start", "status": body["status"], "headers": encoded})
    await send({"type": f"{kind}.body", "body": content})


def _translate(error: BaseException) -> BaseException:
    """The BerthError for an error of Django, DRF, PostgreSQL or the disk; an unexpected error is
    returned unchanged.
    """
    match error:
        case Http404() | drf.NotFound():
            return berth.NotFound("The object does not exist, or you may not see it.")
        case django_errors.PermissionDenied():
            return berth.Forbidden(str(error))
        case django_errors.ValidationError():
            return berth.Invalid(
                fields=list(
                    list_faults(
                        error.message_dict if hasattr(error, "error_dict") else error.messages
                    )
                )
            )
        case django_errors.RequestDataTooBig():
            return drf.APIException(
                detail="The body is larger than the server accepts.", code="too_large"
            )
        case django_errors.DisallowedHost():
            return berth.Invalid(
                "The server does not accept the host name of this request.",
                code="unknown_host",
                way_out="Use a configured host name; the operator adds names to BERTH_HOSTS.",
            )
        case django_errors.SuspiciousOperation() | django_errors.BadRequest():
            return berth.Invalid(
                "The request is not valid HTTP and cannot be read.", code="bad_request"
            )
        case UnicodeEncodeError():
            return berth.Invalid(
                "A text contains half of a surrogate pair, which cannot be encoded.",
                code="bad_text",
            )
        case DataError():
            logger.warning("the database refused a value: %s", error)
            return berth.Invalid(
                "A value cannot be stored: a number is too large, or a text contains a forbidden "
                "character."
            )
        case DatabaseError():
            return _translate_database(error)
        case OSError() if error.errno in FULL:
            logger.warning("a disk of this server is full: %s", error)
            return berth.OutOfSpace(
                "A disk of the server is full. The data of this request was not stored.",
                code="disk_full",
                retry_after=FULL_FOR,
            )
    return error


def _translate_database(error: BaseException) -> BaseException:
    state = _sqlstate(error)
    if state in BUSY:
        return berth.Unavailable(
            "The request took too long in the database, for example because another process holds "
            "locks on the same rows. This request changed nothing.",
            code="busy",
        )
    if state == DISK_FULL:
        logger.warning("the disk of the database is full: %s", error)
        return berth.OutOfSpace(
            "The disk of the database is full. This request changed nothing.",
            code="disk_full",
            retry_after=FULL_FOR,
        )
    if isinstance(error, OperationalError | InterfaceError):
        logger.warning("the database does not answer: %s", error)
        return berth.Unavailable(
            f"The database does not answer. {UNKNOWN_OUTCOME}",
            code="database_away",
            way_out=RETRY_SAFELY,
            retry_after=3.0,
        )
    return error


def _sqlstate(error: BaseException) -> str:
    return getattr(error.__cause__, "sqlstate", None) or ""


def _describe_drf(error: drf.APIException) -> tuple[ProblemBody, dict[str, str]]:
    headers: dict[str, str] = {}
    status, detail, way_out, faults = (
        error.status_code,
        str(error.detail),
        str(getattr(error, "way_out", "")),
        list[berth.FieldError](),
    )
    code = str(getattr(error, "default_code", "error"))
    match error:
        case drf.ValidationError():
            faults = list(berth.cap_fields(list_faults(error.detail)))
            code, detail = "invalid", berth.Invalid(fields=faults).detail
        case drf.NotAuthenticated() | drf.AuthenticationFailed():
            status = 401
            headers["WWW-Authenticate"] = getattr(error, "auth_header", "") or "Bearer"
            if isinstance(error, drf.NotAuthenticated):
                detail = "The request has neither a token nor a session."
        case drf.PermissionDenied():
            code = "forbidden"
        case drf.Throttled():
            code = "too_many"
            headers["Retry-After"] = str(max(1, round(getattr(error, "wait", None) or 1)))
        case EncodedBody():
            headers["Accept-Encoding"] = "identity"
        case drf.UnsupportedMediaType():
            detail = "The body has an unsupported content type."
        case drf.ParseError():
            code = "unreadable"
        case _ if getattr(error.detail, "code", "") == "too_large":
            status, code = 413, "too_large"
    return problem(status, code, detail, way_out, faults), headers
