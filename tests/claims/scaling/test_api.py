"""The API of rolls, replays, freezes and the scaling of all pools."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from pools.access.tokens import create_token
from pools.lifecycle.services import update_pool
from pools.roles.services import create_grant
from project.kernel.models import Event
from tests.api.conftest import Caller
from tests.claims.scaling.test_scaler import config, make, scale
from tests.pools.providers.fake_providers import ALL, fresh

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tables")]


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> None:
    settings.BERTH_PROVIDERS = ALL
    fresh()


@pytest.fixture
def api(tables: None) -> Caller:
    user = User.objects.create_user("olga")
    create_grant(role="operator", user=user)
    return Caller(create_token(user=user, name="t")[1])


def test_a_roll_is_ordered_paused_and_resumed_by_api(api: Caller) -> None:
    pool = make(low=1)
    assert api.post("pools/lab/scaling/roll/", {"reason": "now"}).body["code"] == "not_outdated"
    scale(pool)
    update_pool("lab", config(low=1) | {"members": {"min": 1, "max": 4, "labels": {"zone": "a"}}})
    member = api.get("pools/lab/members/").body["results"][0]
    assert member["is_outdated"] is True
    until = (timezone.now() + timedelta(hours=1)).isoformat()
    assert (
        api.post("pools/lab/scaling/pause-roll/", {"until": until, "reason": "ana looks"}).body[
            "roll"
        ]["pause_reason"]
        == "ana looks"
    )
    assert api.post("pools/lab/scaling/resume-roll/", {}).body["roll"]["paused_until"] is None
    told = api.post("pools/lab/scaling/roll/", {"reason": "now"}).body["roll"]
    assert (told["outdated"], told["is_ordered"], told["policy"]) == (1, True, "idle")
    assert [
        e.verb for e in Event.objects.filter(pool_id=pool.pk, verb__contains="roll").order_by("id")
    ] == [
        "pause_roll",
        "resume_roll",
        "roll",
    ]


def test_the_scaling_of_all_pools_is_listed_by_api(api: Caller) -> None:
    scale(make(low=1))
    rows = api.get("scaling/").body["results"]
    assert [
        (row["pool"], row["members"], row["words"], row["orders"]["roll"]["outdated"])
        for row in rows
    ] == [("lab", 1, "+1", 0)]


def test_freeze_windows_are_listed_by_api(api: Caller) -> None:
    make(
        freeze=[
            {
                "from": "22:00",
                "to": "06:00",
                "days": "fri",
                "zone": "Europe/Berlin",
                "name": "release",
            }
        ]
    )
    rows = api.get("scaling/freezes/?days=14").body["results"]
    assert {(row["pool"], row["zone"]) for row in rows} == {("lab", "Europe/Berlin")}
    assert len(rows) in (2, 3)
    assert api.get("scaling/freezes/?days=0").status == 400


def test_a_replay_by_api_names_every_faulty_field(api: Caller) -> None:
    make(low=1)
    empty = api.post("pools/lab/scaling/replay/", {"days": 1, "members": {"max": 2}}).body
    assert (empty["minutes"], empty["tried"]["most"]) == (0, 0)
    wrong = api.post(
        "pools/lab/scaling/replay/", {"scaling": {"policy": "wrm"}, "members": {"max": -1}}
    )
    assert {error["field"] for error in wrong.body["errors"]} == {"scaling.policy", "members.max"}
    assert api.post("pools/lab/scaling/replay/", {"days": 99}).status == 400
