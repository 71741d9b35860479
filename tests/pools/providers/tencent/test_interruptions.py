"""Each call of each multi-step operation fails, gets no answer, or meets kill -9 of the worker.

Afterwards Berth's next calls must leave no orphan, no double and no touched foreign object.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from pools.providers.base import MemberSnapshot, PortTarget, PortUse, SlotSnapshot
from project.kernel.outbox.operations import ProviderError
from tests.pools.providers.tencent.clb_server import ClbServer
from tests.pools.providers.tencent.clb_world import ClbWorld, Fault
from tests.pools.providers.tencent.harness import forget_all, journal_of_test, serve
from tests.pools.providers.tencent.scene import Scene, Shape, slot, tcp, udp
from tests.pools.providers.tencent.worker import KillableWorker

FAULTS = ("refused", "unanswered before", "unanswered after", "killed before", "killed after")
MOST_CALLS = 60  # of one operation, more than any takes
SSL = PortUse("tcp_ssl", PortTarget("10.0.0.4", 443), "cert-1")
# Before the operation: a stale target, a port to drain, another protocol.
BEFORE = (
    slot("tcp", 30000, use=tcp("10.0.0.1")),
    slot("tcp", 30001, use=tcp("10.0.0.1")),
    slot("tcp", 30002, use=tcp("10.0.0.1")),
)
DRAINING = slot("tcp", 30001, "draining")
AFTER = (
    slot("tcp", 30000, use=tcp("10.0.0.2")),
    DRAINING,
    slot("tcp", 30002, use=SSL),
    slot("tcp", 30003, use=tcp("10.0.0.3")),
    slot("udp", 30003, use=udp("10.0.0.3")),
)
WANTED: list[Shape] = [
    ("TCP", 30000, 30000, (("10.0.0.2", 80),)),
    ("TCP", 30003, 30003, (("10.0.0.3", 80),)),
    ("TCP_SSL", 30002, 30002, (("10.0.0.4", 443),)),
    ("UDP", 30003, 30003, (("10.0.0.3", 80),)),
]


@pytest.fixture(scope="module")
def worker() -> Iterator[KillableWorker]:
    worker = KillableWorker()
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def server() -> Iterator[ClbServer]:
    with serve(ClbWorld()) as server:
        yield server


@dataclass
class Trial:
    """One interrupted operation in a world of its own."""

    scene: Scene
    worker: KillableWorker
    fault: str
    step: int  # the call that meets the fault, from 0

    def interrupt(self, member: MemberSnapshot) -> bool:
        """False: the operation has fewer calls than `step`."""
        world = self.scene.world
        is_kill = self.fault.startswith("killed")
        fault = Fault(
            "*",
            "InternalError" if self.fault == "refused" else "",
            is_after=self.fault.endswith("after"),
            skip=self.step,
            run=self.worker.kill if is_kill else None,
        )
        world.faults.append(fault)
        pool = self.scene.pool(member)
        if is_kill:
            ended = self.worker.sync(pool, member)
            assert ended == ("done" if fault in world.faults else "killed")
        else:
            with suppress(ProviderError):
                self.scene.sync(member)
        was_met = fault not in world.faults
        world.faults.clear()
        forget_all()  # the next call comes from another worker
        return was_met

    def finish(self, member: MemberSnapshot, is_done: Callable[[set[int], bool], bool]) -> None:
        """Berth's further calls, until what is confirmed satisfies `is_done`."""
        clean: set[int] = set()
        for _ in range(10):
            journal_of_test().pass_time()
            report = self.scene.sync(member)
            clean |= report.clean
            is_over = report.is_gone if member.state == "deleting" else report.is_ready
            if report.again is None and is_done(clean, is_over):
                return
            member = replace(
                member, outside=report.why, external_id=report.external_id or member.external_id
            )
        raise AssertionError(f"the operation does not end: {report}")


def run_trials(
    server: ClbServer, worker: KillableWorker, fault: str, run: Callable[[Trial], bool]
) -> int:
    """Interrupt the calls one after the other. Returns how many there are."""
    for step in range(MOST_CALLS):
        world = ClbWorld()
        server.show(world)
        forget_all()
        journal_of_test().tasks.clear()
        theirs = world.add_balancer({"berth-installation": "other", "berth-pool": "games"})
        world.add_listener(theirs.id, "TCP", 30000)
        before = world.state()
        scene = Scene(world, server)
        if not run(Trial(scene, worker, fault, step)):
            return step
        scene.audit_foreign(before, [theirs.id, *theirs.listeners])
    raise AssertionError("the operation has no end")


