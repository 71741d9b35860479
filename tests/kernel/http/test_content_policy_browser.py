"""The admin and the schema page work in a real browser under the content policy without a
violation.
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
def test_third_party_page_works_under_the_content_policy(
    page: Any, sign_in: SignIn, site: str, chief: User, path: str
) -> None:
    sign_in(page, chief)
    answer = page.goto(path, wait_until="networkidle")
    assert answer.status == 200


def test_schema_page_works_under_the_content_policy(
    page: Any, sign_in: SignIn, chief: User
) -> None:
    sign_in(page, chief)
    page.goto("/api/docs/")
    page.get_by_text("/api/v1/").first.wait_for()
