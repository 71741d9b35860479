"""Secure defaults: session expiry, login throttling, response headers, body limits, masked logs."""

import logging
import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.utils.module_loading import import_string

from project.kernel.http.asgi import Http
from project.kernel.logs import strip_secrets
from project.kernel.security import login_throttle, sessions
from project.kernel.security.client_address import read_networks
from tests.dashboard.test_page_permissions import list_pages

pytestmark = pytest.mark.django_db


@pytest.fixture
def person() -> User:
    return User.objects.create_user(
        "ada", password="correct horse", is_staff=True, is_superuser=True
    )


def sign_in(name: str, password: str, address: str = "198.51.100.7") -> tuple[Any, int]:
    request = RequestFactory().post("/", REMOTE_ADDR=address)
    return authenticate(request, username=name, password=password), getattr(
        request, "sign_in_wait", 0
    )


# -- sessions -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("since", "seen", "is_over"),
    [
        (0, 0, False),
        (settings.BERTH_SESSION_LIFE - 5, 5, False),
        (settings.BERTH_SESSION_LIFE + 5, 5, True),
        (settings.BERTH_SESSION_IDLE - 5, settings.BERTH_SESSION_IDLE - 5, False),
        (settings.BERTH_SESSION_IDLE + 5, settings.BERTH_SESSION_IDLE + 5, True),
    ],
)
def test_session_ends_when_idle_or_old(
    client: Client, person: User, since: int, seen: int, is_over: bool
) -> None:
    client.force_login(person)
    session, now = client.session, int(time.time())
    session[sessions.SINCE], session[sessions.SEEN] = now - since, now - seen
    session.save()
    answer = client.get("/admin/")
    assert (answer.status_code == 302) is is_over
    assert ("_auth_user_id" in client.session) is not is_over


def test_session_without_a_start_time_is_over(client: Client, person: User) -> None:
    client.force_login(person)
    session = client.session
    del session[sessions.SINCE]
    session.save()
    assert client.get("/admin/").status_code == 302


def test_session_activity_is_not_written_with_each_request(client: Client, person: User) -> None:
    client.force_login(person)
    client.get("/admin/")
    with connection.execute_wrapper(refuse_writes):
        client.get("/admin/")


def refuse_writes(execute: Any, statement: str, *arguments: Any) -> Any:
    assert statement.startswith(("SELECT", "SAVEPOINT", "RELEASE")), statement
    return execute(statement, *arguments)


# -- sign-in ------------------------------------------------------------------
def test_guesses_on_one_account_slow_down_from_any_address(person: User) -> None:
    for n in range(login_throttle.ACCOUNT.free + 1):
        assert sign_in("ada", "wrong", f"198.51.100.{n}") == (None, 0)
    user, wait = sign_in("ada", "correct horse", "198.51.100.99")
    assert user is None and wait == 1


def test_wait_doubles_up_to_a_minute_and_then_the_right_password_counts(person: User) -> None:
    for _ in range(login_throttle.ACCOUNT.free):
        sign_in("ada", "wrong")
    waits = []
    for _ in range(9):
        sign_in("ada", "wrong")
        waits.append(sign_in("ada", "wrong")[1])
        pass_time()
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert sign_in("ada", "correct horse")[0] == person
    assert sign_in("ada", "wrong") == (None, 0)


def test_guesses_from_one_address_slow_down_over_many_accounts(person: User) -> None:
    for n in range(login_throttle.ADDRESS.free + 1):
        assert sign_in(f"user{n}", "password1")[1] == 0
    assert sign_in("ada", "correct horse")[1] == 1
    assert sign_in("ada", "correct horse", "203.0.113.5")[0] == person


def test_address_with_correct_sign_ins_is_not_slowed(person: User) -> None:
    for _ in range(login_throttle.ADDRESS.free * 2):
        assert sign_in("ada", "correct horse")[0] == person


