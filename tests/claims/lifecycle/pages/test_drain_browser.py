"""Drains in a real browser: preview, live updates, undrain, force, and accessibility."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from claims.allocation.selectors import view_claim
from claims.lifecycle.chores import evict_overdue
from slots.members.chores import finish_drains
from tests.axe import find_faults
from tests.claims.lifecycle.drain_helpers import find, sql
from tests.claims.tasks.approvals.helpers import agents, applying, begin, planned, task
from tests.dashboard.helpers import chief, person
from tests.dashboard.screenshots import shoot_all
from tests.dashboard.test_browser import LIVE, confirm, open_live

pytestmark = pytest.mark.browser

SignIn = Callable[[Any, User], None]


def busy() -> dict[str, Any]:
    agents(slots=("any", "any", "any", "plan"), members=3, approval={"hold": "1h"})
    return {
        "plan": begin(task(workspace="net/prod")),
        "apply": applying(workspace="net/stage"),
        "waits": planned(workspace="dns/prod"),
    }


def test_a_drain_by_dialog_is_seen_live_by_others_and_undone(
    page: Any, other: Any, sign_in: SignIn, site: str
) -> None:
    claims = busy()
    sign_in(page, chief())
    sign_in(other, person("vera", "viewer"))
    open_live(other, "/pools/tf/?member=tf-0")
    open_live(page, "/pools/tf/?member=tf-0")
    page.get_by_role("link", name="Drain…", exact=True).click()
    dialog = page.locator("#dialog[open]")
    dialog.wait_for()
    for claim in claims.values():
        assert dialog.get_by_role("link", name=str(claim.id)).is_visible()
    shoot_all(page, "drain-dialog", is_whole=False)
    dialog.locator("[name=within]").fill("30m")
    confirm(page, "Drain", reason="kernel patch")
    row = other.locator("table[aria-label='Draining members'] tr", has_text="tf-0")
    row.wait_for()
    assert "1 of 4 slots" in row.inner_text()
    other.locator("#member-panel", has_text="kernel patch").wait_for()
    open_live(page, "/pools/tf/?member=tf-0")
    shoot_all(page, "members-draining", is_whole=False)
    found = find_faults(page)
    open_live(page, f"/claims/{claims['waits'].id}/")
    page.locator("#decide", has_text="tf-0 drains").wait_for()
    shoot_all(page, "decide-draining", is_whole=False)
    found += find_faults(page)
    open_live(page, "/pools/tf/?member=tf-0")
    page.get_by_role("link", name="Undrain…").click()
    confirm(page, "Undrain")
    row.wait_for(state="detached")
    assert find().drain_until is None
    assert found == []


def test_a_forced_drain_requires_the_name_and_ends_the_claims_it_lists(
    page: Any, sign_in: SignIn, site: str
) -> None:
    claims = busy()
    sign_in(page, chief())
    open_live(page, "/pools/tf/?member=tf-0")
    page.get_by_role("link", name="Force drain…").click()
    dialog = page.locator("#dialog[open]")
    dialog.wait_for()
    assert dialog.get_by_text("lost, workspace locked").is_visible()
    shoot_all(page, "force-dialog", is_whole=False)
    found = find_faults(page)
    confirm(page, "Force drain", reason="it burns", typed="tf-0")
    page.locator(
        "table[aria-label='Draining members'] tr", has_text="still being cleaned"
    ).wait_for()
    states = {
        name: (view_claim(claim.id).state, view_claim(claim.id).outcome)
        for name, claim in claims.items()
    }
    assert states == {"plan": ("waiting", ""), "apply": ("ended", "lost"), "waits": ("parked", "")}
    sql("UPDATE pools_member SET drain_until = now() - interval '10 min' WHERE name = 'tf-0'")
    evict_overdue()
    finish_drains()
    open_live(page, "/")
    shoot_all(page, "overview-hanging", is_whole=False)
    assert found + find_faults(page) == []
    open_live(page, "/pools/tf/?member=tf-0")
    shoot_all(page, "members-past", is_whole=False)
    assert find_faults(page) == []


def test_draining_members_of_a_large_pool_are_listed_above_its_zones(
    page: Any, sign_in: SignIn, site: str
) -> None:
    agents(slots=("any", "plan", "plan"), members=62)
    begin(task())
    sign_in(page, chief())
    open_live(page, "/pools/tf/")
    columns = (
        "is_leaving = true, drain_until = now() + interval '1 h', drain_by = 'ana', note = 'disk'"
    )
    sql(f"UPDATE pools_member SET {columns} WHERE name = 'tf-0'")
    open_live(page, "/pools/tf/?member=tf-0")
    assert page.locator(
        "table[aria-label='Draining members'] tr", has_text="2 of 3 slots"
    ).is_visible()
    assert page.locator(LIVE).is_visible()
    shoot_all(page, "dense-draining", is_whole=False)
    assert find_faults(page) == []
