"""REST API for secrets of a pool. Names can be listed, values can only be written."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from pools.access.permissions import require
from pools.http.endpoint import REASON, Endpoint, describe, pages_of, read_body, read_text
from pools.lifecycle.selectors import get_pool
from pools.models import Pool
from pools.secrets.services import MAX_SECRET_LENGTH, delete_secret, list_secrets, set_secret
from project.kernel.http.api_base import StrictSerializer, TextInput
from project.kernel.validation import LONGEST_REASON

TAG = "secrets"


class SecretBody(StrictSerializer):
    value = TextInput(
        max_length=MAX_SECRET_LENGTH,
        trim_whitespace=False,
        help_text="The value for tasks. No answer of the API contains it.",
        write_only=True,
    )
    reason = TextInput(
        max_length=LONGEST_REASON,
        allow_blank=True,
        default="",
        help_text="Shown in events.",
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
        """Names of the secrets. Only agents of the pool receive values, for tasks that name the
        secret.
        """
        pool = self.find(pool_name)
        return Response(
            {"results": SecretAnswer(list_secrets(pool.pk), many=True).data, "next": None}
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
        """Creates the secret (201) or changes its value (200). Tasks that start from now on receive
        the value; their logs mask it.
        """
        pool = self.find(pool_name)
        body = read_body(request, SecretBody)
        secret, is_new = set_secret(
            pool_id=pool.pk, name=secret_name, value=body["value"], reason=body["reason"]
        )
        return Response(SecretAnswer(secret).data, status=201 if is_new else 200)

    @describe("Delete a secret", {204: None}, query=[REASON], name="delete_secret", tag=TAG)
    def delete(self, request: Request, pool_name: str, secret_name: str) -> Response:
        """Tasks that name the secret fail from now on, with an error that names it."""
        pool = self.find(pool_name)
        delete_secret(
            pool_id=pool.pk, name=secret_name, reason=read_text(request, "reason", LONGEST_REASON)
        )
        return Response(status=204)
