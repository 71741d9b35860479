"""Member tokens belong to one incarnation, are replaced with an overlap and are stored hashed."""

from typing import Any

import pytest
from django.db import connection

from pools.access import rate_limit
from pools.models import Member
from project.kernel.actor import acting_as
from project.kernel.models import Event
from project.kernel.security.client_address import network_of, read_networks
from slots.members import members_sql, tokens
from slots.members.tokens import (
    BadMemberToken,
    identify_member,
    issue_token,
    record_refusal,
    revoke_tokens,
)
from tests.api.conftest import Caller, caller  # noqa: F401
from tests.api.helpers import make_pool

pytestmark = pytest.mark.django_db


@pytest.fixture
def member() -> Member:
    return make_pool("tf", slots=["any", "plan", "plan"]).members.get()


def test_a_member_token_identifies_its_member_and_is_not_stored(member: Member) -> None:
    secret = issue_token(member_id=member.pk)
    found = identify_member(secret)
    assert (found.member_id, found.pool, found.member, found.incarnation) == (
        member.pk,
        "tf",
        "a",
        1,
    )
    assert found.actor == "agent:tf/a"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT m::text FROM pools_member m UNION ALL SELECT e::text FROM kernel_event e"
        )
        assert not any(secret[-40:] in row[0] for row in cursor.fetchall())


def test_identifying_a_member_takes_one_named_statement_and_no_django_query(
    member: Member, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = issue_token(member_id=member.pk)
    called: list[str] = []
    text = members_sql.statements.text

    def noted(name: str, n: int | None = None) -> str:
        called.append(name)
        return text(name, n)

    monkeypatch.setattr(members_sql.statements, "text", noted)
    with django_assert_num_queries(0):  # Django does not count named statements
        identify_member(secret)
        assert called == ["identity", "mark_token_used"], "the first use is recorded once"
        called.clear()
        identify_member(secret)
    assert called == ["identity"]


def test_the_previous_member_token_is_valid_for_an_hour(member: Member) -> None:
    first = issue_token(member_id=member.pk)
    second = issue_token(member_id=member.pk)
    assert identify_member(first) == identify_member(second)
    third = issue_token(member_id=member.pk)
    with pytest.raises(BadMemberToken):
        identify_member(first)
    assert identify_member(second) == identify_member(third)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pools_member SET token_since = now() - interval '61 min'")
    with pytest.raises(BadMemberToken):
        identify_member(second)
    assert identify_member(third)


def test_a_replacement_without_overlap_ends_the_previous_token(member: Member) -> None:
    first = issue_token(member_id=member.pk)
    second = issue_token(member_id=member.pk, keep_previous=False)
    with pytest.raises(BadMemberToken):
        identify_member(first)
    assert identify_member(second)


def test_a_new_incarnation_invalidates_all_member_tokens(member: Member) -> None:
    first, second = issue_token(member_id=member.pk), issue_token(member_id=member.pk)
    Member.objects.filter(pk=member.pk).update(incarnation=2)
    for secret in (first, second):
        with pytest.raises(BadMemberToken) as caught:
            identify_member(secret)
    assert "incarnation 1" in caught.value.detail
    third = issue_token(member_id=member.pk)
    assert identify_member(third).incarnation == 2
    with pytest.raises(BadMemberToken):
        identify_member(second)


def test_a_revoked_member_token_is_refused(member: Member) -> None:
    secret = issue_token(member_id=member.pk)
    with acting_as("ana"):
        assert revoke_tokens(member_id=member.pk, reason="lost laptop")
        assert not revoke_tokens(member_id=member.pk)
    with pytest.raises(BadMemberToken):
        identify_member(secret)
    assert (
        Event.objects.filter(
            verb="revoke_token", member_id=member.pk, actor="ana", reason="lost laptop"
        ).count()
        == 1
    )


def test_a_member_token_with_another_member_id_is_refused(member: Member) -> None:
    other = make_pool("other", slots=["any"]).members.get()
    issue_token(member_id=other.pk)
    secret = issue_token(member_id=member.pk)
    for wrong in (
        secret.replace(f"_{member.pk}_", f"_{other.pk}_"),
        secret[:-1] + ("a" if secret[-1] != "a" else "b"),
        "berthm_0_x",
        "x",
    ):
        with pytest.raises(BadMemberToken):
            identify_member(wrong)


def test_a_refusal_is_recorded_once_for_each_address(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "_recorded", type(tokens._recorded)())
    assert record_refusal("wrong token", member_id=member.pk, address="10.0.0.1")
    assert not record_refusal("wrong token", member_id=member.pk, address="10.0.0.1")
    assert record_refusal("wrong token", member_id=member.pk, address="10.0.0.2")
    assert Event.objects.filter(verb="refused_agent").count() == 2


@pytest.fixture
def strict_about_strangers(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.BERTH_STRANGERS_PER_MINUTE = 3
    rate_limit._of_strangers.cache_clear()
    monkeypatch.setattr(rate_limit, "_unknown", rate_limit.UnknownTokens())


@pytest.mark.usefixtures("strict_about_strangers")
def test_unknown_tokens_of_an_address_are_limited_without_a_query_for_repeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    statuses = [Caller(f"berth_{n:043}").get("me/").status for n in range(5)]
    assert statuses == [401, 401, 401, 429, 429]
    monkeypatch.setattr(
        "pools.access.tokens._query", lambda hashed: pytest.fail("the database was asked")
    )
    assert Caller(f"berth_{4:043}").get("me/").status == 429


@pytest.mark.usefixtures("strict_about_strangers")
def test_a_valid_token_works_from_an_address_that_sent_unknown_ones(
    caller: Any,  # noqa: F811
    member: Member,
) -> None:
    """This process has cached neither token."""
    secret = issue_token(member_id=member.pk)
    valid = caller("viewer")
    rate_limit.buckets()._levels.clear()
    assert [Caller(f"berth_{n:043}").get("me/").status for n in range(5)][-1] == 429
    assert valid.get("me/").status == 200
    assert Caller(secret)("POST", f"members/{member.pk}/heartbeat/").status != 429
    assert Caller(secret).get("agent/orders/").status == 200


def test_an_unknown_token_is_cached_for_a_few_seconds() -> None:
    now = [0.0]
    unknown = rate_limit.UnknownTokens(clock=lambda: now[0])
    unknown.add("a")
    assert (unknown.has("a"), unknown.has("b")) == (True, False)
    now[0] += rate_limit.UNKNOWN_SECONDS
    assert not unknown.has("a")


@pytest.mark.usefixtures("strict_about_strangers")
def test_unknown_tokens_from_a_trusted_proxy_are_not_limited(settings: Any) -> None:
    settings.BERTH_TRUSTED_PROXIES = tuple(read_networks(["127.0.0.0/8"]))
    assert [Caller(f"berth_{n:043}").get("me/").status for n in range(5)] == [401] * 5


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("x:y", "x:y"),
    ],
)
def test_an_ipv6_address_counts_by_its_network(address: str, network: str) -> None:
    assert network_of(address) == network
