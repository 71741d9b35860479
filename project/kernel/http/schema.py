"""The API's schema: drf-spectacular derives it from the views; each operation also declares the
problem that it may return.
"""

from typing import Any

from drf_spectacular.openapi import AutoSchema
from rest_framework import serializers

from .problems import CONTENT_TYPE


class FieldProblem(serializers.Serializer[Any]):
    field = serializers.CharField(help_text='Path of the field, such as "spec.members[2].name".')
    message = serializers.CharField()
    way_out = serializers.CharField(allow_blank=True)


class Problem(serializers.Serializer[Any]):
    """RFC 9457 problem details."""

    type = serializers.CharField(help_text="urn:berth:problem: followed by the code")
    title = serializers.CharField(help_text="Name of the HTTP status.")
    status = serializers.IntegerField()
    code = serializers.CharField(help_text="Stable code for programs.")
    detail = serializers.CharField(help_text="The fault, in words for people.")
    way_out = serializers.CharField(allow_blank=True, help_text="What the caller can do about it.")
    errors = FieldProblem(many=True)  # type: ignore[assignment]


class ProblemSchema(AutoSchema):
    """Adds the problem response to every operation. DEFAULT_SCHEMA_CLASS names this class."""

    def _get_response_bodies(self, direction: str = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)  # type: ignore[arg-type]
        component = self.resolve_serializer(Problem, "response")
        bodies.setdefault(
            "default",
            {
                "description": "The request was refused; the body gives the reason.",
                "content": {CONTENT_TYPE: {"schema": component.ref}},
            },
        )
        return bodies
