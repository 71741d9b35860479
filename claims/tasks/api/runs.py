"""Runs of a claim and their logs: in pages, with a long poll, or whole as text."""

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse

from claims.allocation.api.claims import LONGEST_WAIT, TAG, read_wait
from claims.allocation.api.permissions import require_all
from claims.allocation.selectors import view_claim
from claims.tasks import run_schemas
from claims.tasks.logs.logs import MOST_AT_ONCE, list_runs, read_log, read_text
from claims.tasks.logs.long_poll import wait_for_log
from claims.tasks.states.api import show_rescued
from claims.tasks.states.selectors import list_rescued
from pools.http.endpoint import describe, in_query, pages_of, read_choices, read_integer
from pools.http.fast_view import FastRequest, LeanEndpoint, answer

MOST_TAIL = 100_000
FORMATS = ("json", "text")


def find_claim(call: FastRequest, claim_id: int) -> None:
    claim = view_claim(claim_id)
    require_all(call.identity, "read", claim.id, claim.pool_id, claim.pools)


class RunList(LeanEndpoint):
    @describe("Runs of a claim", {200: pages_of(run_schemas.RunAnswer)}, name="list_runs", tag=TAG)
    def get(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """One run for each generation that an agent has started, oldest first."""
        find_claim(call, claim_id)
        states = {view.generation: show_rescued(view) for view in list_rescued(claim_id)}
        runs = [run | {"state": states.get(run["generation"])} for run in list_runs(claim_id)]
        return answer({"results": runs, "next": None})


class RunLog(LeanEndpoint):
    @describe(
        "Log of a run",
        {(200, "application/json"): run_schemas.LogAnswer, (200, "text/plain"): {"type": "string"}},
        query=[
            in_query(
                "after",
                "Number of known chunks: 0 at first, then `next` of the previous answer.",
                {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "default": 0},
            ),
            in_query(
                "limit",
                "Number of chunks in one answer.",
                {"type": "integer", "minimum": 1, "maximum": MOST_AT_ONCE, "default": MOST_AT_ONCE},
            ),
            in_query(
                "tail",
                "Only the last so many lines.",
                {"type": "integer", "minimum": 1, "maximum": MOST_TAIL},
            ),
            in_query(
                "wait",
                "Without new chunks, answer after the next one or after so many seconds.",
                {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT, "default": 0},
            ),
            in_query("format", "text: the whole log as a file.", choices=FORMATS),
        ],
        name="get_log",
        tag=TAG,
    )
    def get(self, call: FastRequest, claim_id: int, generation: int) -> HttpResponseBase:
        """Chunks of up to 64 kB, in order. The number of a line is the number of line breaks before
        it. Follow a growing log with `after` and `wait`.
        """
        known = read_integer(call, "after", low=0, high=2**31 - 1) or 0
        limit = read_integer(call, "limit", high=MOST_AT_ONCE) or MOST_AT_ONCE
        tail = read_integer(call, "tail", high=MOST_TAIL)
        is_text = read_choices(call, "format", FORMATS) == ("text",)
        left = read_wait(call)
        find_claim(call, claim_id)
        page = read_log(claim_id, generation, after=known - 1, limit=limit, tail=tail)
        if is_text:
            name = f"claim-{claim_id}-{generation}.log"
            response = StreamingHttpResponse(
                read_text(claim_id, generation), content_type="text/plain; charset=utf-8"
            )
            response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
            return response
        found = answer(page.as_dict(), Cache_Control="no-store")
        if left > 0 and not page.chunks and not page.is_whole:
            # See project.kernel.http.asgi.
            found.again = lambda: wait_for_log(claim_id, generation, page.next, left)  # type: ignore[attr-defined]
        return found
