"""The deletion cost of a member is set by the API, the pool file and the admin."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from pools.lifecycle.selectors import config_of
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Member, Pool
from project.kernel.models import Event
from tests.api.conftest import Callers
from tests.api.helpers import make_pool

pytestmark = pytest.mark.django_db


def cost(name: str = "a") -> int:
    return Member.objects.get(name=name).deletion_cost


def config(**member: Any) -> dict[str, Any]:
    return {"name": "lab", "slots": 1, "members": {"list": [{"name": "a", **member}, "b"]}}


def test_only_an_admin_of_the_pool_sets_the_cost_by_the_api(caller: Callers) -> None:
    pool = make_pool()
    path = f"members/{Member.objects.get(name='a').pk}/"
    assert caller("operator", pool)("PATCH", path, {"deletion_cost": 5}).status == 403
    assert cost() == 0
    answer = caller("admin", pool)("PATCH", path, {"deletion_cost": 5, "reason": "warm cache"})
    assert (answer.status, answer.body["deletion_cost"], cost()) == (200, 5, 5)
    event = Event.objects.get(verb="edit")
    assert (event.reason, event.data) == (
        "warm cache",
        {"changes": [{"field": "deletion_cost", "before": None, "after": 5}]},
    )


@pytest.mark.parametrize("wrong", [2**31, -(2**31), "5", 1.5, True])
def test_a_cost_that_is_no_32_bit_integer_is_a_field_error(caller: Callers, wrong: Any) -> None:
    pool = make_pool()
    path = f"members/{Member.objects.get(name='a').pk}/"
    answer = caller("admin", pool)("PATCH", path, {"deletion_cost": wrong})
    assert (answer.status, [error["field"] for error in answer.body["errors"]]) == (
        400,
        ["deletion_cost"],
    )
    assert cost() == 0


def test_null_and_other_changes_of_a_member(caller: Callers) -> None:
    pool = create_pool(config(deletion_cost=-7))
    admin, path = caller("admin", pool), f"members/{Member.objects.get(name='a').pk}/"
    assert admin("PATCH", path, {"labels": {"zone": "eu"}}).body["deletion_cost"] == -7
    assert admin("PATCH", path, {"deletion_cost": None}).body["deletion_cost"] == 0


def test_the_pool_file_sets_the_cost_and_the_export_repeats_it() -> None:
    pool = create_pool(config(deletion_cost=9))
    assert (cost("a"), cost("b")) == (9, 0)
    assert config_of(pool)["members"]["list"] == [{"name": "a", "deletion_cost": 9}, {"name": "b"}]
    update_pool("lab", config(deletion_cost=3))
    assert cost() == 3
    update_pool("lab", config())
    assert cost() == 0, "a file without the cost sets the default"
    assert Pool.objects.get().revision == 3
    assert [e.data["changes"][0]["after"] for e in Event.objects.filter(verb="edit")] == [3, None]


def test_the_admin_sets_the_cost_of_selected_members(client: Client, admin_user: Any) -> None:
    create_pool(config())
    client.force_login(admin_user)
    data = {
        "action": "cost",
        "_selected_action": list(Member.objects.values_list("pk", flat=True)),
        "index": 0,
        "asked": 1,
        "reason": "warm",
        "deletion_cost": "2147483648",
    }
    url = reverse("admin:pools_member_changelist")
    assert b"must be a whole number" in client.post(url, data).content
    assert cost() == 0
    assert client.post(url, {**data, "deletion_cost": "12"}).status_code == 302
    assert (cost("a"), cost("b")) == (12, 12)
    assert {event.actor for event in Event.objects.filter(verb="edit")} == {"admin"}
