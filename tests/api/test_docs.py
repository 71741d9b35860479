"""The schema and its page are public, and the page keeps to the strict content policy."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from rest_framework.request import Request

from project.schema import SchemaView


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


def test_two_requests_at_once_build_the_schema_once(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived = threading.Barrier(3)
    builds: list[int] = []
    respond = SchemaView._get_schema_response

    def note_arrival(view: SchemaView, request: Request) -> HttpResponse:
        arrived.wait(10)
        return respond(view, request)

    def get_schema(*args: Any, **kwargs: Any) -> dict[str, Any]:
        builds.append(threading.get_ident())
        return {"openapi": "3.0.3", "padding": ["x"] * 100_000}

    monkeypatch.setattr("project.schema._built", {})
    monkeypatch.setattr(SchemaView, "_get_schema_response", note_arrival)
    monkeypatch.setattr(SchemaGenerator, "get_schema", get_schema)
    with ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(Client().get, "/api/schema/?format=json") for _ in range(2)]
        arrived.wait(10)
        assert [answer.result(10).status_code for answer in answers] == [200, 200]
    assert len(builds) == 1


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
