"""The upcoming events of a pool are ordered, linked and never past."""

from datetime import datetime, timedelta

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from claims.allocation.claim_view import ClaimView, Wait
from pools.models import Member, Pool
from project.dashboard.upcoming import LINES, Upcoming, list_claim_starts, sort_upcoming, upcoming
from slots.members.services import pause_pool
from tests.dashboard.helpers import chief, claim, identity_of, make_pool, member

NOW = timezone.now()


def after(seconds: float) -> Upcoming:
    return Upcoming(NOW + timedelta(seconds=seconds), f"in {seconds:.0f}")


def test_the_soonest_entries_come_first_up_to_the_limit() -> None:
    lines = sort_upcoming([after(s) for s in (900, 30, 60, 7, 8, 9, 10, 11)], NOW)
    assert [line.text for line in lines] == ["in 7", "in 8", "in 9", "in 10", "in 11", "in 30"]
    assert len(lines) == LINES


def test_past_entries_are_left_out_but_a_range_that_has_begun_stays() -> None:
    begun = Upcoming(NOW - timedelta(seconds=5), "begun", until=NOW + timedelta(seconds=5))
    assert sort_upcoming([after(-1), begun], NOW) == [begun]


@pytest.mark.parametrize(
    ("first", "last", "is_range"),
    [("14:02:10", "14:02:50", False), ("14:02:50", "14:03:10", True), ("14:02:10", "", False)],
)
def test_a_range_within_one_minute_is_shown_as_one_time(
    first: str, last: str, is_range: bool
) -> None:
    at, until = (datetime.fromisoformat(f"2026-03-12T{t}Z") if t else None for t in (first, last))
    assert at is not None
    assert Upcoming(at, "probably starts", until=until).is_range is is_range


def test_only_a_claim_with_an_estimate_has_a_probable_start() -> None:
    def waiting(number: int, wait: Wait | None) -> ClaimView:
        return ClaimView(
            number, "lab", ["lab"], "slot", 1, "waiting", 0, NOW, owner=f"job-{number}", wait=wait
        )

    lines = list_claim_starts(
        [
            waiting(1, Wait("full", "", start=(60.0, 120.0))),
            waiting(2, Wait("full", "", start_note="depends on a person")),
        ],
        NOW,
    )
    assert lines == [
        Upcoming(
            NOW + timedelta(seconds=60),
            "(job-1) probably starts",
            "Claim 1",
            "/claims/1/",
            NOW + timedelta(seconds=120),
        ),
    ]


@pytest.mark.django_db
def test_ends_of_holds_drains_and_pauses_are_listed() -> None:
    pool = make_pool(slots=2, members=2)
    held = claim(hold_for="30m", owner="demo")
    claim(owner="stays")
    Member.objects.filter(pk=member("env-2").pk).update(
        drain_until=Now() + timedelta(minutes=10), is_leaving=True
    )
    pause_pool(pool_id=pool.pk, until=timezone.now() + timedelta(minutes=20), reason="move")
    lines = upcoming(identity_of(chief()), Pool.objects.get(pk=pool.pk))["upcoming"]
    assert [(line.subject, line.text) for line in lines] == [
        ("env-2", "reaches its drain deadline"),
        ("", "the pause ends"),
        (f"Claim {held.id}", "(demo) reaches its time limit"),
    ]
