"""What a page says about the result of a decision, and about claims that are no demand."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from claims.scaling.decision_cards import Card, card_of
from claims.scaling.scaler import dry_run, inputs_of, scale_pools
from claims.scaling.snapshot import HOPELESS
from pools.lifecycle.services import create_pool
from pools.models import Decision
from pools.scaling import MemberLimits, Pin, ScalingPace, Snapshot, Utilisation, decide, force
from slots.sync.watcher import observe_pool
from tests.claims.helpers import ask, serve
from tests.claims.scaling.test_scaler import config, make
from tests.pools.providers.fake_providers import ALL, fresh
from tests.pools.scaling.helpers import fleet, member, snapshot, waits

AT = datetime(2026, 3, 12, 14, 0, tzinfo=UTC)
POLICY = Utilisation(pace=ScalingPace(up=30.0, down=600.0))


def card(s: Snapshot) -> Card:
    decision = decide(s, POLICY)
    row = Decision(at=AT, last_at=AT, delta=decision.delta, reason=decision.reason)
    row.inputs = inputs_of(decision)
    return card_of(row)


def test_card_of_a_cool_down_says_what_is_wanted_and_when_it_may_happen() -> None:
    found = card(snapshot(*fleet(3, 3), lines=waits(9), since_up=5.0))
    assert found.result == "1 more member wanted. None is created before the cool-down ends."
    assert found.allowed_at == AT + timedelta(seconds=25)


@pytest.mark.parametrize(
    ("s", "result"),
    [
        (
            snapshot(*fleet(3, 3), high=2),
            "1 more member wanted. None is created. Waiting claims show this as their reason; "
            "raise the maximum to serve them.",
        ),
        (snapshot(*fleet(0, 0), since_down=5.0), "1 fewer wanted. No member is removed now."),
        (
            snapshot(*fleet(0, 0), low=2),
            "No member is removed: the minimum requires the members.",
        ),
        (
            snapshot(*fleet(0, 0), pin=Pin(2, "demo")),
            "The pin sets the number of members: none is created or removed.",
        ),
        (
            snapshot(*fleet(1), paused="demo"),
            "No member is created or removed until the pause ends.",
        ),
        (
            snapshot(member(1, 1), frozen="release"),
            "No member is created or removed until the freeze ends.",
        ),
        (snapshot(*fleet(2, 1)), "No member is created or removed now."),
    ],
    ids=["maximum", "cool-down", "minimum", "pin", "pause", "freeze", "no wish"],
)
def test_card_names_what_keeps_the_number_of_members(s: Snapshot, result: str) -> None:
    assert card(s).result == result


def test_card_of_an_order_in_a_freeze_blames_the_freeze() -> None:
    decision = force(snapshot(limits=MemberLimits(0, 5, frozen="release")), 2, "demo")
    found = card_of(Decision(at=AT, last_at=AT, delta=0, inputs=inputs_of(decision)))
    assert found.result == "2 more members wanted. None is created until the freeze ends."


def counted(**hopeless: int) -> str:
    return card(snapshot(*fleet(1), hopeless=hopeless)).not_counted


def test_each_cause_why_no_member_serves_a_claim_is_counted_alone() -> None:
    assert counted() == ""
    assert counted(too_big=1, no_member_with_labels=2) == (
        "1 claim for more slots than the pool can have, 2 claims with labels that no member has"
    )
    assert len({counted(**{code: 1}) for code in HOPELESS}) == len(HOPELESS)


@pytest.fixture
def _crane(settings: Any) -> None:
    settings.BERTH_PROVIDERS = ALL
    fresh()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_crane")
def test_claims_without_a_selector_are_not_said_to_need_labels() -> None:
    pool = create_pool(config())
    ask(pool="lab")
    serve()  # the wait reason of the queue is that the pool is pending
    observe_pool(pool)
    assert dry_run("lab")[1].inputs["hopeless_by"] == {"pool_pending": 1}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_crane")
def test_stored_decision_keeps_the_time_left_of_the_cool_down() -> None:
    pool = make(low=0, cooldown={"up": "10m", "down": "10m"})
    for _ in range(4):
        ask(pool="lab")
    serve()
    scale_pools([pool.pk])
    for _ in range(4):
        ask(pool="lab")
    serve()
    scale_pools([pool.pk])
    row = Decision.objects.filter(pool=pool).latest("id")
    found = card_of(row)
    assert (found.verdict, found.words) == ("hold", "+1 delayed")
    assert found.allowed_at is not None and row.last_at is not None
    assert found.allowed_at > row.last_at
