"""REST about secrets of a pool: their names are listed, their values are only ever written."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from pools.access.permissions import require
from pools.http.endpoint import REASON, Endpoint, describe, pages_of, read_body, read_text
from pools.lifecycle.selectors import get_pool
from pools.models import Pool
from pools.secrets.services import LONGEST, SecretView, delete_secret, list_secrets, set_secret
from project.kernel.http.api_base import StrictSerializer
from project.kernel.validation import LONGEST_REASON

TAG = "secrets"


class SecretBody(StrictSerializer):
    value = serializers.CharField(
        max_length=LONGEST,
        trim_whitespace=False,
        help_text="What tasks get. It is never told again.",
        write_only=True,
    )
    reason = serializers.CharField(
        max_length=LONGEST_REASON,
        required=False,
        allow_blank=True,
        default="",
        help_text="Others read it.",
    )


class SecretAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    changed_at = serializers.DateTimeField()


class SecretEndpoint(Endpoint):
    def find(self, pool_name: str) -> Pool:
        pool = get_pool(pool_name)
        require(self.identity, "configure", pool)
        return pool


class SecretList(SecretEndpoint):
    @describe("Secrets of a pool", {200: pages_of(SecretAnswer)}, name="list_secrets", tag=TAG)
    def get(self, request: Request, pool_name: str) -> Response:
        """Their names. What they are is told to the agents of the pool alone, when a task
        names them.
        """
        pool = self.find(pool_name)
        return Response(
            {"results": [show(secret) for secret in list_secrets(pool.pk)], "next": None}
        )


class SecretDetail(SecretEndpoint):
    @describe(
        "Set a secret",
        {200: SecretAnswer, 201: SecretAnswer},
        body=SecretBody,
        problems=(409,),
        name="set_secret",
        tag=TAG,
    )
    def put(self, request: Request, pool_name: str, secret_name: str) -> Response:
        """New (201), or another value (200). Tasks that begin from now on get it; it stands
        masked in their logs.
        """
        pool = self.find(pool_name)
        body = read_body(request, SecretBody)
        secret, is_new = set_secret(
            pool_id=pool.pk, name=secret_name, value=body["value"], reason=body["reason"]
        )
        return Response(show(secret), status=201 if is_new else 200)

    @describe("Delete a secret", {204: None}, query=[REASON], name="delete_secret", tag=TAG)
    def delete(self, request: Request, pool_name: str, secret_name: str) -> Response:
        """Tasks that name it fail from now on, and say so."""
        pool = self.find(pool_name)
        delete_secret(
            pool_id=pool.pk, name=secret_name, reason=read_text(request, "reason", LONGEST_REASON)
        )
        return Response(status=204)


def show(secret: SecretView) -> dict[str, Any]:
    return {"name": secret.name, "changed_at": secret.changed_at}
