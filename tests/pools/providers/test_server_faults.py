"""Which ports come first after server errors."""

import pytest

from pools.providers import server_faults
from pools.providers.server_faults import ServerFaults, forget_faults
from project.kernel.outbox.operations import ProviderError

PORTS = (30000, 30001, 30002)


@pytest.fixture(autouse=True)
def _without_memory() -> None:
    forget_faults()


def fail(port: int, pool: int = 1, member: int = 5) -> None:
    ServerFaults(pool, member).record("CreateListener", port, ProviderError("fails"))


def order(pool: int = 1, member: int = 5) -> list[int]:
    return ServerFaults(pool, member).order(PORTS, int)


def test_ports_without_an_error_come_first_then_the_oldest_error() -> None:
    fail(30001)
    fail(30000)
    assert order() == [30002, 30001, 30000]
    fail(30001)
    assert order() == [30002, 30000, 30001]


def test_pools_that_share_a_load_balancer_keep_their_own_order() -> None:
    fail(30000)
    assert order(pool=2, member=6) == list(PORTS)
    assert order() == [30001, 30002, 30000]
    assert order() == [30001, 30002, 30000], "a sync that ends early forgets nothing"


def test_longest_unused_members_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_faults, "MOST_MEMBERS", 2)
    for member in (5, 6, 5, 7):
        fail(30000, member=member)
    assert [order(member=member)[0] == 30001 for member in (5, 6, 7)] == [True, False, True]
