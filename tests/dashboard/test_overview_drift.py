"""The card of the overview that shows what differs outside, as the last looks found it."""

import re
from typing import Any

import pytest
from django.test import Client

from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.outbox.operations import perform_due
from slots.models import Slot
from slots.sync.watcher import observe_pool
from tests.dashboard.helpers import chief, claim, make_pool, person
from tests.dashboard.plain_browser import browser_of, get
from tests.pools.providers.fake_providers import ALL, CraneProvider, World, fresh

pytestmark = pytest.mark.django_db(transaction=True)

NONE = "0 external drift The last look at each pool found no difference"


@pytest.fixture
def yard(settings: Any) -> Pool:
    settings.BERTH_PROVIDERS = ALL
    fresh()
    pool = create_pool(
        {"name": "yard", "provider": "crane", "slots": 2, "members": {"list": ["a"]}}
    )
    perform_due("crane")
    observe_pool(pool)
    claim("yard")
    perform_due("crane")
    return pool


def world() -> World:
    return CraneProvider.world


def card(client: Client) -> str:
    found = re.search(r'<li data-key="drift">(.*?)</li>', get(client, "/"))
    assert found is not None
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", found[1])).strip()


def test_the_card_is_empty_while_all_objects_are_as_expected(yard: Pool) -> None:
    observe_pool(yard)
    assert card(browser_of(chief())) == NONE


def test_an_object_without_a_member_is_shown_until_a_look_misses_it(yard: Pool) -> None:
    unknown = Member.objects.get().pk + 5000
    world().things[f"yard/{unknown}"] = "late-thing"
    client = browser_of(chief())
    assert card(client) == NONE, "no look has found it"
    observe_pool(yard)
    shown = "1 difference outside late-thing of yard has no member. The doctor lists them all"
    assert card(client).startswith(shown)
    assert 'href="/pools/yard/" data-attention' in get(client, "/")
    del world().things[f"yard/{unknown}"]
    observe_pool(yard)
    assert card(client) == NONE


def test_missing_and_foreign_slots_are_counted_with_strays(yard: Pool) -> None:
    member = Member.objects.get()
    free = Slot.objects.get(state="idle")
    world().listeners.clear()
    world().foreign_listeners.add((f"yard/{member.pk}", free.lane, free.number))
    world().things[f"yard/{member.pk + 5000}"] = "late-thing"
    observe_pool(yard)
    assert card(browser_of(chief())).startswith(
        "3 differences outside slot 0 of a is missing outside, and 2 more."
    )


def test_differences_of_a_pool_are_hidden_from_readers_of_another(yard: Pool) -> None:
    world().listeners.clear()
    world().things[f"yard/{Member.objects.get().pk + 5000}"] = "late-thing"
    observe_pool(yard)
    other = make_pool("other")
    assert card(browser_of(person("vera", "viewer", pool=other))) == NONE
    assert card(browser_of(person("olga", "viewer", pool=yard))).startswith("2 differences")
