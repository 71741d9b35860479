"""The scaling overview and the freeze calendar."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from claims.scaling import orders
from claims.scaling.scaler import scale_pools
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Member, Pool
from pools.roles.services import create_grant
from pools.scaling.schedule import DAYS
from slots.members.services import record_sync_result
from tests.claims.helpers import ask, serve
from tests.dashboard.plain_browser import html_of

pytestmark = pytest.mark.django_db(transaction=True)


def config(
    name: str, *, low: int = 1, high: int = 4, env: str = "", roll: str = "idle", **scaling: Any
) -> dict[str, Any]:
    policy = {"policy": "utilisation", "cooldown": {"up": "0s", "down": "0s"}} | scaling
    provider = {"kind": "local"} | ({"env": {"TZ": env}} if env else {})
    members = {"min": low, "max": high}
    return {
        "name": name,
        "provider": provider,
        "slots": ["any", "plan"],
        "members": members,
        "scaling": policy,
        "roll": roll,
    }


def make(name: str, **more: Any) -> Pool:
    pool = create_pool(config(name, **more))
    Pool.objects.filter(pk=pool.pk).update(state="active", observed_at=timezone.now())
    step(pool)
    return pool


def step(pool: Pool) -> None:
    scale_pools([pool.pk])
    for member in Member.objects.filter(pool=pool, state="creating"):
        record_sync_result(member_id=member.pk, is_gone=False, is_ready=True)
    serve()


def now_window(zone: str, name: str) -> dict[str, Any]:
    """Open at this moment, across midnight if need be."""
    wall = datetime.now(ZoneInfo(zone))
    start, end = wall - timedelta(hours=1), wall + timedelta(hours=2)
    return {
        "from": f"{start:%H:%M}",
        "to": f"{end:%H:%M}",
        "zone": zone,
        "name": name,
        "days": [DAYS[start.weekday()]],
    }


def fill() -> dict[str, Pool]:
    found = {name: make(name) for name in ("quiet", "pinned", "held")}
    found["full"] = make("full", high=1)
    for n in range(4):
        ask("full", kind="plan", owner=f"job:{n}")
    step(found["full"])
    weekend = {
        "from": "22:00",
        "to": "06:00",
        "days": "fri-sun",
        "zone": "America/New_York",
        "name": "weekend",
    }
    found["frozen"] = make(
        "frozen", freeze=[now_window("Europe/Berlin", "release"), weekend], low=0
    )
    step(found["frozen"])
    found["by-hours"] = make(
        "by-hours",
        schedule=[
            {
                "from": "08:00",
                "to": "20:00",
                "days": "mon-fri",
                "zone": "Asia/Tokyo",
                "min": 2,
                "max": 3,
            }
        ],
    )
    found["old"] = make("old", low=2, high=2, roll="manual")
    update_pool("old", config("old", low=2, high=2, roll="manual", env="UTC"))
    step(found["old"])
    until = timezone.now() + timedelta(hours=2)
    orders.pin_pool(pool_id=found["pinned"].pk, count=2, until=until, reason="release day")
    orders.pause_scaling(pool_id=found["held"].pk, until=until, reason="looking at the bill")
    for name in ("pinned", "held"):
        step(found[name])
    Pool.objects.filter(pk=found["old"].pk).update(
        roll_stopped_at=timezone.now(), roll_stop_reason="old-3 is not ready after 15 min"
    )
    return found


def test_resuming_scaling_from_the_overview_is_shown_live(
    page: Any, sign_in: Callable[[Any, User], None], ana: User
) -> None:
    found = fill()
    sign_in(page, ana)
    page.goto("/scaling/?show=orders")
    page.wait_for_selector("#conn.live")
    assert page.locator(".scalings tbody tr").count() == 2
    page.locator("tr", has_text="held").get_by_role("link", name="Resume…").click()
    page.wait_for_selector("dialog[open]")
    page.click("dialog button.pri, dialog button[type=submit]")
    page.locator(".scalings tbody tr", has_text="looking at the bill").wait_for(state="detached")
    assert page.locator(".scalings tbody tr").count() == 1
    assert Pool.objects.get(pk=found["held"].pk).scaling_paused_until is None


@pytest.fixture
def pages(ana: User) -> Client:
    client = Client()
    client.force_login(ana)
    return client


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["old", "by-hours", "frozen", "full", "held", "pinned", "quiet"]),
        ("?show=attention", ["old"]),
        ("?show=blocked", ["full"]),
        ("?show=orders", ["held", "pinned"]),
        ("?show=frozen", ["frozen"]),
        ("?show=outdated", ["old"]),
        ("?q=u", ["by-hours", "full", "quiet"]),
        (
            "?show=nonsense&q=%3Cscript%3E",
            ["old", "by-hours", "frozen", "full", "held", "pinned", "quiet"],
        ),
    ],
    ids=["all", "attention", "blocked", "orders", "frozen", "outdated", "name", "nonsense"],
)
def test_the_scaling_overview_filters_pools_by_its_query(
    pages: Client, query: str, shown: list[str]
) -> None:
    found = fill()
    text = pages.get(f"/scaling/{query}").content.decode()
    order = sorted(
        (name for name in found if f'data-key="s{found[name].pk}"' in text),
        key=lambda name: text.index(f'data-key="s{found[name].pk}"'),
    )
    assert order == shown


def test_the_scaling_overview_says_whether_a_number_counts_pools_or_members(pages: Client) -> None:
    fill()
    text = html_of(pages.get("/scaling/"))
    for shown in ("1 pool needs attention", "1 pool has outdated members", "2 outdated members"):
        assert f">{shown}</span>" in text
    assert "2 pools are pinned or paused" in text


def test_a_viewer_of_one_pool_sees_its_scaling_only_and_may_not_change_it() -> None:
    found = fill()
    user = User.objects.create_user("leo")
    create_grant(role="viewer", user=user, pool=found["frozen"])
    client = Client()
    client.force_login(user)
    text = client.get("/scaling/").content.decode()
    assert (
        f'data-key="s{found["frozen"].pk}"' in text,
        f'data-key="s{found["quiet"].pk}"' in text,
    ) == (True, False)
    assert "Pin…" in text
    assert 'href="/pools/frozen/scaling/pin/"' not in text
    assert "quiet" not in client.get("/scaling/?view=freezes&zone=Asia/Tokyo").content.decode()


def test_the_calendar_shows_freeze_windows_in_the_chosen_zone(pages: Client) -> None:
    fill()
    text = pages.get("/scaling/?view=freezes&zone=America/New_York").content.decode()
    assert "columns in time zone America/New_York" in text
    assert "weekend: fri, sat, sun 22:00–06:00 America/New_York" in text
    assert 'href="/pools/frozen/scaling/unfreeze/"' in text
    for odd in ("zone=Nowhere", "week=99999", "week=-1", "week=x&zone=%00"):
        assert pages.get(f"/scaling/?view=freezes&{odd}").status_code == 200
    assert "Earlier" in pages.get("/scaling/?view=freezes&week=3").content.decode()


def test_the_overview_lists_a_frozen_pool(pages: Client) -> None:
    found = fill()
    text = pages.get("/").content.decode()
    assert "pool frozen" in text
    assert "frozen until" in text
    assert "Frozen: release: " in text
    asked = pages.get("/pools/old/scaling/roll/").content.decode()
    assert "2 members are affected" in asked
    told = pages.get(f"/pools/{found['full'].name}/?tab=events").content.decode()
    assert "stays at 1" in told


def test_the_calendar_labels_only_windows_with_room_for_the_label(pages: Client) -> None:
    every_day = {"zone": "UTC", "from": "08:00"}
    freeze = [every_day | {"to": "10:00", "name": "backup"}]
    make("lunch", freeze=freeze, schedule=[every_day | {"to": "20:00", "min": 2, "max": 3}])
    text = pages.get("/scaling/?view=freezes").content.decode()
    assert 'title="backup: 08:00–10:00 UTC"' in text and "<span>backup</span>" not in text
    assert "<span>2–3</span>" in text


def test_a_blocked_pool_names_its_maximum_while_a_roll_waits(pages: Client) -> None:
    pool = make("full", high=1)
    for n in range(4):
        ask("full", kind="plan", owner=f"job:{n}")
    step(pool)
    update_pool("full", config("full", high=1, env="UTC"))
    scale_pools([pool.pk])
    text = pages.get("/").content.decode()
    assert "1 member is outdated, in use or kept" in pages.get("/scaling/").content.decode()
    assert "+1 blocked: max is 1" in text


@pytest.mark.parametrize(("slots", "is_shown"), [(["any"], True), (["plan"], False)])
def test_only_a_pool_that_takes_applies_shows_what_an_approval_reserves(
    pages: Client, slots: list[str], is_shown: bool
) -> None:
    create_pool(config("tf") | {"slots": slots})
    text = pages.get("/pools/tf/").content.decode()
    assert ("during approval" in text) == is_shown


def test_the_tab_of_a_pool_in_its_cool_down_shows_what_is_wanted_and_when(pages: Client) -> None:
    pool = make("cool", cooldown={"up": "10m", "down": "10m"})
    for n in range(6):
        ask("cool", kind="plan", owner=f"job:{n}")
    step(pool)
    text = " ".join(pages.get("/pools/cool/?tab=scaling").content.decode().split())
    assert "<b>+1 delayed</b>" in text
    result = text.partition("1 more member wanted. None is created before the cool-down ends.")[2]
    assert result.lstrip().startswith("The cool-down ends <time datetime=")
