"""Every refusal over HTTP in one shape: RFC 9457 problem details, with the field, the reason and
the way out.
"""

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

logger = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
FULL_FOR = 30.0  # seconds; a full disk stays full until somebody makes room
BROKEN_RULES = {"BR001", "BR002", "23505", "23514", "23P01", "23503", "23502"}
DISK_FULL = "53100"
FULL = {errno.ENOSPC, errno.EDQUOT}
# Somebody else's lock, or too much to read: the same call may succeed.
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
    400: "Change the request as described; sending it again as it is gives the same answer.",
    401: (
        "Send the header 'Authorization: Bearer TOKEN'. A token is made on the tokens page, or "
        "with 'manage.py token create'."
    ),
    403: "Ask somebody with the role admin for it.",
    404: "Look at the list that should hold it: it may have another id, or be gone.",
    405: "The schema at /api/docs/ says which methods there are.",
    406: "Ask for application/json.",
    413: "Send less at a time.",
    415: "Send JSON, with the header 'Content-Type: application/json'.",
    429: "Wait as long as Retry-After says.",
    500: "Look whether it has happened, then send it again, with the same Idempotency-Key. If it "
    "fails again, tell whoever runs this server, with the id.",
    503: "Send it again after a second.",
    507: "Ask whoever runs this server to make room on its disk, then send it again.",
}


class EncodedBody(drf.APIException):
    """A compressed body could be made of anything, and grow without end."""

    status_code = 415
    default_code = "encoded_body"
    default_detail = "The body is encoded (Content-Encoding), and is read here as it is only."
    way_out = "Send it uncompressed, without the header Content-Encoding."


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
    **data: Any,
) -> dict[str, Any]:
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


def problem_handler(error: Exception, context: dict[str, Any]) -> Response:
    """DRF's EXCEPTION_HANDLER. Nothing is rolled back here: no request is a transaction,
    services open and close their own.
    """
    body, headers = describe(error)
    return Response(body, status=body["status"], headers=headers, content_type=CONTENT_TYPE)


def describe(error: BaseException) -> tuple[dict[str, Any], dict[str, str]]:
    """The body and the headers. What nobody expected is logged here, under an id that the caller
    can quote.
    """
    error = _translate(error)
    if isinstance(error, berth.BerthError):
        status = status_of(error)
        body = problem(status, error.code, error.detail, error.way_out, error.fields, **error.data)
        wait = getattr(error, "retry_after", None)
        return body, {} if wait is None else {"Retry-After": str(max(1, round(wait)))}
    if isinstance(error, drf.APIException):
        return _describe_drf(error)
    number = uuid.uuid4().hex[:12]
    if (state := _sqlstate(error)) in BROKEN_RULES:
        metrics.BROKEN_RULES.labels(state).inc()
    logger.error("unexpected error %s", number, exc_info=error)
    detail = (
        "Something here went wrong that nobody expected. If this call changes something, that may "
        "or may not have happened."
    )
    return problem(500, "unexpected", detail, id=number), {}


def status_of(error: berth.BerthError) -> int:
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 422)


def list_faults(detail: Any, path: str = "") -> Iterator[berth.FieldError]:
    """One field error for each fault, however deep DRF nests them: "spec.members[2].name"."""
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


# Answers outside DRF: what middleware, the URL resolver and CSRF refuse. Named as handlers in
# project/urls.py. ---


def is_for_programs(request: HttpRequest) -> bool:
    if request.path_info.startswith("/api/docs/"):
        return False
    return request.path_info.startswith("/api/") or "text/html" not in request.headers.get(
        "Accept", "text/html"
    )


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if is_for_programs(request):
        return _respond(exception)
    page = "400-host.html" if isinstance(exception, django_errors.DisallowedHost) else "400.html"
    return defaults.bad_request(request, exception, page)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return (
        _respond(exception)
        if is_for_programs(request)
        else defaults.permission_denied(request, exception)
    )


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if not is_for_programs(request):
        return defaults.page_not_found(request, exception)
    if isinstance(exception, Resolver404):
        way_out = "The addresses are at /api/docs/; each ends with a slash."
        return _respond(berth.NotFound("There is nothing under this address.", way_out=way_out))
    return _respond(Http404())


def redirect_call(location: str) -> HttpResponsePermanentRedirect:
    """308: the same call, body and all, at the other address. Who follows nothing is told
    what is wrong.
    """
    detail = "This address ends with a slash; nothing was done."
    body = problem(308, "slash_missing", detail, f"Send the same call to {location}.")
    return HttpResponsePermanentRedirect(
        location, preserve_request=True, content=json.dumps(body), content_type=CONTENT_TYPE
    )


