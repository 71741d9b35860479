"""The API's schema as it is served."""

from typing import Any

from django.http import HttpResponse
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request


class SchemaView(SpectacularAPIView):
    """It says the same to everybody and takes a while to build: once a process and form."""

    def _get_schema_response(self, request: Request) -> HttpResponse:
        renderer: Any = request.accepted_renderer
        if renderer.media_type not in _built:
            response = super()._get_schema_response(request)  # type: ignore[no-untyped-call]
            _built[renderer.media_type] = renderer.render(response.data, renderer_context={})
        return HttpResponse(_built[renderer.media_type], content_type=renderer.media_type)


_built: dict[str, bytes] = {}
