"""Response times for Prometheus, by view and status: the number of series stays bounded."""

import time
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from project.kernel.metrics import HTTP_SECONDS

from .deferred import DeferredResponse

Answer = Callable[[HttpRequest], HttpResponse]


class TimeRequests:
    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        begun = time.perf_counter()
        response = self.get_response(request)
        if isinstance(response, DeferredResponse):
            response.at_end.append(lambda answer: _observe(request, answer, begun))
        else:
            _observe(request, response, begun)
        return response


def _observe(request: HttpRequest, response: HttpResponse, begun: float) -> None:
    HTTP_SECONDS.labels(_view_of(request), response.status_code).observe(
        time.perf_counter() - begun
    )


def _view_of(request: HttpRequest) -> str:
    """The label of the view. Long polls have a label of their own; all unknown addresses share
    one.
    """
    match = request.resolver_match
    if match is None:
        return "none"
    return match.view_name + (" wait" if "wait" in request.GET else "")
