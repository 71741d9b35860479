"""A bench refills its claims, and fails when a slice finds no work."""

import pytest

from claims.benches import allocation, worker_jobs
from claims.benches.ports import clouds
from claims.benches.rows.seed import FilledPools, count_waiting, fill_pools, refill
from project.kernel.bench.registry import BenchRun, NothingMeasured
from project.kernel.errors import Unavailable
from tests.bench.test_smoke import run
from tests.claims.helpers import held, is_sound, serve

__all__ = ["run"]  # fixture
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("bench")]


def test_refilled_pools_can_be_bound_again() -> None:
    filled = fill_pools("refill", 2, 8, waiting=8)
    for _ in range(2):
        assert (count_waiting(filled), held()) == (16, 0)
        assert serve() == 16
        assert (count_waiting(filled), held()) == (0, 16)
        assert is_sound()
        refill(filled)


def test_bind_refills_the_pools_before_each_measured_slice(
    run: BenchRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[FilledPools] = []
    monkeypatch.setattr(allocation, "ENOUGH", 10**9)

    def count(filled: FilledPools) -> None:
        calls.append(filled)
        refill(filled)

    monkeypatch.setattr(allocation, "refill", count)
    assert allocation.bench_bind(run)["ratio"] > 0
    assert len(calls) == run.slices(), "not before the first slice, which warms up"


def test_bind_fails_when_its_claims_run_out(run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        allocation,
        "fill_pools",
        lambda prefix, pools, each, **more: fill_pools(prefix, 1, 8, queue="bench", waiting=8),
    )
    with pytest.raises(NothingMeasured, match="before the slice ended"):
        allocation.bench_bind(run)


def test_a_claimer_fails_when_its_pools_are_full() -> None:
    claim = worker_jobs.make_claimer(0, 1, fill_pools("full", 1, 1).names)
    assert claim() == 1
    with pytest.raises(NothingMeasured, match="full0 is full"):
        claim()


def test_a_life_worker_fails_when_its_pools_are_full() -> None:
    """With a queue of operations, released slots drain and serve no other claim."""
    names = fill_pools("full", 1, 2, queue="bench").names
    live = worker_jobs.LifeWorker(0, 1, names, batch=2, batches=1)
    assert live() == 2
    with pytest.raises(NothingMeasured, match="0 of 2 claims of pool full0"):
        live()


def test_ports_says_where_its_clouds_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the tests, such as the image."""
    monkeypatch.setattr(clouds, "PROGRAM", "tests.pools.providers.absent")
    with (
        pytest.raises(Unavailable, match="tests/pools/providers") as caught,
        clouds.running_clouds(),
    ):
        pass
    assert "checkout" in caught.value.way_out
