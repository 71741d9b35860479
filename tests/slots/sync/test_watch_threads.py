"""Threads that follow changes outside are stopped together."""

import threading

from pools.providers.base import Follower
from slots.sync.watch_threads import ChangedPools, ProviderFollowers


class Slow(Follower):
    """A follower that ends only after the other follower was asked to end."""

    both = threading.Barrier(2, timeout=30)

    def start(self) -> None:
        raise AssertionError("nobody starts it")

    def stop(self) -> None:
        self.both.wait()


def test_followers_are_stopped_in_parallel() -> None:
    followers = ProviderFollowers(ChangedPools(lambda: None))
    followers._running.update({"one": Slow(), "two": Slow()})
    followers.stop()
    assert not Slow.both.broken
    assert not followers._running
