"""A forwarder refuses targets that are ports of forwarders of this machine."""

import pytest

from pools.providers.base import MemberReport, SlotSnapshot
from pools.providers.forwarder.process.forwarder import LOOP
from pools.providers.forwarder.provider import ForwarderProvider
from tests.pools.providers.forwarder.helpers import (
    LOCALHOST,
    PATIENCE,
    free_ports,
    member,
    pool,
    slot,
    state_of,
    udp_client,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("home")


def apply(number: int, *slots: SlotSnapshot) -> MemberReport:
    made = member("creating", *slots, number=number)
    report = ForwarderProvider().sync(pool(made), made)
    assert report.is_ready, report
    return report


def problems(number: int) -> list[object]:
    return [each.get("problem") for each in state_of(number)["listeners"]]


def test_two_forwarders_that_target_each_other_pass_nothing_on() -> None:
    first = free_ports(2)
    for number, own, other in ((1, first, first + 1), (2, first + 1, first)):
        target = (LOCALHOST, other)
        apply(number, slot(own, target), slot(own, target, lane="udp"))
    assert problems(2) == [LOOP, LOOP], "the second sees the plan of the first at once"
    with udp_client(LOCALHOST, first) as client:
        client.send(b"x")
        wait_until(lambda: problems(1) == [LOOP, LOOP], lambda: str(problems(1)), patience=PATIENCE)
        client.send(b"x")
    assert state_of(1)["used"] + state_of(2)["used"] <= 2


def test_target_is_left_while_it_is_a_port_of_another_forwarder() -> None:
    first = free_ports(2)
    apply(1, slot(first, (LOCALHOST, first + 1)))
    assert problems(1) == [None]
    apply(2, slot(first + 1))
    wait_until(lambda: problems(1) == [LOOP], lambda: str(problems(1)), patience=PATIENCE)
    apply(2, slot(first + 1, state="draining"))
    wait_until(lambda: problems(1) == [None], lambda: str(problems(1)), patience=PATIENCE)
