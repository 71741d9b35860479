"""Health of targets: what is checked, and when a state changes."""

from typing import Any

import pytest

from pools.providers.forwarder.process.health import HealthRecord
from tests.pools.providers.forwarder.helpers import (
    LOCALHOST,
    QUIET,
    TcpTarget,
    ask_tcp,
    counts_of,
    free_ports,
    slot,
    start,
    sync,
    wait_for_health,
)
from tests.waiting import wait_until

CHECKED: dict[str, Any] = {"drain": "0s", "health": {"interval": "500ms", "threshold": 1}}


@pytest.mark.parametrize(
    ("results", "threshold", "state"),
    [
        ("", 3, "initial"),
        ("+", 3, "healthy"),
        ("-", 3, "initial"),
        ("--+", 3, "healthy"),
        ("---", 3, "unhealthy"),
        ("+--", 3, "healthy"),
        ("+--+--", 3, "healthy"),
        ("+---", 3, "unhealthy"),
        ("---++", 3, "unhealthy"),
        ("---++-++", 3, "unhealthy"),
        ("---+++", 3, "healthy"),
        ("+-", 1, "unhealthy"),
    ],
)
def test_health_changes_after_as_many_equal_results_as_the_threshold(
    results: str, threshold: int, state: str
) -> None:
    record = HealthRecord()
    for each in results:
        record.record(each == "+", threshold)
    assert record.state == state


def test_health_follows_the_target() -> None:
    port = free_ports(2)
    wanted = slot(port, (LOCALHOST, port + 1))
    start(wanted, options=CHECKED)
    wait_for_health(port, "unhealthy")
    with TcpTarget("a", port=port + 1):
        wait_for_health(port, "healthy")
        report = sync(wanted, options=CHECKED)
        assert report.slots is not None
        attributes = report.slots[0].attributes
        assert attributes["health"] == "healthy"
        assert attributes["target"] == f"{LOCALHOST}:{port + 1}"
    wait_for_health(port, "unhealthy")


def test_unhealthy_target_still_gets_connections() -> None:
    """The port has no other target: a wrong check must not cut off a game."""
    port = free_ports(2)
    start(slot(port, (LOCALHOST, port + 1)), options=CHECKED | {"health": {"interval": "5m"}})
    wait_until(lambda: counts_of(port)["health"] == "unhealthy")
    with TcpTarget("a", port=port + 1):
        assert ask_tcp(port) == b"ahello"


def test_new_target_starts_without_a_known_health() -> None:
    port = free_ports(2)
    with TcpTarget("a") as target:
        start(slot(port, target.at), options=CHECKED)
        wait_for_health(port, "healthy")
        sync(slot(port, (LOCALHOST, port + 1)), options=CHECKED | {"health": {"threshold": 10}})
        assert counts_of(port)["health"] == "initial"


def test_health_is_unchecked_while_checks_are_off() -> None:
    port = free_ports()
    with TcpTarget("a") as target:
        start(slot(port, target.at))
        assert counts_of(port)["health"] == "unchecked"
        sync(slot(port, target.at), options=CHECKED)
        wait_for_health(port, "healthy")
        sync(slot(port, target.at), options=QUIET)
        assert counts_of(port)["health"] == "unchecked"


def test_check_of_a_target_with_proxy_headers_sends_a_local_header() -> None:
    port = free_ports()
    with TcpTarget() as target:
        start(slot(port, target.at), options=CHECKED | {"proxy_protocol": "v2"})
        wait_until(lambda: target.received)
        assert target.received[0] == b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
