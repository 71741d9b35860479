"""A forwarder refuses targets that are ports of forwarders of this machine."""

from pathlib import Path

import pytest

from pools.providers.base import MemberReport, SlotSnapshot
from pools.providers.forwarder.process import forwarder
from pools.providers.forwarder.process.forwarder import LOOP, Forwarder
from pools.providers.forwarder.process.plan import ForwardPlan, Place, Port, write_plan
from pools.providers.forwarder.process.plan_file import write_file
from pools.providers.forwarder.process.sibling_ports import SiblingPorts
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


async def test_forwarder_that_watches_reads_the_other_plans_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red while a change made it read them again at once. The watch ends with its folder."""
    folder = tmp_path / "one"
    folder.mkdir()
    made = Forwarder(folder, 1)
    (tmp_path / "two").mkdir()
    write_file(tmp_path / "two", write_plan(ForwardPlan(1, (LOCALHOST,))))
    reads = list[bool]()
    read, find_loops = SiblingPorts.read, forwarder.find_loops

    def count(siblings: SiblingPorts) -> bool:
        reads.append(read(siblings))
        return reads[-1]

    def end(plan: ForwardPlan, others: frozenset[Port]) -> set[Place]:
        folder.rmdir()
        return find_loops(plan, others)

    monkeypatch.setattr(SiblingPorts, "read", count)
    monkeypatch.setattr(forwarder, "find_loops", end)
    monkeypatch.setattr(forwarder, "SWEEP", 0.001)
    monkeypatch.setattr(forwarder, "RETRY", 0.0)
    await made.watch()
    assert reads == [True]
