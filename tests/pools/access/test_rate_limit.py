"""Rate limits per caller, shared between processes, and limits on bodies."""

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from django.test import RequestFactory

from pools.access import rate_limit
from pools.access.authentication import count
from pools.access.rate_limit import Buckets
from pools.access.shared_rate_limit import SharedBuckets
from tests.api.conftest import Callers
from tests.api.helpers import make_pool


@pytest.fixture(autouse=True)
def fresh_buckets() -> None:
    rate_limit._of_callers.cache_clear()


def test_bucket_refills_with_time() -> None:
    now = [0.0]
    buckets = Buckets(60, clock=lambda: now[0])
    assert [buckets.count("a") for _ in range(60)] == [0.0] * 60
    assert buckets.count("a") == pytest.approx(1.0)
    assert buckets.count("a") == pytest.approx(1.0), "a refused request takes nothing"
    now[0] += 1.0
    assert [buckets.count("a"), buckets.count("a") > 0] == [0.0, True]
    assert buckets.count("b") == 0.0
    now[0] += 3600
    assert [buckets.count("a") for _ in range(61)][-1] > 0, "it never holds more than its size"


def test_number_of_buckets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "MOST_BUCKETS", 3)
    buckets = Buckets(60)
    for n in range(10):
        buckets.count(str(n))
    assert [buckets.is_known(str(n)) for n in range(10)] == [False] * 7 + [True] * 3


def test_limited_caller_gets_429_and_others_are_unaffected(
    caller: Callers, settings: Any, django_assert_num_queries: Any
) -> None:
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


def test_bulk_call_counts_as_one_request(caller: Callers, settings: Any) -> None:
    settings.BERTH_REQUESTS_PER_MINUTE = 2
    pool = make_pool(slots=100)
    ana = caller("claimant", pool)
    for _ in range(2):
        assert ana.post("claims/bulk/", {"claims": [{"pool": pool.name}] * 30}).status == 200
    assert ana.post("claims/bulk/", {"claims": [{"pool": pool.name}]}).status == 429


def test_unknown_caller_has_no_bucket(caller: Callers) -> None:
    """Otherwise random tokens would fill the memory."""
    from_nobody = caller("viewer")
    from_nobody.secret = "berth_" + "y" * 43
    assert from_nobody.get("me/").status == 401
    assert rate_limit.buckets()._levels == {}


def test_repeated_counts_of_one_request_take_one_token(caller: Callers) -> None:
    request: Any = RequestFactory().get("/")
    request.scope = {}
    for _ in range(5):
        count(request, "ana")
    assert rate_limit.buckets()._levels["ana"][0] == rate_limit.buckets().size - 1


@pytest.mark.parametrize("path", ["claims/", "tokens/", "pools/"])
def test_body_that_is_no_json_is_refused_by_name(path: str, caller: Callers) -> None:
    root = caller("superuser")
    deep = "[" * 40 + "]" * 40
    for body in (
        "{",
        b"\xff",
        '{"a": NaN}',
        '{"a": 1, "a": 2}',
        f'{{"pool": {deep}}}',
        '{"name": "\\u0000"}',
        '{"name": "\\ud800"}',
    ):
        answer = root.post(path, body)
        assert (answer.status, answer.body["status"]) == (400, 400), (body, answer.body)
    assert (
        root.client.post(
            f"/api/v1/{path}", {"a": "b"}, headers={"Authorization": f"Bearer {root.secret}"}
        ).status_code
        == 415
    )


# -- several web processes -------------------------------------------------------------------------
class Told(Buckets):
    """Signals the arrival of the counts of other processes."""

    def __init__(self, per_minute: float) -> None:
        super().__init__(per_minute, clock=lambda: 0.0)
        self.was_told = threading.Event()

    def subtract_remote(self, taken: Mapping[str, int]) -> None:
        super().subtract_remote(taken)
        self.was_told.set()


