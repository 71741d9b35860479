"""Orders to the scaler by service, API and dialog: pin, pause, grow and lifted freezes."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from claims.scaling.orders import (
    grow_pool,
    lift_freeze,
    pause_scaling,
    pin_pool,
    resume_scaling,
    unpin_pool,
)
from claims.scaling.scaler import scale_pools
from claims.scaling.web.api_urls import urlpatterns
from pools.access.tokens import create_token
from pools.lifecycle.services import update_pool
from pools.models import Decision, Member, Pool
from pools.roles.services import create_grant
from project.kernel.errors import Conflict, Invalid, Refused
from project.kernel.models import Event
from tests.claims.helpers import again, ask, make_pool, serve
from tests.claims.scaling.test_scaler import config, fixed, make, names, old, scale
from tests.pools.providers.fake_providers import ALL, fresh
from tests.slots.helpers import is_consistent, open_slots

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> Iterator[None]:
    settings.BERTH_PROVIDERS = ALL
    fresh()
    yield
    assert is_consistent()


def later(**more: float) -> Any:
    return timezone.now() + timedelta(**(more or {"hours": 1}))


def told(verb: str) -> list[Any]:
    return list(
        Event.objects.filter(verb=verb).order_by("id").values_list("before", "after", "reason")
    )


def test_a_pin_holds_until_its_time_is_over() -> None:
    pool = make(low=1)
    pin_pool(pool_id=pool.pk, count=3, until=later(), reason="release day")
    assert scale(pool).delta == 3
    assert scale(pool).inputs["key"] == "hold:pin:0:0"
    pin_pool(pool_id=pool.pk, count=1, until=later(), reason="over")
    claim = ask()
    scale(pool)
    assert names(pool) == [again(claim).slots[0].member], "who is busy stays, also under a pin"
    pin_pool(pool_id=pool.pk, count=2, until=later(), reason="again")
    scale(pool)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pools_pool SET pin_until = now() - interval '1 s'")
    scale(pool)
    assert pool.pin_count is None
    assert told("unpin") == [("pinned", "", "its time is over")]
    assert told("pin")[:2] == [
        ("", "pinned to 3", "release day"),
        ("pinned to 3", "pinned to 1", "over"),
    ]


def test_an_unpinned_pool_asks_the_policy_again() -> None:
    pool = make(low=0)
    pin_pool(pool_id=pool.pk, count=2, until=later(), reason="demo")
    scale(pool)
    old(pool, 700)
    assert scale(pool).delta == 0, "the pin keeps both"
    unpin_pool(pool_id=pool.pk, reason="over")
    pool.refresh_from_db()
    assert (pool.pin_count, pool.scale_requested_at is not None) == (None, True)
    assert scale(pool).delta == -1, "the policy removes idle members"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"count": 5}, "count"),
        ({"count": -1}, "count"),
        ({"until": None}, "until"),
        ({"reason": "  "}, "reason"),
        ({"reason": "x" * 501}, "reason"),
    ],
)
def test_a_faulty_pin_is_refused_at_its_field(wrong: dict[str, Any], field: str) -> None:
    pool = make()
    values: dict[str, Any] = {"count": 1, "until": later(), "reason": "why"} | wrong
    if values["until"] is None:
        values["until"] = timezone.now() - timedelta(seconds=1)
    with pytest.raises(Invalid) as refused:
        pin_pool(pool_id=pool.pk, **values)
    assert [f.field for f in refused.value.fields] == [field]


def test_a_paused_scaler_changes_no_member_while_the_pool_serves() -> None:
    pool = fixed(1)
    pause_scaling(pool_id=pool.pk, until=later(), reason="migration")
    assert scale(pool).inputs["verdict"] == "paused"
    assert not ask().is_waiting
    ask(), ask()
    serve()
    assert scale(pool).delta == 0
    resume_scaling(pool_id=pool.pk)
    assert scale(pool).delta == 1
    pause_scaling(pool_id=pool.pk, until=later(), reason="again")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pools_pool SET scaling_paused_until = now() - interval '1 s'")
    scale(pool)
    assert pool.scaling_paused_until is None


def test_growing_adds_members_up_to_the_maximum() -> None:
    pool = make(high=2)
    made = grow_pool(pool_id=pool.pk, reason="demo at ten")
    assert (made.delta, [j.name for j in made.chosen]) == (1, ["lab-1"])
    assert Decision.objects.get().reason == "forced: demo at ten"
    assert scale(pool).delta == 0
    assert grow_pool(pool_id=pool.pk, count=5, reason="more").delta == 1, "as far as there is room"
    with pytest.raises(Refused, match="2 of 2 members exist"):
        grow_pool(pool_id=pool.pk, reason="more")
    with pytest.raises(Invalid):
        grow_pool(pool_id=pool.pk, count=0, reason="more")


def test_lifting_an_open_freeze_opens_the_pool_until_the_next_window() -> None:
    clock = timezone.now()
    window = {
        "from": f"{clock - timedelta(hours=1):%H:%M}",
        "to": f"{clock + timedelta(hours=1):%H:%M}",
    }
    pool = make(low=2, freeze=[window])
    assert scale(pool).inputs["verdict"] == "frozen"
    with pytest.raises(Refused, match="Frozen"):
        grow_pool(pool_id=pool.pk, reason="demo")
    lift_freeze(pool_id=pool.pk, reason="hotfix")
    pool.refresh_from_db()
    assert (pool.frozen_until, pool.unfrozen_until is not None) == (None, True)
    assert scale(pool).delta == 2
    assert open_slots(pool) == 4
    with pytest.raises(Conflict, match="not frozen"):
        lift_freeze(pool_id=pool.pk, reason="twice")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pools_pool SET unfrozen_until = now() - interval '1 s'")
    scale(pool)
    assert (open_slots(pool), pool.frozen_until is not None) == (0, True), (
        "the next window freezes as ever"
    )
    assert told("unfreeze") == [("frozen", "active", "hotfix")]


def test_a_manually_managed_pool_refuses_scaling_orders() -> None:
    pool = make_pool("still")
    for order in (
        lambda: pin_pool(pool_id=pool.pk, count=1, until=later(), reason="x"),
        lambda: pause_scaling(pool_id=pool.pk, until=later(), reason="x"),
        lambda: grow_pool(pool_id=pool.pk, reason="x"),
    ):
        with pytest.raises(Conflict, match="has no scaling"):
            order()


# API ----------------------------------------------------------------------------------------------


@pytest.fixture
def api() -> Any:
    return calls_of("operator")


def calls_of(role: str) -> Any:
    user = User.objects.create_user(role)
    create_grant(role=role, user=user)
    secret = create_token(user=user, name="t")[1]

    def call(method: str, path: str = "", body: Any = None, name: str = "lab") -> Any:
        address = f"/api/v1/pools/{name}/scaling/{path}"
        return getattr(Client(), method)(
            address,
            body,
            content_type="application/json",
            headers={"Authorization": f"Bearer {secret}"},
        )

    return call


def test_the_scaling_api_shows_the_next_and_the_past_decisions(api: Any) -> None:
    pool = make(low=1, high=2)
    scale(pool)
    claim = ask()
    found = api("get").json()
    assert (found["now"]["words"], found["now"]["id"]) == ("no change", None)
    assert (found["decisions"][-1]["delta"], found["min"], found["max"]) == (1, 1, 2)
    assert found["next_to_go"] == [
        {
            "id": Member.objects.get().pk,
            "name": "lab-1",
            "state": "ready",
            "blocked": "1 running",
            "claims": [claim.id],
        }
    ]
    before = Decision.objects.count()
    tried = Client().get(
        "/api/v1/pools/lab/scaling/?min=2",
        headers={"Authorization": f"Bearer {create_token(user=User.objects.get(), name='u')[1]}"},
    )
    assert tried.json()["now"]["delta"] == 1
    assert (Decision.objects.count(), names(pool)) == (before, ["lab-1"])


def test_scaling_orders_are_given_by_api(api: Any) -> None:
    pool = make(high=3)
    until = later().isoformat()
    pinned = api("post", "pin/", {"count": 2, "until": until, "reason": "demo"})
    assert (pinned.status_code, pinned.json()["pin_count"]) == (200, 2)
    assert api("post", "unpin/", {}).json()["pin_count"] is None
    assert api("post", "pause/", {"until": until, "reason": "x"}).json()["pause_reason"] == "x"
    assert api("post", "resume/", {}).json()["paused_until"] is None
    assert api("post", "grow/", {"reason": "x"}).json()["chosen"][0]["name"] == "lab-1"
    assert api("post", "grow/", {"reason": "x", "count": 9}).json()["delta"] == 2
    full = api("post", "grow/", {"reason": "x"})
    assert (full.status_code, "Raise members.max" in full.json()["way_out"]) == (422, True)
    assert api("post", "unfreeze/", {"reason": "x"}).json()["code"] == "not_frozen"
    assert (
        api("post", "pin/", {"count": 9, "until": until, "reason": "x"}).json()["errors"][0][
            "field"
        ]
        == "count"
    )
    assert Event.objects.filter(pool_id=pool.pk, verb="pin")[0].actor == "operator/t"


def test_a_viewer_may_not_give_any_scaling_order() -> None:
    make()
    call = calls_of("viewer")
    assert call("get").status_code == 200
    prefix = "pools/<name:pool_name>/scaling/"
    routes = {str(address.pattern) for address in urlpatterns}
    orders = {route.removeprefix(prefix) for route in routes if route.startswith(prefix)}
    orders -= {"", "replay/"}  # these are reads
    assert orders >= {"pin/", "unpin/", "pause/", "resume/", "grow/", "unfreeze/", "refreeze/"}
    body = {"reason": "x", "count": 1, "until": later().isoformat()}
    assert {path: call("post", path, body).status_code for path in orders} == dict.fromkeys(
        orders, 403
    )


def test_the_scaling_api_of_a_manually_managed_pool_is_empty(api: Any) -> None:
    make_pool("still")
    found = api("get", name="still").json()
    assert (found["policy"], found["now"], found["decisions"]) == (None, None, [])
    refused = api(
        "post", "pin/", {"count": 1, "until": later().isoformat(), "reason": "x"}, name="still"
    )
    assert (refused.status_code, refused.json()["code"]) == (409, "not_scaled")


# Questions ----------------------------------------------------------------------------------------


@pytest.fixture
def pages() -> Client:
    user = User.objects.create_user("ana")
    create_grant(role="operator", user=user)
    client = Client()
    client.force_login(user)
    return client


def test_the_pin_dialog_shows_affected_members_and_each_order_has_a_dialog(pages: Client) -> None:
    pool = fixed(3)
    ask()
    shown = pages.get("/pools/lab/scaling/pin/").content.decode()
    assert "Removable now" in shown and "2 members" in shown
    first = pages.post("/pools/lab/scaling/pin/", {"count": "1", "for": "2h", "reason": "quiet"})
    assert (first.status_code, "lab-3" in first.content.decode()) == (409, True), (
        "what it affects is shown before it is done"
    )
    seen = first.content.decode().split('name="seen" value="')[1].split('"')[0]
    done = pages.post(
        "/pools/lab/scaling/pin/", {"count": "1", "for": "2h", "reason": "quiet", "seen": seen}
    )
    assert done.status_code == 302
    assert Pool.objects.get().pin_count == 1
    scale_pools([pool.pk])
    assert Member.objects.filter(state="deleting").count() == 2
    for path, form in (
        ("unpin", {}),
        ("pause", {"for": "1h"}),
        ("resume", {}),
        ("grow", {"count": "1"}),
    ):
        assert pages.get(f"/pools/lab/scaling/{path}/").status_code == 200
        assert (
            pages.post(f"/pools/lab/scaling/{path}/", {"reason": "why", **form}).status_code == 302
        ), path
    assert "The pool is not frozen" in pages.get("/pools/lab/scaling/unfreeze/").content.decode()
    refused = pages.post("/pools/lab/scaling/pause/", {"for": "long", "reason": "why"})
    assert (refused.status_code, "not a length of time" in refused.content.decode()) == (422, True)


def test_an_open_freeze_is_lifted_by_dialog(pages: Client) -> None:
    clock = timezone.now()
    window = {
        "from": f"{clock - timedelta(hours=1):%H:%M}",
        "to": f"{clock + timedelta(hours=1):%H:%M}",
        "name": "release",
    }
    pool = make(freeze=[window])
    scale(pool)
    assert "release" in pages.get("/pools/lab/scaling/unfreeze/").content.decode()
    assert pages.post("/pools/lab/scaling/unfreeze/", {"reason": "hotfix"}).status_code == 302
    update_pool("lab", config())
