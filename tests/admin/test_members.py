"""The admin of members, tokens and grants acts through the services."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from pools.access.tokens import create_token
from pools.lifecycle.services import create_pool
from pools.models import Grant, Member, Token
from project.kernel.models import Event
from slots.models import Slot

pytestmark = pytest.mark.django_db


@pytest.fixture
def member() -> Member:
    pool = create_pool(
        {
            "kind": "Pool",
            "name": "envs",
            "slots": 2,
            "members": {"list": [{"name": "a", "labels": {"region": "eu"}}]},
        }
    )
    return Member.objects.get(pool=pool)


def test_cordon_and_uncordon_go_through_the_member_service(boss: Client, member: Member) -> None:
    url = reverse("admin:pools_member_cordon", args=[member.pk])
    assert b"take no new claims" in boss.get(url).content
    assert boss.post(url, {"asked": 1, "reason": "new disk"}).status_code == 302
    assert not Slot.objects.filter(is_open=True).exists()
    assert Event.objects.get(verb="cordon").actor == "boss"
    boss.post(
        reverse("admin:pools_member_uncordon", args=[member.pk]), {"asked": 1, "reason": "done"}
    )
    assert Slot.objects.filter(is_open=True).count() == 2


def test_removing_a_member_requires_its_typed_id(boss: Client, member: Member) -> None:
    url = reverse("admin:pools_member_changelist")
    data = {
        "action": "leave",
        "_selected_action": [member.pk],
        "index": 0,
        "asked": 1,
        "reason": "old",
    }
    assert f"Type {member.pk} to confirm" in boss.post(url, data).content.decode()
    assert Member.objects.get().state == "ready"
    boss.post(url, {**data, "typed": str(member.pk)})
    assert Member.objects.get().state == "gone"


def test_members_cannot_be_added_edited_or_deleted_in_the_admin(
    boss: Client, member: Member
) -> None:
    page = reverse("admin:pools_member_change", args=[member.pk])
    assert boss.post(page, {"name": "b"}).status_code == 403
    assert boss.get(reverse("admin:pools_member_add")).status_code == 403
    assert (
        boss.post(
            reverse("admin:pools_member_delete", args=[member.pk]), {"post": "yes"}
        ).status_code
        == 403
    )
    assert b"delete_selected" not in boss.get(reverse("admin:pools_member_changelist")).content


def test_tokens_are_revoked_and_show_no_secret(boss: Client) -> None:
    user = User.objects.create_user("ci")
    token, secret = create_token(user=user, name="ci")
    page = boss.get(reverse("admin:pools_token_change", args=[token.pk])).content.decode()
    assert token.hash not in page
    assert secret not in page
    boss.post(
        reverse("admin:pools_token_revoke", args=[token.pk]), {"asked": 1, "reason": "leaked"}
    )
    assert Token.objects.get().revoked_at is not None
    assert Event.objects.get(verb="revoke_token").reason == "leaked"


def test_a_grant_is_given_and_withdrawn_with_events(boss: Client, member: Member) -> None:
    user = User.objects.create_user("ana")
    add = reverse("admin:pools_grant_add")
    assert boss.get(add).status_code == 200
    form = {
        "user": user.pk,
        "group": "",
        "pool": member.pool_id,
        "role": "operator",
        "reason": "on call",
    }
    assert boss.post(add, form).status_code == 302
    grant = Grant.objects.get()
    assert (grant.user, grant.pool_id, grant.role) == (user, member.pool_id, "operator")
    assert b"exists already" in boss.post(add, form).content
    assert b"Name exactly one" in boss.post(add, {**form, "user": ""}).content
    boss.post(
        reverse("admin:pools_grant_withdraw", args=[grant.pk]), {"asked": 1, "reason": "moved on"}
    )
    assert not Grant.objects.exists()
    assert list(
        Event.objects.filter(verb__in=["grant", "ungrant"])
        .order_by("id")
        .values_list("verb", "actor")
    ) == [
        ("grant", "boss"),
        ("ungrant", "boss"),
    ]
