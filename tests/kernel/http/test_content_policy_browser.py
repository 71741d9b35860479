"""The content policy in a real browser: what the admin and the schema's page bring along works
under it, without a complaint.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

SignIn = Callable[[Any, User], None]


@pytest.fixture
def chief() -> User:
    return User.objects.create_superuser("chief", password="correct horse")


@pytest.mark.parametrize(
    "path", ["/admin/", "/admin/auth/user/", "/admin/auth/user/add/", "/api/docs/"]
)
def test_a_page_of_others_works_under_our_policy(
    page: Any, sign_in: SignIn, site: str, chief: User, path: str
) -> None:
    sign_in(page, chief)
    answer = page.goto(path, wait_until="networkidle")
    assert answer.status == 200


def test_the_schema_is_shown(page: Any, sign_in: SignIn, chief: User) -> None:
    sign_in(page, chief)
    page.goto("/api/docs/")
    page.get_by_text("/api/v1/").first.wait_for()
