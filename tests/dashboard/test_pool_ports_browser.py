"""The port map in a real browser: one tab stop, arrows, trace of a claim, and live cells."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from claims.lifecycle.release import release_claim
from claims.models import Claim
from pools.models import Pool
from project.kernel.outbox.operations import perform_due
from slots.models import Slot
from tests.axe import find_faults
from tests.dashboard.helpers import chief, claim, expect_not_reloaded, mark_page
from tests.dashboard.ports_world import (
    drift_ports,
    hold_ports,
    make_ports,
    port,
    sample_rise,
    with_crane,
    work,
    world,
)
from tests.dashboard.screenshots import shoot_all
from tests.pools.providers.fake_providers import fresh

pytestmark = pytest.mark.browser

LIVE = "#conn.live"


@pytest.fixture
def pool(site: str) -> Iterator[Pool]:
    fresh()
    with with_crane:
        yield make_ports(members=4, ports="30000-30049")


@pytest.fixture
def tab(page: Any, pool: Pool, sign_in: Callable[[Any, User], None]) -> Any:
    sign_in(page, chief())
    return page


def open_tab(page: Any, query: str = "") -> None:
    page.goto(f"/pools/game-eu/?tab=ports{query}")
    page.locator(LIVE).wait_for()


def cell(page: Any, slot: Slot) -> Any:
    return page.locator(f"#s{slot.pk}")


def selected(page: Any) -> str:
    found = page.locator(".ports [aria-selected=true]")
    expect(found).to_have_count(1)
    title: str = found.get_attribute("title")
    return title.split()[0].split("/")[0]


def test_map_is_one_tab_stop_in_which_arrows_select_a_port(tab: Any, pool: Pool) -> None:
    hold_ports(pool, 2)
    open_tab(tab)
    grid = tab.locator("#port-grid")
    assert grid.locator("[tabindex]").count() == 0
    grid.focus()
    assert selected(tab) == "30000"
    for key, number in (
        ("ArrowRight", "30001"), ("ArrowRight", "30002"), ("ArrowLeft", "30001"),
        ("End", "30049"), ("ArrowRight", "30049"), ("Home", "30000"), ("ArrowUp", "30000"),
    ):  # fmt: skip
        tab.keyboard.press(key)
        assert selected(tab) == number, key
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowDown")
    below = port(pool, 2, 30001)
    expect(cell(tab, below)).to_have_attribute("aria-selected", "true")
    expect(grid).to_have_attribute("aria-activedescendant", f"s{below.pk}")
    panel = tab.locator("#port-panel")
    expect(panel.get_by_role("heading", name="game-eu-2 · 30001")).to_be_visible()
    expect(tab).to_have_url(f"{tab.url.partition('?')[0]}?tab=ports&port={below.pk}")


def test_pointing_at_a_port_marks_all_ports_of_its_claim(tab: Any, pool: Pool) -> None:
    first, second = hold_ports(pool, 3, 2)
    open_tab(tab)
    traced = tab.locator(".ports [data-traced]")
    tab.locator(f'.ports [data-c="{first}"]').nth(1).hover()
    expect(traced).to_have_count(3)
    expect(tab.locator("[data-port-readout]")).to_contain_text(f"serving {first} relay-1")
    tab.locator(f'.ports [data-c="{second}"]').first.hover()
    expect(traced).to_have_count(2)
    tab.locator("h1").hover()
    expect(traced).to_have_count(0)
    tab.locator("#port-grid").focus()
    expect(traced).to_have_count(3)
    tab.keyboard.press("t")
    tab.wait_for_url(f"**/claims/{first}/")


def test_n_goes_to_the_next_port_with_a_difference(tab: Any, pool: Pool) -> None:
    hold_ports(pool, 5)
    found = drift_ports(pool)
    open_tab(tab)
    tab.locator("#port-grid").focus()
    expect(cell(tab, found["missing"])).to_have_attribute("aria-selected", "true")
    tab.keyboard.press("n")
    expect(cell(tab, found["problem"])).to_have_attribute("aria-selected", "true")


def test_cell_changes_its_class_with_bind_health_drift_and_release(tab: Any, pool: Pool) -> None:
    open_tab(tab)
    mark_page(tab)
    slot = port(pool, 1, 30000)
    expect(cell(tab, slot)).to_have_class("idle")
    held = claim(pool.name, kind="port", owner="relay")
    expect(cell(tab, slot)).to_have_class("reserved")
    perform_due("crane")
    place = f"{pool.name}/{slot.member_id}", slot.lane, slot.number
    world().details[place] = {"health": "healthy"}
    work(pool)
    expect(cell(tab, slot)).to_have_class("running")
    world().listeners.pop(place)
    work(pool)
    expect(cell(tab, slot)).to_have_class("missing")
    expect(tab.locator(".drifts tbody tr")).to_have_count(1)
    generation = Claim.objects.values_list("generation", flat=True).get(pk=held.id)
    release_claim(claim_id=held.id, generation=generation)
    expect(cell(tab, slot)).to_have_class("draining")
    perform_due("crane")
    expect(cell(tab, slot)).to_have_class("idle")
    expect_not_reloaded(tab)


def test_map_with_findings_is_accessible_and_fits_a_phone(tab: Any, pool: Pool) -> None:
    hold_ports(pool, *[3] * 20, *[1] * 40)
    drift_ports(pool)
    sample_rise(pool, used=100, slots=200)
    claim(pool.name, kind="port", owner="late")
    open_tab(tab)
    tab.locator("#port-panel h2").wait_for()
    shoot_all(tab, "ports")
    assert find_faults(tab) == []
    tab.set_viewport_size({"width": 390, "height": 844})
    expect(tab.locator("html")).to_have_js_property("scrollWidth", 390)
    tab.set_viewport_size({"width": 1440, "height": 900})