def own_balancers(scene: Scene) -> list[str]:
    tags = {"berth-installation": "b1", "berth-pool": scene.name}
    return [each.id for each in scene.world.balancers.values() if tags.items() <= each.tags.items()]


@pytest.mark.parametrize("fault", FAULTS)
def test_interrupted_change_of_listeners_is_completed_without_orphans(
    server: ClbServer, worker: KillableWorker, fault: str
) -> None:
    def run(trial: Trial) -> bool:
        scene = trial.scene
        member = scene.add_member()
        scene.sync(member, BEFORE)
        foreign = scene.world.add_listener(member.external_id, "UDP", 53)
        kept = replace(foreign, targets=dict(foreign.targets))
        member = replace(member, slots=AFTER)
        if not trial.interrupt(member):
            return False
        trial.finish(member, lambda clean, is_over: clean == {DRAINING.id} or is_over)
        assert scene.shapes(member.external_id) == WANTED, trial.step
        found = scene.world.balancers[member.external_id].listeners
        assert len(found) == len(WANTED) + 1, "no double and no orphan"
        assert found[foreign.id] == kept
        return True

    assert run_trials(server, worker, fault, run) >= 10


@pytest.mark.parametrize("fault", FAULTS)
def test_ports_of_an_interrupted_change_that_are_released_leave_no_listener(
    server: ClbServer, worker: KillableWorker, fault: str
) -> None:
    """The claims end before the change is repeated, so that no row wants its listeners."""

    def run(trial: Trial) -> bool:
        scene = trial.scene
        member = scene.add_member()
        scene.sync(member, BEFORE)
        if not trial.interrupt(replace(member, slots=AFTER)):
            return False
        released = replace(member, slots=drain(AFTER))
        trial.finish(released, lambda clean, _: clean == {each.id for each in released.slots})
        assert scene.shapes(member.external_id) == [], trial.step
        return True

    assert run_trials(server, worker, fault, run) >= 10


def drain(slots: Sequence[SlotSnapshot]) -> tuple[SlotSnapshot, ...]:
    return tuple(replace(each, state="draining", use=None) for each in slots)


@pytest.mark.parametrize("fault", FAULTS)
def test_interrupted_creation_makes_one_load_balancer(
    server: ClbServer, worker: KillableWorker, fault: str
) -> None:
    def run(trial: Trial) -> bool:
        member = trial.scene.new_member()
        if not trial.interrupt(member):
            return False
        trial.finish(member, lambda _, is_ready: is_ready)
        assert len(own_balancers(trial.scene)) == 1, trial.step
        return True

    assert run_trials(server, worker, fault, run) >= 3


@pytest.mark.parametrize("fault", FAULTS)
def test_interrupted_creation_of_a_member_that_is_given_up_leaves_none(
    server: ClbServer, worker: KillableWorker, fault: str
) -> None:
    def run(trial: Trial) -> bool:
        member = trial.scene.new_member()
        if not trial.interrupt(member):
            return False
        trial.finish(replace(member, state="deleting"), lambda _, is_gone: is_gone)
        assert own_balancers(trial.scene) == [], trial.step
        assert trial.scene.look().strays == {}
        return True

    assert run_trials(server, worker, fault, run) >= 3


@pytest.mark.parametrize("fault", FAULTS)
def test_interrupted_deletion_is_completed(
    server: ClbServer, worker: KillableWorker, fault: str
) -> None:
    def run(trial: Trial) -> bool:
        member = trial.scene.add_member()
        trial.scene.sync(member, BEFORE)
        member = replace(member, state="deleting", slots=())
        if not trial.interrupt(member):
            return False
        trial.finish(member, lambda _, is_gone: is_gone)
        assert own_balancers(trial.scene) == [], trial.step
        return True

    assert run_trials(server, worker, fault, run) >= 5


def test_stray_of_a_late_creation_is_found_and_removed(server: ClbServer) -> None:
    """The creation takes effect after the member was deleted."""
    world = ClbWorld()
    server.show(world)
    scene = Scene(world, server)
    member = scene.add_member(3)
    scene.sync(member, [slot("tcp", 30000, use=tcp("10.0.0.1"))])
    strays = scene.look().strays
    assert strays == {3: f"load balancer {member.external_id}"}
    scene.remove_strays([3])
    assert own_balancers(scene) == []
