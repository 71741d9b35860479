"""Changes in a cluster are reported at once, and none is missed over a cut watch or an expired
version.
"""

import queue
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pools.providers.kubernetes import pod_watch
from pools.providers.kubernetes.pod_watch import PodFollower
from tests.kubernetes_cluster.plugin import WORLDS
from tests.pools.providers.kubernetes.test_provider import Bench
from tests.waiting import load

PATIENCE = 20.0


@pytest.fixture(params=list(WORLDS))
def bench(request: pytest.FixtureRequest, settings: Any) -> Iterator[Bench]:
    bench = Bench(WORLDS[request.param])
    with bench.world_of_its_own(request, settings):
        yield bench


class Ear:
    def __init__(self, bench: Bench) -> None:
        self.told: queue.Queue[int | None] = queue.Queue()
        self.follower = PodFollower(bench.good_options, "berth", self.told.put)

    def hear(self, *wanted: int | None) -> None:
        """Until one of these is told."""
        end = time.monotonic() + PATIENCE * load()
        while self.told.get(timeout=max(0.1, end - time.monotonic())) not in wanted:
            pass


@pytest.fixture
def ear(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ear]:
    ear = Ear(bench)
    ear.follower.start()
    ear.hear(None)  # it has begun: everything before is for a look
    yield ear
    monkeypatch.setattr(pod_watch, "ENDS_WITHIN", PATIENCE)
    ear.follower.stop()
    assert not ear.follower._thread.is_alive(), "a stop ends the watch long before its end"


def test_created_changed_and_deleted_pods_are_reported(bench: Bench, ear: Ear) -> None:
    name = bench.create()
    ear.hear(7)
    bench.space.run(name)
    ear.hear(7)
    bench.space.delete(name, grace=0)
    ear.hear(7)


def test_foreign_pods_are_not_reported(bench: Bench, ear: Ear) -> None:
    bench.space.create_pod(
        "stranger", labels={"berth.dev/pool": "7", "berth.dev/installation": "another"}
    )
    bench.space.create_pod("plain")
    with pytest.raises(queue.Empty):
        ear.told.get(timeout=0.3)
    bench.create()
    ear.hear(7)


def test_change_during_a_cut_watch_is_reported_afterwards(bench: Bench, ear: Ear) -> None:
    bench.space.world.refuse("watch", 503, times=2)
    bench.space.world.cut()
    bench.create()
    ear.hear(7)


def test_expired_version_is_followed_by_a_full_list(bench: Bench, ear: Ear) -> None:
    bench.space.world.expire()
    ear.hear(None)
    name = bench.create()
    # The server was away, too, and that was told first: then this one is found by a look.
    ear.hear(7, None)
    bench.space.run(name)
    ear.hear(7)


def test_watch_resumes_after_the_server_was_away(bench: Bench, ear: Ear) -> None:
    bench.space.world.kill()
    bench.space.world.start()
    ear.hear(None)
    name = bench.create()
    ear.hear(7, None)  # as above: what it knew from before may be too old for it
    bench.space.run(name)
    ear.hear(7)


def test_hanging_watch_is_replaced_without_missing_a_change(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A second at least, a second more until it is given up.
    monkeypatch.setattr(pod_watch, "LASTS", 11)
    monkeypatch.setattr(pod_watch, "SLACK", 1.0)
    ear = Ear(bench)
    bench.space.world.mute(f"{bench.space.path}/pods")
    ear.follower.start()
    ear.hear(None)
    bench.create()
    bench.space.world.front.muted.clear()  # the open watch stays as it is
    try:
        ear.hear(7)
    finally:
        ear.follower.stop()
