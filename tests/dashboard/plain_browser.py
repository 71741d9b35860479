"""A browser without scripts that fetches pages, submits dialogs and finds buttons."""

import re
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from pools.models import Pool
from pools.roles.services import create_grant

DIALOG = {"HX-Request": "true"}


def browser_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def browser_as(role: str, pool: Pool) -> Client:
    user = User.objects.create_user(f"{role}-{pool.pk}")
    create_grant(role=role, user=user, pool=pool)
    return browser_of(user)


def html_of(answer: Any) -> str:
    """The HTML of a response as a browser lays it out: each run of white space is one space."""
    return re.sub(r"\s+", " ", answer.content.decode())


def get(client: Client, path: str, status: int = 200, **headers: str) -> str:
    answer = client.get(path, headers=headers)
    assert answer.status_code == status, (path, answer.status_code)
    return html_of(answer)


def post(client: Client, path: str, **fields: Any) -> Any:
    """As the dialog does: what was looked at comes along."""
    shown = client.get(
        path, {k: v for k, v in fields.items() if k == "claim"}, headers=DIALOG
    ).content.decode()
    seen = re.search(r'name="seen" value="(\w+)"', shown)
    return client.post(path, {"seen": seen[1] if seen else "", **fields}, headers=DIALOG)


def off(text: str, word: str) -> str | None:
    """Why a button is off; None: it is on."""
    found = re.search(rf'aria-disabled="true"( data-why="([^"]*)")?[^>]*>\s*{word}', text)
    return (found[2] or "") if found else None
