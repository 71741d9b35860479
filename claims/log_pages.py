"""The log of a run for its claim's page: the end of it, what came since, all of it, or a file."""

from typing import Any

from django.http import JsonResponse, StreamingHttpResponse

from claims.api.rules import may_see, no_such_claim
from claims.logs import MOST_AT_ONCE, read_log, read_text
from claims.selectors import view_claim
from pools.pages import signed_in

LONGEST_TAIL = 5000


@signed_in
def show_log(request: Any, claim_id: int, generation: int) -> Any:
    claim = view_claim(claim_id)
    if not may_see(request.identity, claim):
        raise no_such_claim(claim_id)
    if request.GET.get("format") == "text":
        answer = StreamingHttpResponse(read_text(claim_id, generation), content_type="text/plain; charset=utf-8")
        answer["Content-Disposition"] = f'attachment; filename="claim-{claim_id}-{generation}.log"'
        answer["X-Content-Type-Options"] = "nosniff"
        return answer
    tail = number(request.GET.get("tail", ""))
    found = read_log(
        claim_id,
        generation,
        after=-1 if (after := number(request.GET.get("after", ""))) is None else after,
        limit=MOST_AT_ONCE,
        tail=None if tail is None else min(tail, LONGEST_TAIL),
    )
    return JsonResponse(found.as_dict())


def number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
