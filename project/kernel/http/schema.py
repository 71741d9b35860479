"""The API's schema: what drf-spectacular reads off the views, and that every refusal is
a problem.
"""

from typing import Any

from drf_spectacular.openapi import AutoSchema
from rest_framework import serializers

from .problems import CONTENT_TYPE


class FieldProblem(serializers.Serializer[Any]):
    field = serializers.CharField(help_text='Where: "spec.members[2].name".')
    message = serializers.CharField()
    way_out = serializers.CharField(allow_blank=True)


class Problem(serializers.Serializer[Any]):
    """RFC 9457 problem details."""

    type = serializers.CharField(help_text="urn:berth:problem: and the code")
    title = serializers.CharField(help_text="The name of the status.")
    status = serializers.IntegerField()
    code = serializers.CharField(help_text="Stable, for programs.")
    detail = serializers.CharField(help_text="What is the matter, for people.")
    way_out = serializers.CharField(allow_blank=True, help_text="What to do instead.")
    errors = FieldProblem(many=True)  # type: ignore[assignment]


class ProblemSchema(AutoSchema):
    """Adds the answer that every operation may give: DEFAULT_SCHEMA_CLASS."""

    def _get_response_bodies(self, direction: str = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)  # type: ignore[arg-type]
        component = self.resolve_serializer(Problem, "response")
        bodies.setdefault(
            "default",
            {
                "description": "Refused, and why.",
                "content": {CONTENT_TYPE: {"schema": component.ref}},
            },
        )
        return bodies
