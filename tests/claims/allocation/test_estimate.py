"""The estimated start of a waiting claim: a range, or no range and the reason."""

import random

from claims.allocation.estimate import Band, HoldTimes, estimate_start

MINUTE = HoldTimes([60.0] * 20)


def test_a_claim_that_needs_no_more_slots_starts_now() -> None:
    assert estimate_start(0, [], HoldTimes([])) == Band(0.0, 0.0)


def test_too_few_past_holds_give_no_estimate() -> None:
    band = estimate_start(1, [5.0], HoldTimes([60.0] * 7))
    assert (band.start, band.end) == (None, None)
    assert "fewer than 8 claims ended recently" in band.note


def test_holders_older_than_all_past_holds_give_no_estimate() -> None:
    band = estimate_start(1, [61.0, 3600.0], MINUTE)
    assert band.start is None
    assert "held for unusually long" in band.note


def test_a_pool_without_holders_gives_no_estimate() -> None:
    assert estimate_start(1, [], MINUTE).start is None


def test_equal_past_holds_predict_an_end_at_their_length() -> None:
    band = estimate_start(1, [10.0, 20.0], MINUTE)
    assert band.start is not None
    assert band.end is not None
    assert 39 <= band.start <= 43
    assert 39 <= band.end <= 43


def test_estimates_grow_with_the_place_and_start_before_they_end() -> None:
    draw = random.Random(1)
    holds = HoldTimes([draw.expovariate(1 / 300) for _ in range(200)])
    ages = [draw.uniform(0, 300) for _ in range(30)]
    bands = [estimate_start(n, ages, holds) for n in (1, 2, 5, 20, 60, 200)]
    starts = [band.start for band in bands if band.start is not None]
    assert len(starts) == len(bands)
    assert starts == sorted(starts)
    assert all(
        band.start is not None and band.end is not None and band.start <= band.end for band in bands
    )


def test_a_weighted_sample_of_holders_stands_for_all_holders() -> None:
    draw = random.Random(2)
    holds = HoldTimes([draw.uniform(10, 100) for _ in range(100)])
    ages = [draw.uniform(0, 50) for _ in range(50)]
    few, many = estimate_start(20, ages, holds), estimate_start(20, ages, holds, weight=10)
    assert few.start is not None
    assert many.start is not None
    assert many.start < few.start


def test_the_estimate_agrees_with_a_simulation() -> None:
    """Ends drawn from the same hold times: half of them by the start of the band, nine in ten by
    its end, give or take.
    """
    draw = random.Random(3)
    seconds = [draw.lognormvariate(4, 0.7) for _ in range(400)]
    holds = HoldTimes(seconds)
    ages = [draw.uniform(0, 60) for _ in range(20)]
    band = estimate_start(5, ages, holds)
    assert band.start is not None
    assert band.end is not None
    waits = []
    for _ in range(400):
        left = sorted(draw.choice([s for s in seconds if s > age]) - age for age in ages)
        waits.append(left[4])
    by_start = sum(wait <= band.start for wait in waits) / len(waits)
    by_end = sum(wait <= band.end for wait in waits) / len(waits)
    assert 0.35 <= by_start <= 0.65
    assert 0.8 <= by_end <= 1.0
