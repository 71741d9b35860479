"""The scaling tab of a pool in a real browser: charts, orders and dry runs."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone
from playwright.sync_api import expect

from claims.scaling.scaler import scale_pools
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Decision, Member, Pool, Sample
from slots.members.services import record_sync_result
from tests.axe import find_faults
from tests.claims.helpers import ask, serve
from tests.dashboard.screenshots import shoot, shoot_all

pytestmark = pytest.mark.django_db(transaction=True)


def config(**scaling: Any) -> dict[str, Any]:
    policy = {
        "policy": "utilisation",
        "idle_members": True,
        "cooldown": {"up": "0s", "down": "0s"},
    } | scaling
    members = {"min": 1, "max": 4}
    return {
        "name": "tf",
        "provider": "local",
        "slots": ["any", "plan", "plan"],
        "members": members,
        "scaling": policy,
    }


def step(pool: Pool) -> None:
    scale_pools([pool.pk])
    for member in Member.objects.filter(pool=pool, state="creating"):
        record_sync_result(member_id=member.pk, is_gone=False, is_ready=True)
    for member in Member.objects.filter(pool=pool, state="deleting"):
        record_sync_result(member_id=member.pk, is_gone=True, is_ready=False)
    serve()


def fill() -> Pool:
    """A day in short: it grows, is full, shrinks again and is full once more."""
    pool = create_pool(config())
    Pool.objects.filter(pk=pool.pk).update(state="active", observed_at=timezone.now())
    step(pool)
    plans = [ask("tf", kind="plan", owner=f"job:{n}") for n in range(6)]
    for _ in range(3):
        step(pool)
    with connection.cursor() as cursor:
        for claim in plans[2:]:
            cursor.execute("SELECT generation FROM claims_claim WHERE id = %s", [claim.id])
    for n in range(9):
        ask("tf", kind="plan", owner=f"late:{n}")
    for _ in range(3):
        step(pool)
    now = timezone.now().replace(second=0, microsecond=0)
    Sample.objects.bulk_create(
        Sample(
            pool=pool,
            at=now - timedelta(minutes=360 - n),
            members=1 + n // 120,
            slots=3 + 3 * (n // 90),
            held=min(3 + 3 * (n // 90), n // 40 + n % 3),
            reserved=int(n > 200),
            waiting=max(0, n // 50 - 2 * (n // 90) - n % 5),
        )
        for n in range(360)
    )
    first = Decision.objects.filter(pool=pool, delta__gt=0).earliest("id")
    Decision.objects.filter(pk=first.pk).update(
        at=now - timedelta(hours=3), last_at=now - timedelta(hours=3)
    )
    return pool


def test_the_scaling_tab_shows_charts_decisions_and_dry_runs(
    page: Any, sign_in: Callable[[Any, User], None], ana: User
) -> None:
    pool = fill()
    sign_in(page, ana)
    page.goto("/pools/tf/?tab=scaling")
    page.wait_for_selector(".uplots canvas")
    assert page.locator(".uplots canvas").count() == 2
    first = page.locator("details.dec").first
    assert "4 of 4 members exist" in first.inner_text()
    assert page.locator("aside .do li").count() == 3
    page.locator("details.dec").nth(1).locator("summary").click()
    page.wait_for_selector("details.dec[open] >> nth=1")
    shoot_all(page, "scaling")
    assert find_faults(page) == []
    page.fill("#dry-run input[name=max]", "6")
    page.click("#dry-run button")
    page.wait_for_selector("#dry-run p[role=status]")
    assert "Result with these values: +1." in page.locator("#dry-run").inner_text()
    page.click("#dry-run button[value='1']")
    page.wait_for_selector(".replay table")
    assert [head.inner_text() for head in page.locator(".replay th.num").all()] == [
        "was",
        "as configured",
        "with these",
    ]
    page.locator(".replay").scroll_into_view_if_needed()
    shoot_all(page, "replay")
    page.evaluate("() => scrollTo(0, 0)")  # else the head that stays may lie close to a link
    assert find_faults(page) == []
    assert (
        Decision.objects.filter(pool=pool).count() and Pool.objects.get(pk=pool.pk).max_members == 4
    )
    canvas = page.locator(".uplots canvas").first
    wide = canvas.evaluate("canvas => canvas.clientWidth")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(canvas).not_to_have_js_property("clientWidth", wide)
    expect(page.locator("html")).to_have_js_property("scrollWidth", 390)


def test_a_pin_by_dialog_is_applied_and_shown_live(
    page: Any, sign_in: Callable[[Any, User], None], ana: User
) -> None:
    pool = fill()
    update_pool("tf", {**config(), "members": {"min": 1, "max": 5}})
    sign_in(page, ana)
    page.goto("/pools/tf/?tab=scaling")
    page.wait_for_selector("#conn.live")
    page.get_by_role("link", name="Pin…").click()
    page.wait_for_selector("dialog[open] input[name=count]")
    shoot(page, "scaling-pin")
    page.fill("dialog input[name=count]", "5")
    page.fill("dialog [name=reason]", "release day")
    page.click("dialog button.pri, dialog button[type=submit]")
    page.wait_for_selector("text=Pinned to 5")
    step(pool)
    page.wait_for_selector("details.dec:has-text('pinned to 5')")
    assert Member.objects.filter(pool=pool).exclude(state="gone").count() == 5
