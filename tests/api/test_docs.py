"""The schema and its page are public, and the page keeps to the strict content policy."""

import re

from django.test import Client


def test_the_schema_lists_the_error_answers_of_every_operation(db: None) -> None:
    schema = Client().get("/api/schema/?format=json").json()
    assert schema["openapi"].startswith("3.")
    for path, operations in schema["paths"].items():
        assert path.startswith("/api/v1/"), path
        for method, operation in operations.items():
            answers = operation["responses"]
            assert "default" not in answers, (method, path)
            assert {"400", "401", "403", "429", "503"} <= set(answers), (method, path)
            for status, answer in answers.items():
                if int(status) >= 400:
                    assert list(answer["content"]) == ["application/problem+json"], (
                        method,
                        path,
                        status,
                    )
    assert schema["paths"]["/api/v1/claims/"]["post"]["responses"].keys() >= {
        "201",
        "202",
        "409",
        "422",
    }


def test_the_docs_page_needs_no_relaxed_content_policy(db: None) -> None:
    page = Client().get("/api/docs/")
    assert page.status_code == 200
    policy = page.headers["Content-Security-Policy"]
    assert "unsafe-eval" not in policy
    assert "script-src" not in policy.replace("default-src 'self'", "")
    html = page.content.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)", html), "no inline script"
    assert "<style" not in html, "no inline style"
    assert not re.search(r"(?:src|href)=\"https?://", html), "nothing from elsewhere"
    script = re.search(r'src="([^"]*script=[^"]*)"', html)
    assert script is not None
    assert Client().get(script[1]).headers["Content-Type"].startswith("application/javascript")
