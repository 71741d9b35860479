"""A future freeze window is lifted once, by service, API or calendar, and taken back."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from claims.models import Lift
from claims.scaling.orders import lift_freeze, refreeze_pool
from pools.access.tokens import create_token
from pools.models import Pool
from pools.roles.services import create_grant
from pools.scaling import Window, find_open
from project.kernel.actor import acting_as
from project.kernel.errors import Conflict, Invalid
from project.kernel.models import Event
from tests.api.conftest import Caller
from tests.claims.helpers import again, ask, serve
from tests.claims.scaling.test_scaler import make, scale
from tests.dashboard.plain_browser import get
from tests.pools.providers.fake_providers import ALL, fresh
from tests.slots.helpers import is_consistent, open_slots

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tables")]
BEGAN = [timezone.now()]


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> Iterator[None]:
    settings.BERTH_PROVIDERS = ALL
    fresh()
    BEGAN[:] = [timezone.now().replace(second=0, microsecond=0)]
    yield
    assert is_consistent()


def minute(hours: float) -> datetime:
    """The time so many hours from the hour in which the test began."""
    return BEGAN[0] + timedelta(hours=hours)


def window(first: float, last: float, name: str = "release") -> dict[str, str]:
    """A daily window in UTC, in hours from now."""
    return {"from": f"{minute(first):%H:%M}", "to": f"{minute(last):%H:%M}", "name": name}


class Clock:
    """What the scaler takes for now; the database's own stays as it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def at(self, moment: datetime) -> None:
        def shifted(windows: Any, now: datetime, lifted: Any = ()) -> Any:
            return find_open(windows, moment, lifted)

        self.monkeypatch.setattr("claims.allocation.member_limits.find_open", shifted)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def frozen(pool: Pool) -> bool:
    scale(pool)
    pool.refresh_from_db()
    return pool.frozen_until is not None


def test_a_lifted_window_does_not_freeze_and_the_next_one_does(clock: Clock) -> None:
    pool = make(low=2, freeze=[window(2, 4)])
    start = minute(2)
    scale(pool)
    with acting_as("ana"):
        lift_freeze(pool_id=pool.pk, reason="hotfix", starts_at=start)
    assert not frozen(pool), "it has not begun"
    clock.at(start + timedelta(minutes=5))
    assert not frozen(pool)
    assert open_slots(pool) == 4
    claim = ask()
    serve()
    assert not again(claim).is_waiting, "slots are handed out in it"
    clock.at(start + timedelta(days=1, minutes=5))
    assert frozen(pool)
    assert open_slots(pool) == 0
    lift = Lift.objects.get()
    assert (lift.starts_at, lift.ends_at, lift.by, lift.reason) == (
        start,
        minute(4),
        "ana",
        "hotfix",
    )
    event = Event.objects.get(verb="lift_ahead")
    assert (event.before, event.after, event.reason, event.actor) == (
        "frozen",
        "lifted",
        "hotfix",
        "ana",
    )
    assert not Event.objects.filter(verb="freeze", at__lt=event.at).exists()


def test_another_open_window_still_freezes(clock: Clock) -> None:
    pool = make(freeze=[window(2, 6), window(3, 4, "audit")])
    lift_freeze(pool_id=pool.pk, reason="hotfix", starts_at=minute(2))
    clock.at(minute(2) + timedelta(minutes=5))
    assert not frozen(pool)
    clock.at(minute(3) + timedelta(minutes=5))
    assert frozen(pool)
    assert (pool.frozen_until, "audit" in pool.freeze_reason) == (minute(4), True)


def test_a_refrozen_window_freezes_again(clock: Clock) -> None:
    pool = make(low=1, freeze=[window(2, 4)])
    start = minute(2)
    for moment in (None, start + timedelta(minutes=5)):
        lift_freeze(pool_id=pool.pk, reason="hotfix", starts_at=start)
        if moment is not None:
            clock.at(moment)
            assert not frozen(pool)
        refreeze_pool(pool_id=pool.pk, starts_at=start, reason="not needed")
        pool.refresh_from_db()
        assert (pool.frozen_until is not None) is (moment is not None), "at once, where it is open"
    assert [e.reason for e in Event.objects.filter(verb="refreeze")] == ["not needed", "not needed"]
    assert not Lift.objects.exists()


def test_an_open_window_is_lifted_and_refrozen_by_its_start() -> None:
    pool = make(low=1, freeze=[window(-1, 1)])
    assert frozen(pool)
    lift_freeze(pool_id=pool.pk, reason="hotfix", starts_at=minute(-1))
    pool.refresh_from_db()
    assert (pool.frozen_until, pool.unfrozen_until) == (None, None)
    refreeze_pool(pool_id=pool.pk, starts_at=minute(-1))
    assert frozen(pool)
    lift_freeze(pool_id=pool.pk, reason="hotfix")
    with pytest.raises(Conflict, match="lifted already"):
        lift_freeze(pool_id=pool.pk, reason="hotfix", starts_at=minute(-1))
    refreeze_pool(pool_id=pool.pk, starts_at=minute(-1))
    pool.refresh_from_db()
    assert (pool.unfrozen_until, frozen(pool)) == (None, True)


