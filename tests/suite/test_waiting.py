"""Waits of tests: patience grows with the load of the machine, a bound at most doubles."""

import os

import pytest

from tests.waiting import MOST_SLACK, stretch, wait_until


@pytest.fixture
def _busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten runnable processes on each core."""
    monkeypatch.setattr(os, "getloadavg", lambda: (10.0 * (os.cpu_count() or 1), 0.0, 0.0))


@pytest.mark.usefixtures("_busy")
def test_load_stretches_patience_tenfold_and_a_bound_twofold() -> None:
    assert stretch(3.0, None) == 30.0
    assert stretch(3.0, 60.0) == 60.0 * MOST_SLACK == 120.0


@pytest.mark.usefixtures("_busy")
def test_wait_with_a_bound_fails_after_the_bound_and_its_slack() -> None:
    looks: list[int] = []
    with pytest.raises(AssertionError, match="no seat"):
        wait_until(lambda: looks.append(1), "no seat", patience=3600.0, within=0.1)
    assert looks
