"""Fixtures of the API tests: users with roles, their tokens, and a JSON client."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from pools.access.tokens import create_token
from pools.models import Pool
from pools.roles.services import create_grant
from tests.api.world import standing, world

__all__ = ["standing", "world"]


@dataclass
class Answer:
    status: int
    body: Any
    headers: dict[str, str]


@dataclass
class Caller:
    """A program with a token, or without any."""

    secret: str = ""
    client: Client = field(default_factory=lambda: Client(raise_request_exception=False))

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.secret:
            sent.setdefault("Authorization", f"Bearer {self.secret}")
        text = "" if body is None else body if isinstance(body, str | bytes) else json.dumps(body)
        response = self.client.generic(
            method, f"/api/v1/{path}", text, content_type="application/json", headers=sent
        )
        has_json = "json" in response.get("Content-Type", "")
        return Answer(
            response.status_code,
            json.loads(response.getvalue()) if has_json else response.getvalue(),
            dict(response.headers),
        )

    def get(self, path: str, **headers: str) -> Answer:
        return self("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self("POST", path, body, **headers)


Callers = Callable[..., Caller]


@pytest.fixture
def caller(db: None) -> Callers:
    """`caller("operator", pool)`: a new user with that role there (no pool: everywhere; no role:
    none), and her token.
    """

    def make(role: str = "", pool: Pool | None = None, *, name: str = "", **limits: Any) -> Caller:
        user = User.objects.create_user(
            name or f"{role or 'nobody'}{User.objects.count()}", password=None
        )
        if role == "superuser":
            User.objects.filter(pk=user.pk).update(is_superuser=True)
        elif role:
            create_grant(role=role, user=user, pool=pool)
        return Caller(create_token(user=user, name="test", **limits)[1])

    return make
