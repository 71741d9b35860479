"""A sync that is interrupted at any of its calls leaves no orphan, no double and no foreign object
that it touched (F9). Each case interrupts every step in turn: the call fails, is denied,
succeeds without an answer, or the worker is killed before it. Then Berth goes on as it
would: the next sync, or the look that follows the end of the member.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pytest

from pools.providers.aws.provider import AwsProvider
from pools.providers.base import MemberSnapshot
from project.kernel.outbox.operations import ProviderError
from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.harness import forget_objects
from tests.pools.providers.aws.scene import (
    CERTIFICATE,
    OTHER_CERTIFICATE,
    AwsScene,
    make_port,
)
from tests.pools.providers.pacers import KilledHere, KillingPacer, UnlimitedPacer

MODES = ("fail", "denied", "time_out", "kill")
PORTS = (
    make_port(30000),
    make_port(30001, protocol="tcp_ssl", certificate=CERTIFICATE),
    make_port(30002, protocol="udp", target=""),
)
SERVED = {
    30000: ("TCP", "10.0.0.10:8080", ""),
    30001: ("TLS", "10.0.0.10:8080", CERTIFICATE),
    30002: ("UDP", "", ""),
}
# Another target, another certificate, another protocol.
CHANGED_PORTS = (
    make_port(30000, target="10.0.1.20:9000"),
    make_port(30001, protocol="tcp_ssl", certificate=OTHER_CERTIFICATE),
    make_port(30002, protocol="tcp_udp", target="10.0.0.11:53"),
)
CHANGED = {
    30000: ("TCP", "10.0.1.20:9000", ""),
    30001: ("TLS", "10.0.0.10:8080", OTHER_CERTIFICATE),
    30002: ("TCP_UDP", "10.0.0.11:53", ""),
}
DRAINING = tuple(make_port(port.number, "draining") for port in PORTS)
Step = Callable[[], object]


@dataclass
class InterruptedCase:
    """`begin` prepares the outside and returns the call to interrupt, and what follows."""

    begin: Callable[[AwsScene], tuple[Step, Sequence[Step]]]
    ports: dict[int, tuple[str, str, str]]  # of Berth, at the end
    balancers: int  # of Berth, at the end


def create(scene: AwsScene) -> tuple[Step, Sequence[Step]]:
    creating = scene.member(state="creating")
    sync = partial(scene.sync, creating)
    return sync, [sync]


def create_and_delete(scene: AwsScene) -> tuple[Step, Sequence[Step]]:
    create_step, _ = create(scene)
    return create_step, [partial(scene.sync, scene.member(state="deleting"))]


def create_and_sweep(scene: AwsScene) -> tuple[Step, Sequence[Step]]:
    create_step, _ = create(scene)
    return create_step, [scene.sweep]


def bind(
    scene: AwsScene, then: Callable[[MemberSnapshot], MemberSnapshot] | None = None
) -> tuple[Step, Sequence[Step]]:
    member = scene.declare(*PORTS)
    follower = member if then is None else then(member)
    return partial(scene.sync, member), [partial(scene.sync, follower)]


def bind_and_release(scene: AwsScene) -> tuple[Step, Sequence[Step]]:
    return bind(scene, lambda member: replace(member, slots=DRAINING))


def bind_and_delete(scene: AwsScene) -> tuple[Step, Sequence[Step]]:
    return bind(scene, lambda member: replace(member, state="deleting", slots=()))


def bind_and_sweep(scene: AwsScene) -> tuple[Step, Sequence[Step]]:
    step, _ = bind(scene)
    return step, [scene.sweep]


def change(scene: AwsScene) -> tuple[Step, Sequence[Step]]:
    member = scene.declare(*PORTS)
    scene.sync(member)
    step = partial(scene.sync, replace(member, slots=CHANGED_PORTS))
    return step, [step]


def release(scene: AwsScene) -> tuple[Step, Sequence[Step]]:
    member = scene.declare(*PORTS)
    scene.sync(member)
    step = partial(scene.sync, replace(member, slots=DRAINING))
    return step, [step]


def delete(scene: AwsScene) -> tuple[Step, Sequence[Step]]:
    member = scene.make(*PORTS)
    scene.sync(member)
    step = partial(scene.sync, replace(member, state="deleting", slots=()))
    return step, [step]


def sweep(scene: AwsScene) -> tuple[Step, Sequence[Step]]:
    scene.sync(scene.make(*PORTS, number=1))
    scene.sync(scene.declare(*PORTS, number=2))
    return scene.sweep, [scene.sweep]


def precreate(scene: AwsScene) -> tuple[Step, Sequence[Step]]:
    member = scene.declare(make_port(30000), make_port(30001, "idle"))
    step = partial(scene.sync, member, is_precreated=True)
    return step, [step]


CASES = {
    "create": InterruptedCase(create, {}, 1),
    "create_and_delete": InterruptedCase(create_and_delete, {}, 0),
    "create_and_sweep": InterruptedCase(create_and_sweep, {}, 0),
    "bind": InterruptedCase(bind, SERVED, 0),
    "bind_and_release": InterruptedCase(bind_and_release, {}, 0),
    "bind_and_delete": InterruptedCase(bind_and_delete, {}, 0),
    "bind_and_sweep": InterruptedCase(bind_and_sweep, {}, 0),
    "change": InterruptedCase(change, CHANGED, 0),
    "release": InterruptedCase(release, {}, 0),
    "delete": InterruptedCase(delete, {}, 0),
    "sweep": InterruptedCase(sweep, {}, 0),
    "precreate": InterruptedCase(
        precreate, {30000: ("TCP_UDP", "10.0.0.10:8080", ""), 30001: ("TCP_UDP", "", "")}, 0
    ),
}


def fresh_scene(cloud: Cloud, scene: AwsScene) -> AwsScene:
    """An empty cloud with a load balancer of others, and options that need every call."""
    cloud.clear()
    found = AwsScene(cloud, scene.address)
    found.options |= {"cross_zone": True, "deregistration_delay": "0s"}
    found.declare(number=9)
    return found


def interrupt(cloud: Cloud, mode: str, step: int, act: Step) -> None:
    """Perform the call, interrupted at this step. The step counts from here."""
    at = len(cloud.log) + step
    if mode == "kill":
        AwsProvider.pacer = KillingPacer(step)
    elif mode == "time_out":
        cloud.fail(at=at, is_after=True)
    else:
        code = {"fail": "InternalFailure", "denied": "AccessDenied"}
        cloud.fail(code[mode], at=at, status=500 if mode == "fail" else 400)
    try:
        with suppress(ProviderError, KilledHere):
            act()
    finally:
        AwsProvider.pacer = UnlimitedPacer()
        cloud.heal()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_interruption_at_each_call_leaves_no_orphan_and_no_double(
    cloud: Cloud, scene: AwsScene, name: str, mode: str
) -> None:
    case = CASES[name]
    whole = fresh_scene(cloud, scene)
    act, following = case.begin(whole)
    begun, foreign = cloud.save(), whole.foreign_state()
    before = len(cloud.log)
    act()
    steps = len(cloud.log) - before
    assert steps >= 3
    for step in range(1, steps + 1):
        cloud.restore(begun)
        forget_objects()
        interrupt(cloud, mode, step, act)
        for follow in following:
            follow()
        where = f"{name}, {mode} at step {step} of {steps}"
        assert whole.ports() == case.ports, where
        assert len(whole.balancers()) == case.balancers, where
        assert whole.foreign_state() == foreign, where
        whole.audit()