@pytest.fixture
def processes() -> Iterator[list[Told]]:
    """Two, each with its own buckets, on the tests' Valkey."""
    found = [Told(5), Told(5)]
    threads = [
        SharedBuckets(os.environ["REDIS_URL"], {f"test-{id(found)}": lambda b=b: b}, every=0.01)
        for b in found
    ]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    yield found
    for thread in threads:
        thread.stop()
        thread.join(30)


def test_share_of_a_caller_is_counted_across_processes(processes: list[Told]) -> None:
    one, other = processes
    for _ in range(1000):  # until it listens: what was told before is lost, as it may be
        one.count("somebody else")
        if other.was_told.wait(0.05):
            break
    other.was_told.clear()
    assert [one.count("ana") for _ in range(4)] == [0.0] * 4
    assert [other.count("ana") for _ in range(3)] == [0.0] * 3, "each counts by itself at once"
    for _ in range(1000):
        if other.was_told.wait(0.05) and other.wait_of("ana"):
            break
        other.was_told.clear()
    assert other.wait_of("ana") == pytest.approx(36.0), (
        "seven of five were taken: three of twelve seconds each"
    )
    assert other.count("ben") == 0.0


def test_debt_from_other_processes_is_at_most_one_share() -> None:
    buckets = Buckets(60, clock=lambda: 0.0)
    buckets.subtract_remote({"ana": 1_000_000})
    assert buckets.wait_of("ana") == pytest.approx(61.0)
    assert buckets.is_known("ana"), "another process has seen its token"
    assert (buckets.count("ana") > 0, buckets.forget_taken()) == (True, {}), (
        "what was told is not told on, nor what was refused"
    )


def test_without_valkey_each_process_counts_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    buckets = Buckets(2)
    tried = threading.Event()

    def asked() -> Buckets:
        tried.set()
        return buckets

    with socket.socket() as nobody:  # a port without a server
        nobody.bind(("127.0.0.1", 0))
        shares = SharedBuckets(
            f"redis://127.0.0.1:{nobody.getsockname()[1]}/0", {"callers": asked}, every=0.01
        )
        shares.start()
        assert tried.wait(30)
        assert [buckets.count("ana") > 0 for _ in range(3)] == [False, False, True]
        shares.stop()
        shares.join(30)
    assert len([r for r in caplog.records if "shares of callers" in r.message]) == 1, "said once"


@pytest.mark.parametrize(
    "said",
    [
        b"", b"{", b"[]", b"1", b"\xff", b"{}", b'{"from": "x"}', b'{"from": "x", "taken": [1]}',
        b'{"from": "x", "taken": {"callers": 1}}',
        b'{"from": "x", "taken": {"callers": {"ana": "many"}}}',
        b'{"from": "x", "taken": {"callers": {"ana": NaN}}}',
        b'{"from": "x", "taken": {"callers": {"ana": -5}}}',
        b'{"from": "x", "taken": {"callers": {"ana": Infinity}}}', b"[" * 100_000,
    ],
    ids=lambda said: said[:50].decode("ascii", "replace"),
)  # fmt: skip
def test_malformed_share_message_changes_no_bucket(said: bytes) -> None:
    buckets = Buckets(5, clock=lambda: 0.0)
    shares = SharedBuckets("redis://127.0.0.1:1/0", {"callers": lambda: buckets})
    shares.receive(said)
    assert [buckets.count("ana") > 0 for _ in range(6)] == [False] * 5 + [True]


def test_exaggerated_share_message_costs_one_share_at_most() -> None:
    now = [0.0]
    buckets = Buckets(60, clock=lambda: now[0])
    SharedBuckets("redis://127.0.0.1:1/0", {"callers": lambda: buckets}).receive(
        b'{"from": "x", "taken": {"callers": {"ana": 1000000000}}}'
    )
    assert buckets.wait_of("ana") == pytest.approx(61.0)
    now[0] += 61.0
    assert buckets.count("ana") == 0.0
