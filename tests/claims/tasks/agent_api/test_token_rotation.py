"""A member token is rotated while its agent runs: the old token works until the new one is used."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from pools.config.layout import tasks
from pools.config.spec import PoolSpec
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from pools.providers.base import MemberReport, MemberSnapshot, PoolSnapshot
from pools.providers.local.provider import LocalProvider
from project.kernel.errors import Conflict, Invalid
from project.kernel.models import Event, Operation
from project.kernel.outbox.operations import PermanentError
from project.settings.base import read_age
from slots.members import token_rotation
from slots.members.liveness import mark_ready
from slots.members.selectors import snapshot_of
from slots.members.token_rotation import list_old_tokens, order_token, rotate_due
from slots.members.tokens import BadMemberToken, identify_member, issue_token, revoke_tokens
from slots.sync import performers

pytestmark = pytest.mark.django_db

DAY = 86400


@pytest.fixture
def pool() -> Pool:
    return ready("local")


def ready(provider: str, name: str = "ours") -> Pool:
    pool = create_pool({"name": name, "provider": provider, "members": {"list": ["a"]}})
    member = pool.members.get()
    mark_ready(member_id=member.pk, incarnation=1)
    Operation.objects.all().delete()
    return pool


@pytest.fixture
def member(pool: Pool) -> Member:
    return Member.objects.get(pool=pool)


def sql(text: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text, values)


def age(seconds: float) -> None:
    sql("UPDATE pools_member SET token_since = token_since - make_interval(secs => %s)", seconds)


def opens(*secrets: str) -> list[bool]:
    found = []
    for secret in secrets:
        try:
            found.append(identify_member(secret).member_id > 0)
        except BadMemberToken:
            found.append(False)
    return found


def is_due(member: Member) -> bool:
    found = snapshot_of(member.pk)
    assert found is not None
    return found[1].is_token_due


class Hands(LocalProvider):
    """What a provider is told, and what it makes of it."""

    def __init__(self) -> None:
        self.told = list[str]()
        self.fails = 0

    def needs_token(self, pool: PoolSnapshot, member: MemberSnapshot) -> bool:
        return member.state == "ready" and member.is_token_due

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        if self.fails:
            self.fails -= 1
            raise PermanentError("the disk is full")
        self.told += [member.token] if member.token else []
        return MemberReport(is_ready=True)


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(performers, "provider_of", lambda kind: hands)
    return hands


def ask(member: Member) -> None:
    found = snapshot_of(member.pk)
    assert found is not None
    performers.call_provider(*found)


# -- which opens -----------------------------------------------------------------------------------


def test_the_token_in_use_is_valid_until_the_new_token_is_used(
    member: Member,
) -> None:
    first = issue_token(member_id=member.pk)
    assert opens(first) == [True]
    second = issue_token(member_id=member.pk)
    age(10 * DAY)
    assert opens(first) == [True], "its agent has not got the new one yet"
    assert opens(second, first) == [True, False]


def test_an_unused_token_is_dropped_when_another_is_issued(member: Member) -> None:
    first = issue_token(member_id=member.pk)
    opens(first)
    second, third = issue_token(member_id=member.pk), issue_token(member_id=member.pk)
    assert opens(first, second, third) == [True, False, True]


def test_a_token_used_for_less_than_an_hour_stays_valid_after_its_replacement(
    member: Member,
) -> None:
    first = issue_token(member_id=member.pk)
    opens(first)
    second = issue_token(member_id=member.pk)
    assert opens(second, first) == [True, True]
    assert identify_member(first).is_replaced
    assert not identify_member(second).is_replaced
    age(3601)
    assert opens(first, second) == [False, True]


def test_an_ordered_rotation_may_end_the_previous_token_at_first_use(member: Member) -> None:
    first = issue_token(member_id=member.pk)
    opens(first)
    order_token(member_id=member.pk, reason="it stood in a log", ends_previous=True)
    assert opens(first) == [True]
    second = issue_token(member_id=member.pk)
    assert opens(first, second, first) == [True, True, False]
    third = issue_token(member_id=member.pk)
    assert opens(third, second) == [True, True], "that was said of one rotation, not of all to come"


def test_a_second_order_does_not_weaken_the_first(member: Member) -> None:
    first = issue_token(member_id=member.pk)
    opens(first)
    order_token(member_id=member.pk, reason="it stood in a log", ends_previous=True)
    order_token(member_id=member.pk, reason="a new key for the new year")
    assert opens(issue_token(member_id=member.pk), first) == [True, False]


def test_an_order_during_a_rotation_also_ends_the_token_on_its_way(
    member: Member,
) -> None:
    opens(issue_token(member_id=member.pk))
    second = issue_token(member_id=member.pk)
    order_token(member_id=member.pk, reason="it stood in a log", ends_previous=True)
    assert opens(second) == [True]
    third = issue_token(member_id=member.pk)
    assert opens(third, second) == [True, False]


def test_an_order_for_a_member_without_tokens_is_due(member: Member) -> None:
    issue_token(member_id=member.pk)
    revoke_tokens(member_id=member.pk)
    assert not is_due(member)
    order_token(member_id=member.pk, reason="it may work again")
    assert is_due(member)


# -- when ------------------------------------------------------------------------------------------


def test_a_rotation_is_due_by_the_age_of_the_last_token(member: Member) -> None:
    opens(issue_token(member_id=member.pk))
    age(30 * DAY - 60)
    assert not is_due(member)
    age(61)
    assert is_due(member)
    opens(issue_token(member_id=member.pk))
    assert not is_due(member)


def test_a_rotation_is_due_again_when_the_new_token_stays_unused(member: Member) -> None:
    opens(issue_token(member_id=member.pk))
    issue_token(member_id=member.pk)
    age(3599)
    assert not is_due(member)
    age(2)
    assert is_due(member)


def test_the_age_never_makes_no_rotation_due(member: Member, settings: Any) -> None:
    settings.BERTH_TOKEN_AGE = None
    opens(issue_token(member_id=member.pk))
    age(3000 * DAY)
    assert not is_due(member)
    assert list_old_tokens() == []


def test_a_member_without_a_token_has_no_rotation_due(member: Member) -> None:
    assert not is_due(member)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30d", 30.0 * DAY), ("12h", 43200.0), ("never", None)],
    ids=["days", "hours", "never"],
)
def test_the_token_age_setting_is_read(text: str, seconds: float | None) -> None:
    assert read_age(text) == seconds


@pytest.mark.parametrize("text", ["30", "soon", "0s"])
def test_an_invalid_token_age_setting_is_refused(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="BERTH_TOKEN_AGE"):
        read_age(text)


# -- which process rotates -------------------------------------------------------------------------


def test_a_due_rotation_enqueues_one_sync(pool: Pool, member: Member) -> None:
    opens(issue_token(member_id=member.pk))
    assert rotate_due(pool) == 0
    age(31 * DAY)
    assert [rotate_due(pool), rotate_due(pool)] == [1, 0], "somebody is on the way"
    assert Operation.objects.filter(member_id=member.pk, kind="sync", done_at=None).count() == 1


def test_an_offline_member_has_no_rotation_enqueued(pool: Pool, member: Member) -> None:
    opens(issue_token(member_id=member.pk))
    age(31 * DAY)
    Member.objects.update(state="offline")
    assert rotate_due(pool) == 0


def test_an_order_makes_a_rotation_due_and_enqueues_a_sync(member: Member) -> None:
    opens(issue_token(member_id=member.pk))
    order_token(member_id=member.pk, reason="a new key for the new year")
    assert is_due(member)
    assert Operation.objects.filter(member_id=member.pk, kind="sync", done_at=None).count() == 1
    assert Event.objects.get(verb="order_token").reason == "a new key for the new year"


def test_a_rotation_order_requires_a_reason(member: Member) -> None:
    with pytest.raises(Invalid):
        order_token(member_id=member.pk, reason="")


def test_a_token_that_berth_does_not_hand_over_cannot_be_rotated() -> None:
    member = ready("agents", "far").members.get()
    with pytest.raises(Conflict, match="does not hand the agent of"):
        order_token(member_id=member.pk, reason="now")
    assert rotate_due(member.pool) == 0


def test_old_tokens_are_listed_in_time(pool: Pool, member: Member) -> None:
    far = ready("agents", "far").members.get()
    for one in (member, far):
        opens(issue_token(member_id=one.pk))
    age(20 * DAY)
    assert list_old_tokens() == []
    age(4 * DAY)
    assert [
        (old.name, old.pool, old.is_ours, 5 * DAY < old.remaining < 7 * DAY)
        for old in list_old_tokens()
    ] == [("a", "far", False, True)]
    age(6 * DAY + 1800)
    assert [old.remaining < 0 for old in list_old_tokens()] == [True], (
        "of ours nobody has to hear, unless it does not work"
    )
    age(3600)
    assert {(old.pool, old.is_ours) for old in list_old_tokens()} == {
        ("far", False),
        ("ours", True),
    }


def test_an_untaken_token_is_listed_after_an_hour(member: Member) -> None:
    opens(issue_token(member_id=member.pk))
    issue_token(member_id=member.pk)
    assert list_old_tokens() == []
    age(3601)
    assert [old.is_untaken for old in list_old_tokens()] == [True]


# -- handed over -----------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_the_provider_gets_a_new_token_when_a_rotation_is_due(
    pool: Pool, member: Member, hands: Hands
) -> None:
    first = issue_token(member_id=member.pk)
    opens(first)
    ask(member)
    assert hands.told == []
    order_token(member_id=member.pk, reason="now")
    ask(member)
    ask(member)
    assert len(hands.told) == 1
    assert opens(first, hands.told[0]) == [True, True]


@pytest.mark.django_db(transaction=True)
def test_a_failed_hand_over_keeps_the_old_token_and_is_retried(
    pool: Pool, member: Member, hands: Hands
) -> None:
    first = issue_token(member_id=member.pk)
    opens(first)
    order_token(member_id=member.pk, reason="now")
    hands.fails = 1
    with pytest.raises(PermanentError):
        ask(member)
    assert (opens(first), is_due(member)) == ([True], False)
    age(3601)
    assert (opens(first), is_due(member)) == ([True], True), "it is tried again with another one"
    ask(member)
    assert opens(first, hands.told[0]) == [True, True]


@pytest.mark.django_db(transaction=True)
def test_a_member_that_berth_does_not_own_is_forgotten_without_a_provider_call(
    hands: Hands,
) -> None:
    pool = ready("local", "mixed")
    Member.objects.filter(pool=pool).update(state="deleting", is_owned=False)
    hands.fails = 1
    found = snapshot_of(pool.members.get().pk)
    assert found is not None
    assert performers.call_provider(*found).is_gone
    assert hands.fails == 1, "it was not asked"


def test_the_local_provider_rotates_tokens_and_agents_and_static_do_not() -> None:
    specs = [
        PoolSpec("lab", tasks(["any"]), provider=kind)
        for kind in ("local", "agents", "static", "nobody")
    ]
    assert [token_rotation.rotates(spec) for spec in specs] == [True, False, False, False]