def test_a_lift_of_an_unknown_window_is_refused_at_its_field() -> None:
    pool = make(freeze=[window(2, 4)])
    with pytest.raises(Invalid) as refused:
        lift_freeze(pool_id=pool.pk, reason="x", starts_at=minute(2.5))
    fault = refused.value.fields[0]
    assert (fault.field, fault.message) == ("starts_at", "No freeze of lab begins then.")
    assert (
        f"Use one of: {minute(2):%Y-%m-%dT%H:%M:%SZ}, {minute(26):%Y-%m-%dT%H:%M:%SZ}"
        in fault.way_out
    )
    with pytest.raises(Invalid) as refused:
        refreeze_pool(pool_id=pool.pk, starts_at=minute(2))
    assert (refused.value.fields[0].field, refused.value.fields[0].way_out) == (
        "starts_at",
        "No freeze is lifted.",
    )
    lift_freeze(pool_id=pool.pk, reason="x", starts_at=minute(2))
    with pytest.raises(Conflict, match="lifted already"):
        lift_freeze(pool_id=pool.pk, reason="x", starts_at=minute(2))
    with pytest.raises(Invalid, match=r".*"):
        lift_freeze(pool_id=pool.pk, reason=" ", starts_at=minute(26))
    assert Lift.objects.count() == 1


def test_a_past_lift_is_deleted_with_the_next_lift() -> None:
    pool = make(freeze=[window(2, 4)])
    past = timezone.now() - timedelta(days=1)
    Lift.objects.create(
        pool=pool, starts_at=past - timedelta(hours=2), ends_at=past, by="ana", reason="then"
    )
    lift_freeze(pool_id=pool.pk, reason="x", starts_at=minute(2))
    assert Lift.objects.get().starts_at == minute(2)


def test_a_window_whose_start_is_lifted_is_not_open() -> None:
    at = minute(0)
    one = Window((at - timedelta(hours=1)).time(), (at + timedelta(hours=1)).time(), "UTC")
    assert find_open([one], at, [at - timedelta(hours=1)]) is None
    assert find_open([one], at, [at - timedelta(hours=1, days=1)]) == (one, at + timedelta(hours=1))


@pytest.fixture
def api(tables: None) -> Caller:
    user = User.objects.create_user("olga")
    create_grant(role="operator", user=user)
    return Caller(create_token(user=user, name="t")[1])


def test_a_window_is_lifted_and_refrozen_by_api(api: Caller) -> None:
    make(freeze=[window(2, 4)])
    first, second = [row["starts_at"] for row in api.get("scaling/freezes/").body["results"]][:2]
    order = {"reason": "hotfix", "starts_at": first}
    assert api.post("pools/lab/scaling/unfreeze/", order).body["frozen_until"] is None
    rows = api.get("scaling/freezes/").body["results"]
    assert [(r["is_lifted"], r["lifted_by"], r["lift_reason"]) for r in rows[:2]] == [
        (True, "olga/t", "hotfix"),
        (False, None, None),
    ]
    assert api.post("pools/lab/scaling/unfreeze/", order).status == 409
    wrong = api.post("pools/lab/scaling/unfreeze/", order | {"starts_at": "2020-01-01T00:00:00Z"})
    assert [e["field"] for e in wrong.body["errors"]] == ["starts_at"]
    assert second.split("+")[0].removesuffix("Z") in wrong.body["errors"][0]["way_out"]
    naive = api.post("pools/lab/scaling/unfreeze/", order | {"starts_at": "2020-01-01T00:00:00"})
    assert [e["field"] for e in naive.body["errors"]] == ["starts_at"]
    assert api.post("pools/lab/scaling/refreeze/", {"starts_at": first}).status == 200
    assert not api.get("scaling/freezes/").body["results"][0]["is_lifted"]
    again_ = api.post("pools/lab/scaling/refreeze/", {"starts_at": first})
    assert [e["field"] for e in again_.body["errors"]] == ["starts_at"]
    assert [e["field"] for e in api.post("pools/lab/scaling/refreeze/", {}).body["errors"]] == [
        "starts_at"
    ]


def test_a_window_is_lifted_and_refrozen_from_the_calendar() -> None:
    pool = make(freeze=[window(2, 4)])
    user = User.objects.create_user("ola")
    create_grant(role="operator", user=user, pool=pool)
    browser = Client()
    browser.force_login(user)

    def act(word: str) -> str:
        shown = browser.get("/scaling/?view=freezes").content.decode()
        found = re.search(rf'href="([^"]*)"\s+data-dialog>\s*{word}', shown)
        assert found is not None, shown
        href = found[1].replace("&amp;", "&")
        asked = browser.get(href).content.decode()
        seen = re.search(r'name="seen" value="([^"]*)"', asked)
        assert seen is not None, asked
        assert browser.post(href, {"seen": seen[1], "reason": "hotfix"}).status_code == 302
        return asked

    assert "Lifts this freeze from its start to its end" in act("Lift freeze…")
    shown = get(browser, "/scaling/?view=freezes")
    assert "lifted this time" in shown
    assert "ola: “hotfix”" in shown
    assert 'class="frozen lifted"' in shown
    assert "freeze of" in get(browser, "/scaling/")
    assert "ola “hotfix”" in act("Restore freeze…")
    assert "lifted this time" not in browser.get("/scaling/?view=freezes").content.decode()
    for odd in ("nonsense", "2020-01-01T00:00:00", "2020-01-01T00:00:00%2B00:00"):
        assert (
            "No freeze of lab begins then."
            in browser.get(f"/pools/lab/scaling/unfreeze/?starts={odd}").content.decode()
        )
        assert (
            "This freeze is not lifted."
            in browser.get(f"/pools/lab/scaling/refreeze/?starts={odd}").content.decode()
        )


def test_a_viewer_may_not_lift_a_window() -> None:
    pool = make(freeze=[window(2, 4)])
    user = User.objects.create_user("vera")
    create_grant(role="viewer", user=user, pool=pool)
    browser = Client()
    browser.force_login(user)
    for what in ("unfreeze", "refreeze"):
        path = f"/pools/lab/scaling/{what}/?starts={minute(2):%Y-%m-%dT%H:%M:%SZ}"
        assert browser.get(path).status_code == 403
        assert browser.post(path, {"reason": "hotfix"}).status_code == 403
    assert not Lift.objects.exists()