@pytest.mark.django_db(transaction=True)
def test_hundred_concurrent_guesses_are_throttled() -> None:
    def guess(n: int) -> int:
        try:
            return login_throttle.count_attempt(
                {login_throttle.key_of("account", "eve"): login_throttle.ACCOUNT}
            )
        finally:
            connection.close()

    begin = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        waits = list(pool.map(guess, range(100)))
    # Waits of 1, 2, 4 s that a slow machine has sat out meanwhile.
    over = int(math.log2(time.monotonic() - begin + 1))
    assert (
        login_throttle.ACCOUNT.free + 1 <= waits.count(0) <= login_throttle.ACCOUNT.free + 1 + over
    )


def test_attempted_user_name_is_not_stored_in_plain_text(person: User) -> None:
    sign_in("my-password-in-the-wrong-field", "x")
    with connection.cursor() as cursor:
        cursor.execute("select string_agg(key, ' ') from kernel_sign_in_attempt")
        assert "my-password" not in cursor.fetchone()[0]


def pass_time() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "update kernel_sign_in_attempt set wait_until = now() where key like 'account%'"
        )
        cursor.execute("delete from kernel_sign_in_attempt where key like 'address%'")


@pytest.mark.parametrize(
    ("first", "second"),
    [("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"), ("198.51.100.7", "::ffff:198.51.100.7")],
    ids=["one /64", "IPv4 over an IPv6 socket"],
)
def test_addresses_of_one_client_count_together(person: User, first: str, second: str) -> None:
    for n in range(login_throttle.ADDRESS.free + 1):
        sign_in(f"user{n}", "password1", first)
    assert sign_in("ada", "correct horse", second)[1] == 1
    assert sign_in("ada", "correct horse", "2001:db8:1:3::1")[0] == person


def test_trusted_proxy_is_not_slowed_as_an_address(person: User, settings: Any) -> None:
    settings.BERTH_TRUSTED_PROXIES = tuple(read_networks(["198.51.100.0/24"]))
    for n in range(login_throttle.ADDRESS.free * 2):
        assert sign_in(f"user{n}", "password1")[1] == 0
    assert sign_in("ada", "correct horse")[0] == person


# -- answers ------------------------------------------------------------------
def list_answers(person: User) -> Iterator[tuple[str, HttpResponse]]:
    """The answers of every address without an argument to a superuser and to a stranger, and of
    requests that fail.
    """
    known = Client(raise_request_exception=False, enforce_csrf_checks=True)
    known.force_login(person)
    stranger = Client(raise_request_exception=False, enforce_csrf_checks=True)
    routes = {f"/{route}" for route in list_pages() if "<" not in route and "(" not in route}
    for path in [*sorted(routes), "/no-such-page", "/api/v1/pools/", "/api/v1/nowhere/", "/admin/"]:
        for client in (known, stranger):
            yield path, cast(HttpResponse, client.get(path))
        yield path, cast(HttpResponse, known.post(path))  # without its CSRF token


def test_every_answer_carries_a_policy_and_only_the_admin_allows_eval(person: User) -> None:
    statuses = set()
    for path, answer in list_answers(person):
        statuses.add(answer.status_code)
        policy = answer["Content-Security-Policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy, path
        is_admin = path.startswith("/admin/")
        assert ("script-src 'self' 'unsafe-eval'" in policy) is is_admin, path
        assert ("unsafe-eval" in policy or "script-src" in policy) is is_admin, path
        assert answer["X-Content-Type-Options"] == "nosniff", path
        assert answer["Referrer-Policy"] == "same-origin", path
    assert statuses >= {200, 302, 401, 403, 404, 405}


def test_cookies_are_closed_to_scripts_and_other_sites_and_stay_on_https(
    client: Client, person: User
) -> None:
    client.force_login(person)
    session = client.session
    session[sessions.SEEN] -= settings.BERTH_SESSION_IDLE // 2
    session.save()
    cookie = client.get("/admin/", secure=True).cookies[settings.SESSION_COOKIE_NAME]
    assert cookie["httponly"] and cookie["secure"] and cookie["samesite"] == "Lax"


def test_page_of_a_person_is_not_stored_in_shared_caches(client: Client, person: User) -> None:
    client.force_login(person)
    assert "no-store" in client.get("/admin/")["Cache-Control"]


def test_form_without_its_csrf_token_is_refused(person: User) -> None:
    client = Client(enforce_csrf_checks=True)
    assert client.post("/admin/logout/").status_code == 403


# -- logs ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("postgresql://berth:hunter2@127.0.0.1/x", "postgresql://berth:***@127.0.0.1/x"),
        ("redis://:abc@127.0.0.1:1/0", "redis://:***@127.0.0.1:1/0"),
        ("Authorization: Bearer abcdefgh", "Authorization: Bearer ***"),
        ("{'password': 'correct horse'}", "{'password': '*** horse'}"),
        ("no secret here: 12", "no secret here: 12"),
    ],
)
def test_logs_have_no_secrets(line: str, shown: str) -> None:
    assert strip_secrets(line) == shown