def server_error(request: HttpRequest) -> HttpResponseBase:
    error = sys.exc_info()[1]  # Django calls this while it handles the exception
    known = _translate(error) if error is not None else None
    if isinstance(known, berth.BerthError):
        answer = _respond(known) if is_for_programs(request) else _show(known)
        # Django would add a traceback to what is known and said.
        answer._has_been_logged = True  # type: ignore[attr-defined]
        return answer
    if is_for_programs(request):
        return _respond(error or RuntimeError("unknown"))
    return defaults.server_error(request)


def _show(error: berth.BerthError) -> HttpResponse:
    """A page that needs no database."""
    body, headers = describe(error)
    context = {"code": body["status"], "said": body["detail"], "way": body["way_out"]}
    return HttpResponse(
        loader.render_to_string("refused.html", context), status=body["status"], headers=headers
    )


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """CSRF_FAILURE_VIEW."""
    if is_for_programs(request):
        detail = f"This call comes with a session but without its CSRF token: {reason}"
        return _respond(
            berth.Forbidden(
                detail,
                code="csrf",
                way_out="Send the header X-CSRFToken, or use a token instead of a session.",
            )
        )
    return defaults.permission_denied(request, django_errors.PermissionDenied(reason))


def _respond(error: BaseException) -> HttpResponse:
    body, headers = describe(error)
    return JsonResponse(body, status=body["status"], headers=headers, content_type=CONTENT_TYPE)


def _translate(error: BaseException) -> BaseException:
    """What other layers raise, in our own words. Anything else comes back as it is."""
    match error:
        case Http404() | drf.NotFound():
            return berth.NotFound(
                "There is nothing here under this address, or nothing that you may see."
            )
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
                detail="The body is larger than what is accepted here.", code="too_large"
            )
        case django_errors.DisallowedHost():
            return berth.Invalid(
                "This server does not answer to the name under which it was asked.",
                code="unknown_host",
                way_out=(
                    "Ask it by a name it knows; whoever runs it names more of them in BERTH_HOSTS."
                ),
            )
        case django_errors.SuspiciousOperation() | django_errors.BadRequest():
            return berth.Invalid(
                "The request cannot be read: it is not put together as HTTP wants it.",
                code="bad_request",
            )
        case UnicodeEncodeError():
            return berth.Invalid(
                "A text holds half of a surrogate pair, which no encoding can carry.",
                code="bad_text",
            )
        case DataError():
            logger.warning("the database refused a value: %s", error)
            return berth.Invalid(
                "A value is outside of what can be stored: a number too large, or a character that "
                "no text may hold."
            )
        case DatabaseError():
            return _translate_database(error)
        case OSError() if error.errno in FULL:
            logger.warning("a disk of this server is full: %s", error)
            return berth.OutOfSpace(
                "A disk of the server is full. What was sent is not kept.",
                code="disk_full",
                retry_after=FULL_FOR,
            )
    return error


def _translate_database(error: BaseException) -> BaseException:
    state = _sqlstate(error)
    if state in BUSY:
        return berth.Unavailable(
            "Something else works on the same rows and took too long. Nothing was "
            "changed by this call.",
            code="busy",
        )
    if state == DISK_FULL:
        logger.warning("the disk of the database is full: %s", error)
        return berth.OutOfSpace(
            "The disk of the database is full. Nothing was changed by this call.",
            code="disk_full",
            retry_after=FULL_FOR,
        )
    if isinstance(error, OperationalError | InterfaceError):
        logger.warning("the database does not answer: %s", error)
        return berth.Unavailable(
            "The database does not answer. If this call changes something, that may or may not "
            "have happened.",
            code="database_away",
            way_out=(
                "Send it again after a few seconds; with the same Idempotency-Key nothing "
                "is done twice."
            ),
            retry_after=3.0,
        )
    return error


def _sqlstate(error: BaseException) -> str:
    return getattr(error.__cause__, "sqlstate", None) or ""


def _describe_drf(error: drf.APIException) -> tuple[dict[str, Any], dict[str, str]]:
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
                detail = "This needs to know who asks: no token and no session came with it."
        case drf.PermissionDenied():
            code = "forbidden"
        case drf.Throttled():
            code = "too_many"
            headers["Retry-After"] = str(max(1, round(getattr(error, "wait", None) or 1)))
        case EncodedBody():
            headers["Accept-Encoding"] = "identity"
        case drf.UnsupportedMediaType():
            detail = "The body is of a type that is not read here."
        case drf.ParseError():
            code = "unreadable"
        case _ if getattr(error.detail, "code", "") == "too_large":
            status, code = 413, "too_large"
    return problem(status, code, detail, way_out, faults), headers
