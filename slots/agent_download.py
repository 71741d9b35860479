"""GET /agent/berth-agent.pyz: the one-file agent. The file is public: it contains no secret, and an
agent needs the token of a member.
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
    # Caches must revalidate, so that agent and server have the same version.
    response.headers["Cache-Control"] = "public, no-cache"
    response.headers["Berth-Agent-Version"] = name_version()
    response.headers["Berth-Digest"] = digest
    return get_conditional_response(request, etag=etag, response=response) or response
