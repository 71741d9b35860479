"""Placement policies: their ranks, and that a policy is declared in one place only."""

import pytest

from pools.config.layout import slots_of, tasks
from pools.config.placement import (
    LONGEST_NAME,
    LOWEST_RANK,
    PLACEMENTS,
    MemberSlots,
    Placement,
    ranks_of,
)
from pools.config.spec import pool_schema
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Pool
from pools.providers.base import option_readers
from slots.models import Slot
from tests.dashboard.helpers import chief
from tests.dashboard.plain_browser import browser_of, get
from tests.slots.helpers import give_back, hold


@pytest.mark.parametrize(
    ("placement", "expected"),
    [("pack", [7, 7, 7]), ("spread", [0, 0, 1]), ("random", [5, 5, 5])],
)
def test_ranks(placement: str, expected: list[int]) -> None:
    offered = slots_of(tasks(["any", "plan", "plan"]))
    assert ranks_of(placement, 7, offered, lambda: 5) == expected


def test_names_fit_their_column() -> None:
    assert all(
        name == placement.name and len(name) <= LONGEST_NAME
        for name, placement in PLACEMENTS.items()
    )


def rank_last_member_first(member: MemberSlots) -> list[int]:
    return [1000 - member.position] * len(member.slots)


@pytest.fixture
def newest(monkeypatch: pytest.MonkeyPatch) -> Placement:
    """A policy that only this test declares."""
    policy = Placement("newest", "the last member is filled first", rank_last_member_first)
    monkeypatch.setitem(PLACEMENTS, policy.name, policy)
    return policy


@pytest.mark.django_db
def test_a_new_policy_is_accepted_ranks_slots_and_appears_in_schema_form_and_page(
    newest: Placement,
) -> None:
    config = {"name": "lab", "slots": 1, "members": {"max": 3, "list": ["a", "b", "c"]}}
    create_pool({**config, "placement": newest.name})
    in_order = Slot.objects.order_by("rank", "number").values_list("member__name", flat=True)
    assert list(in_order) == ["c", "b", "a"]
    update_pool("lab", {**config, "placement": "pack"})
    assert list(in_order.all()) == ["a", "b", "c"]
    update_pool("lab", {**config, "placement": newest.name})
    assert list(in_order.all()) == ["c", "b", "a"]

    schema = pool_schema(option_readers())["properties"]["placement"]
    assert newest.name in schema["enum"] and str(newest) in schema["description"]

    client = browser_of(chief())
    sentence = "newest: the last member is filled first"
    assert f'<option value="newest" selected>{sentence}</option>' in get(client, "/pools/lab/edit/")
    assert sentence in get(client, "/pools/lab/?tab=policy")


@pytest.mark.django_db
def test_a_policy_that_counts_uses_gives_the_slot_with_the_fewest_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = Placement(
        "least-used", "the slot with the fewest uses", lambda m: [0] * len(m.slots), True
    )
    monkeypatch.setitem(PLACEMENTS, policy.name, policy)
    pool = create_pool(
        {"name": "lab", "slots": 3, "placement": "least-used", "members": {"list": ["a"]}}
    )

    def use() -> int:
        claim, slot, generation = hold(pool)
        give_back(claim, generation)
        return Slot.objects.get(pk=slot).number

    assert [use() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert [rank - LOWEST_RANK for rank in ranks_by_number(pool)] == [3, 2, 2]


@pytest.mark.django_db
def test_a_use_leaves_the_ranks_of_other_policies() -> None:
    pool = create_pool({"name": "lab", "slots": 3, "members": {"list": ["a"]}})
    claim, _, generation = hold(pool)
    give_back(claim, generation)
    assert ranks_by_number(pool) == [0, 0, 0]


def ranks_by_number(pool: Pool) -> list[int]:
    return list(Slot.objects.filter(pool=pool).order_by("number").values_list("rank", flat=True))
