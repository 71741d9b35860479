"""The retry policy as tables."""

import pytest

from project.kernel.retry import BACKOFF, FOREVER, Backoff, decide_retry, delay_after

HALF_TO_ALL = [(0.0, 0.5), (0.5, 0.75), (0.999999, 1.0)]


@pytest.mark.parametrize(
    ("failures", "full"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (50, 10), (10_000, 10), (0, 1)]
)
@pytest.mark.parametrize(("draw", "share"), HALF_TO_ALL)
def test_delay_doubles_up_to_its_cap_with_jitter_in_the_upper_half(failures, full, draw, share):
    assert delay_after(failures, Backoff(1.0, 10.0), draw) == pytest.approx(full * share, abs=1e-4)


@pytest.mark.parametrize("code", sorted(BACKOFF))
def test_every_error_backs_off_and_is_tried_again(code):
    first, later, last = (decide_retry(code, n, 0.5) for n in (1, 3, 100))
    assert 0 < first.delay < later.delay <= last.delay <= BACKOFF[code].cap
    assert not last.is_permanent


def test_permanent_error_waits_for_a_person():
    decision = decide_retry("permanent", 1, 0.5)
    assert decision.is_permanent
    assert decision.delay == FOREVER
    # What is wrong with one operation is not wrong with its neighbours.
    assert not decision.stops_lane


def test_unknown_error_code_is_treated_as_unexpected():
    assert decide_retry("?", 4, 0.5).delay == decide_retry("unexpected", 4, 0.5).delay


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [(7.0, 7.0, 7.0), (0.0, 0.5, 1.0), (1e9, 3600.0, 3600.0), (-5.0, 0.5, 1.0)],
)
def test_retry_after_of_the_provider_is_bounded(asked, least, most):
    assert least <= decide_retry("throttled", 1, 0.5, asked).delay <= most


@pytest.mark.parametrize(
    ("code", "stops"),
    [
        ("throttled", True),
        ("quota", True),
        ("unauthorised", True),
        ("unavailable", True),
        ("conflict", False),
        ("not_found", False),
        ("unexpected", False),
    ],
)
def test_lane_waits_after_errors_that_would_repeat(code, stops):
    assert decide_retry(code, 1, 0.5).stops_lane is stops
