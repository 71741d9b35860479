"""The admin pages of events, operations and users."""

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, IntegrityError
from django.test import Client
from django.urls import reverse

from project.kernel.events.log import record
from project.kernel.models import Event, Operation
from project.kernel.outbox.operations import (
    PermanentError,
    acquire_operations,
    add_operation,
    finish_operation,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def boss(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("boss"))
    return client


def test_the_events_search_filters_by_claim_id(boss: Client) -> None:
    record("bind", claim_id=7, slot_id=3, after="held")
    record("bind", claim_id=8, slot_id=4, after="held")
    page = boss.get(reverse("admin:kernel_event_changelist"), {"q": "claim:7"})
    assert page.status_code == 200
    assert [e.claim_id for e in page.context_data["cl"].result_list] == [7]


def test_an_events_search_with_a_bad_id_finds_nothing(boss: Client) -> None:
    record("bind", claim_id=7)
    page = boss.get(reverse("admin:kernel_event_changelist"), {"q": "claim:seven"})
    assert list(page.context_data["cl"].result_list) == []


def test_an_operation_is_retried_with_a_reason(boss: Client) -> None:
    add_operation(lane="member:1", kind="sync")
    (taken,) = acquire_operations("default", "member:1")
    finish_operation(taken, PermanentError("no such region"))
    url = reverse("admin:kernel_operation_changelist")
    asked = boss.post(url, {"action": "retry", "_selected_action": [taken.id], "index": 0})
    assert b"become due at once" in asked.content
    assert Operation.objects.get().error_code == "permanent"
    refused = boss.post(
        url,
        {"action": "retry", "_selected_action": [taken.id], "index": 0, "asked": 1, "reason": " "},
    )
    assert b"Reason is empty" in refused.content
    done = boss.post(
        url,
        {
            "action": "retry",
            "_selected_action": [taken.id],
            "index": 0,
            "asked": 1,
            "reason": "region is there",
        },
    )
    assert done.status_code == 302
    assert Operation.objects.get().error_code == ""
    event = Event.objects.get(verb="retry")
    assert (event.actor, event.reason) == ("boss", "region is there")
    again = boss.post(
        reverse("admin:kernel_operation_retry", args=[taken.id]),
        {"asked": 1, "reason": "twice"},
        follow=True,
    )
    assert b"has no error to retry" in again.content


def test_a_staff_user_who_is_no_superuser_is_refused(client: Client) -> None:
    client.force_login(User.objects.create_user("staff", is_staff=True))
    assert client.get(reverse("admin:index")).status_code == 302
    assert client.get(reverse("admin:login")).status_code == 403


def test_the_admin_sign_in_page_redirects_an_anonymous_visitor(client: Client) -> None:
    assert client.get(reverse("admin:login"), {"next": "/admin/"}).status_code == 302


def test_a_username_cannot_be_changed(boss: Client) -> None:
    user = User.objects.create_user("ana")
    page = reverse("admin:auth_user_change", args=[user.pk])
    assert 'name="username"' not in boss.get(page).content.decode()
    assert boss.post(page, {"username": "ben", "is_active": "on"}).status_code == 302
    assert User.objects.get(pk=user.pk).username == "ana"
    with pytest.raises(DatabaseError, match="a username cannot be changed; add another user"):
        User.objects.filter(pk=user.pk).update(username="ben")


def test_a_user_cannot_be_deleted_so_the_name_is_never_used_again(boss: Client) -> None:
    user = User.objects.create_user("ana")
    with pytest.raises(DatabaseError, match="deactivate it"):
        user.delete()
    with pytest.raises(IntegrityError):
        User.objects.create_user("ana")


def test_a_changed_user_is_an_event(boss: Client) -> None:
    user = User.objects.create_user("ana", password="a long password")
    page = reverse("admin:auth_user_change", args=[user.pk])
    assert boss.get(page).status_code == 200
    assert boss.post(page, {"username": "ana", "email": "ana@example.test"}).status_code == 302
    event = Event.objects.get(verb="change_user")
    assert (event.actor, event.data) == (
        "boss",
        {"user_id": user.pk, "user": "ana", "is_active": False},
    )
