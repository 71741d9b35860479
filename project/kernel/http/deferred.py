"""A response that a view completes later, so that the view holds no thread while it waits.

The ASGI handler (project.kernel.http.asgi) calls a view of BERTH_SHORT_CALLS on the event loop,
through every middleware; the view must not use the database. The view returns a DeferredResponse
with `finish`, a coroutine function that returns the response. If `finish` is missing or returns
None, a thread answers the call. Headers that middleware has set are copied to the response.
"""

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from django.http import HttpRequest, HttpResponse

Finish = Callable[[], Awaitable[HttpResponse | None]]
# Keys in the scope. THREADS: the request runs on the event loop; these threads take blocking work.
# TRIED: the event loop could not answer the request.
THREADS = "berth_threads"
TRIED = "berth_tried"


class DeferredResponse(HttpResponse):
    def __init__(self, finish: Finish | None) -> None:
        super().__init__()
        self.finish = finish  # None: a thread must answer
        # Callbacks of middleware for the final response.
        self.at_end: list[Callable[[HttpResponse], None]] = []

    def complete(self, answer: HttpResponse) -> HttpResponse:
        for name, value in self.items():
            if name != "Content-Length":
                answer.headers.setdefault(name, value)
        if not answer.has_header("Content-Length"):
            answer.headers["Content-Length"] = str(len(answer.content))
        for callback in self.at_end:
            callback(answer)
        return answer


def threads_of(request: HttpRequest) -> Executor | None:
    """The threads for blocking work; None if the request already has a thread."""
    threads: Executor | None = getattr(request, "scope", {}).get(THREADS)
    return threads


def was_tried(request: HttpRequest) -> bool:
    return TRIED in getattr(request, "scope", {})
