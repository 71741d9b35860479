"""GET /agent/berth-agent.pyz: the agent for other machines. Public, for it holds no secret; who
has it still needs a member's token.
"""

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response
from django.views.decorators.http import require_safe

from slots.agent.version import name_version
from slots.agent_build import NAME, build_agent


@require_safe
def agent_file(request: HttpRequest) -> HttpResponseBase:
    data, digest = build_agent()
    etag = f'"{digest}"'
    response = HttpResponse(data, content_type="application/zip")
    response.headers["ETag"] = etag
    response.headers["Content-Disposition"] = f'attachment; filename="{NAME}"'
    # May be kept, is asked for again: one agent, one server.
    response.headers["Cache-Control"] = "public, no-cache"
    response.headers["Berth-Agent-Version"] = name_version()
    response.headers["Berth-Digest"] = digest
    return get_conditional_response(request, etag=etag, response=response) or response