TOKEN = "abcd-EFGH_ijkl0123456789mnopqrstuvwxyzABCDEFG"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (f"berthm_17_{TOKEN} was refused", "berthm_17_abcd*** was refused"),
        (f"X-Agent: berthm_123456_{TOKEN}", "X-Agent: berthm_123456_abcd***"),
        ("postgresql://berth:pa/ss@db/berth failed", "postgresql://berth:***@db/berth failed"),
        ("postgresql://berth:p@ss@db/berth failed", "postgresql://berth:***@db/berth failed"),
        (
            "postgresql://berth:p@s/s@w@db:5432/berth?x=1 failed",
            "postgresql://berth:***@db:5432/berth?x=1 failed",
        ),
        (
            "redis://:/@/@cache:6379/0, smtp://u:a@b@mail",
            "redis://:***@cache:6379/0, smtp://u:***@mail",
        ),
        ('{"a": "https://u:p/1@h", "b": "x@y"}', '{"a": "https://u:***@h", "b": "x@y"}'),
        ("postgresql://berth:pa'ss@db", "postgresql://berth:***@db"),
        ("http://host:8000/path and me@example.com", "http://host:8000/path and me@example.com"),
        ("see https://host:8443/x", "see https://host:8443/x"),
    ],
)
def test_tokens_of_agents_and_passwords_with_any_character_are_masked(
    line: str, shown: str
) -> None:
    assert strip_secrets(line) == shown


def test_refused_host_is_not_logged() -> None:
    assert logging.getLogger("django.security.DisallowedHost").getEffectiveLevel() > logging.ERROR


# -- cookies and bodies ---------------------------------------------------------
def test_session_cookie_is_hidden_from_scripts_and_other_sites(
    client: Client, person: User
) -> None:
    client.get("/login/")
    client.post("/login/", {"username": "ada", "password": "correct horse"})
    cookies = {name: (bool(c["httponly"]), c["samesite"]) for name, c in client.cookies.items()}
    assert cookies == {"csrftoken": (True, "Lax"), "sessionid": (True, "Lax")}


@pytest.mark.parametrize(
    ("path", "limit", "is_guarded"),
    [
        ("/api/v1/agent/tasks/7/3/plan/", 260_000_000, True),
        ("/api/v1/agent/tasks/7/3/plan-json/", 64_100_000, True),
        ("/api/v1/agent/tasks/7/3/log/", 4_000_000, True),
        ("/api/v1/agent/hello/", 4_000_000, True),
        ("/api/v1/sources/", 32_000_000, True),
        ("/api/v1/claims/bulk/", 4_000_000, True),
        ("/claims/run/", 33_000_000, True),
        ("/login/", 1_000_000, True),
        ("", 0, False),
    ],
)
def test_each_path_has_a_body_limit_and_large_bodies_a_guard(
    path: str, limit: int, is_guarded: bool
) -> None:
    found, guard = Http().limit({"path": path})
    assert (found, bool(guard)) == (limit, is_guarded)
    assert not guard or callable(import_string(guard))
