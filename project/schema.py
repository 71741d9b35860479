"""The schemas as they are served: OpenAPI of the API, JSON Schema of a pool file."""

import threading
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import cache_control
from django.views.decorators.http import conditional_page, require_safe
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

from pools.config.spec import pool_schema
from pools.providers.base import option_readers


class SchemaView(SpectacularAPIView):
    """OpenAPI. The text is the same for every caller and takes seconds to build: a process builds
    it once for each media type, one request at a time, because drf-spectacular loads its extensions
    without a lock and answers the second request of two with an error.
    """

    def _get_schema_response(self, request: Request) -> HttpResponse:
        renderer: Any = request.accepted_renderer
        with _building:
            if renderer.media_type not in _built:
                response = super()._get_schema_response(request)  # type: ignore[no-untyped-call]
                _built[renderer.media_type] = renderer.render(response.data, renderer_context={})
        return HttpResponse(_built[renderer.media_type], content_type=renderer.media_type)


_built: dict[str, bytes] = {}
_building = threading.Lock()


def add_pool_config(result: dict[str, Any], **context: object) -> dict[str, Any]:
    """Adds the component PoolConfig to the OpenAPI schema. PUT takes the name from the address."""
    config = pool_schema(option_readers())
    del config["required"]
    result["components"]["schemas"]["PoolConfig"] = config
    return result


@require_safe
@cache_control(public=True, max_age=3600)
@conditional_page
def show_pool_schema(request: HttpRequest) -> HttpResponse:
    """JSON Schema (draft 2020-12) of a pool file, for editors. Open to everybody, as OpenAPI is."""
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Berth pool"}
    return JsonResponse(about | pool_schema(option_readers()))
