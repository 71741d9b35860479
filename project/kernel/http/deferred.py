"""The head of an answer whose rest comes later, so that a view need not keep a thread while it
waits for others.

On the event loop (project.kernel.http.asgi) a view that touches no database is called there,
through every middleware. What it wants done it says in `finish`: a coroutine function that gives
the answer, or None: it could not be given so, and the call is answered by a thread like any other.
The headers that middleware has set go along with the answer.
"""

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

from django.http import HttpRequest, HttpResponse

Finish = Callable[[], Awaitable[HttpResponse | None]]
# In the scope of a request that is answered on the event loop: where to leave what would block it.
THREADS = "berth_threads"
TRIED = "berth_tried"  # in the scope of one that could not be


class DeferredResponse(HttpResponse):
    def __init__(self, finish: Finish | None) -> None:
        super().__init__()
        self.finish = finish  # None: not here
        # Of middleware that wants to know what became of it.
        self.at_end: list[Callable[[HttpResponse], None]] = []

    def complete(self, answer: HttpResponse) -> HttpResponse:
        for name, value in self.items():
            if name != "Content-Length":
                answer.headers.setdefault(name, value)
        if not answer.has_header("Content-Length"):
            answer.headers["Content-Length"] = str(len(answer.content))
        for tell in self.at_end:
            tell(answer)
        return answer


def threads_of(request: HttpRequest) -> Executor | None:
    """None: this call is on a thread of its own."""
    scope: dict[str, Any] = getattr(request, "scope", {})
    return scope.get(THREADS)


def was_tried(request: HttpRequest) -> bool:
    scope: dict[str, Any] = getattr(request, "scope", {})
    return TRIED in scope
