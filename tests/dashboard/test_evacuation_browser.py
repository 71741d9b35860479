"""An evacuation in a real browser: the preview, the live progress on both pages, and the undo."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from claims.ports.evacuation.mover import step_evacuation
from pools.models import Pool
from slots.models import Evacuation, Slot
from tests.axe import find_faults
from tests.dashboard.helpers import chief, claim, expect_not_reloaded, mark_page
from tests.dashboard.ports_world import hold_ports, make_ports, port, with_crane, work
from tests.dashboard.screenshots import shoot_all
from tests.pools.providers.fake_providers import fresh

pytestmark = pytest.mark.browser


@pytest.fixture
def pool(site: str) -> Iterator[Pool]:
    fresh()
    with with_crane:
        yield make_ports(members=2, ports="30000-30019")


def take_step(member_id: int) -> None:
    Evacuation.objects.filter(pk=member_id).update(due_at="2000-01-01T00:00:00Z")
    step_evacuation(member_id)


def test_operator_previews_follows_and_undoes_an_evacuation(
    page: Any, pool: Pool, sign_in: Callable[[Any, User], None]
) -> None:
    hold_ports(pool, 3, 2, 1)
    named = port(pool, 1, 30006)
    claim(pool.name, kind="port", owner="gate-1", slot=named.pk)
    work(pool)
    member = Slot.objects.filter(state="held").values_list("member_id", flat=True)[0]
    sign_in(page, chief())
    page.goto("/pools/game-eu/?tab=members&member=game-eu-1")
    page.locator("#conn.live").wait_for()
    page.get_by_role("link", name="Evacuate…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="Evacuate game-eu-1")).to_be_visible()
    expect(dialog.get_by_text("3 claims move, 1 claim stays for now.")).to_be_visible()
    expect(dialog.get_by_text("It asked for exactly this port")).to_be_visible()
    assert not find_faults(page)
    shoot_all(page, "evacuate-dialog", is_whole=False)
    dialog.get_by_label("Reason").fill("under attack since 14:03")
    dialog.get_by_role("button", name="Evacuate").click()
    expect(page.get_by_text("0 of 4 claims moved")).to_be_visible()
    mark_page(page)
    take_step(member)
    expect(page.get_by_text("moves: ").first).to_be_visible()
    take_step(member)
    expect(page.get_by_text("The old listeners serve until the new ones are ready")).to_be_visible()
    expect(page.get_by_text("It asked for exactly this port")).to_be_visible()
    expect(page.get_by_text("0 of 4 claims moved, 2 to move.")).to_be_visible()
    expect(page.get_by_text("Ends 3 claims here: their ports drain.")).to_be_visible()
    expect_not_reloaded(page)
    assert not find_faults(page)
    shoot_all(page, "evacuate-member")
    page.goto("/pools/game-eu/?tab=ports")
    page.locator("#conn.live").wait_for()
    table = page.get_by_role("table", name="Evacuations")
    expect(table.get_by_text("0 of 4 claims")).to_be_visible()
    assert not find_faults(page)
    shoot_all(page, "evacuate-ports")
    work(pool)
    take_step(member)
    expect(table.get_by_text("1 of 4 claims")).to_be_visible()
    take_step(member)
    table.get_by_role("link", name="Undo…").click()
    expect(dialog.get_by_text("1 claim, with new addresses")).to_be_visible()
    shoot_all(page, "evacuate-undo", is_whole=False)
    dialog.get_by_role("button", name="Undo").click()
    expect(table).to_have_count(0)
    assert not Evacuation.objects.exists()
