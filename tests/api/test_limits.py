"""A caller that sends more than its share, and bodies that are larger than anybody needs."""

from typing import Any

import pytest
from django.test import RequestFactory

from pools import limits
from pools.authentication import count
from pools.limits import Buckets
from tests.api.conftest import Callers
from tests.api.kit import make_pool


@pytest.fixture(autouse=True)
def fresh_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_buckets", None)


def test_a_bucket_fills_with_time() -> None:
    now = [0.0]
    buckets = Buckets(60, clock=lambda: now[0])
    assert [buckets.take("a") for _ in range(60)] == [0.0] * 60
    assert buckets.take("a") == pytest.approx(1.0)
    assert buckets.take("a") == pytest.approx(1.0), "a refused request takes nothing"
    now[0] += 1.0
    assert [buckets.take("a"), buckets.take("a") > 0] == [0.0, True]
    assert buckets.take("b") == 0.0
    now[0] += 3600
    assert [buckets.take("a") for _ in range(61)][-1] > 0, "it never holds more than its size"


def test_buckets_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_BUCKETS", 3)
    buckets = Buckets(60)
    for n in range(10):
        buckets.take(n)
    assert [buckets.is_known(n) for n in range(10)] == [False] * 7 + [True] * 3


def test_too_many_is_said_and_the_others_do_not_notice(caller: Callers, settings: Any, django_assert_num_queries: Any) -> None:
    settings.BERTH_REQUESTS_PER_MINUTE = 5
    ana, ben = caller("viewer"), caller("viewer")
    assert [ana.get("me/").status for _ in range(6)] == [200] * 5 + [429]
    with django_assert_num_queries(0):
        answer = ana.get("me/")
    assert (answer.status, answer.body["code"]) == (429, "too_many")
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert "bulk" in answer.body["way_out"]
    assert ana.post("claims/", {"pool": "any"}).status == 429, "the lean resources count, too"
    assert ben.get("me/").status == 200


def test_bulk_counts_as_one(caller: Callers, settings: Any) -> None:
    settings.BERTH_REQUESTS_PER_MINUTE = 2
    pool = make_pool(slots=100)
    ana = caller("claimant", pool)
    for _ in range(2):
        assert ana.post("claims/bulk/", {"claims": [{"pool": pool.name}] * 30}).status == 200
    assert ana.post("claims/bulk/", {"claims": [{"pool": pool.name}]}).status == 429


def test_who_is_not_known_has_no_bucket(caller: Callers) -> None:
    """Or random tokens would fill the memory."""
    from_nobody = caller("viewer")
    from_nobody.secret = "berth_" + "y" * 43
    assert from_nobody.get("me/").status == 401
    assert limits.buckets()._levels == {}


def test_a_request_that_waits_is_one(caller: Callers) -> None:
    request: Any = RequestFactory().get("/")
    request.scope = {}
    for _ in range(5):
        count(request, "ana")
    assert limits.buckets()._levels["ana"][0] == limits.buckets().size - 1


@pytest.mark.parametrize("path", ["claims/", "tokens/", "pools/"])
def test_bodies_that_are_no_json_are_refused_by_name(path: str, caller: Callers) -> None:
    root = caller("superuser")
    deep = "[" * 40 + "]" * 40
    for body in ("{", b"\xff", '{"a": NaN}', '{"a": 1, "a": 2}', f'{{"pool": {deep}}}', '{"name": "\\u0000"}', '{"name": "\\ud800"}'):
        answer = root.post(path, body)
        assert (answer.status, answer.body["status"]) == (400, 400), (body, answer.body)
    assert root.client.post(f"/api/v1/{path}", {"a": "b"}, headers={"Authorization": f"Bearer {root.secret}"}).status_code == 415
