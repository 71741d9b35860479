"""Evacuations on the strict clouds of AWS and Tencent, without a gap: also if each worker dies in
the middle of a move, or its calls get no answer.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from claims.allocation.claim_view import ClaimView
from claims.ports.backends import BackendRequest, set_backend
from claims.ports.evacuation.returns import return_claim
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from pools.providers.base import known_providers
from project.kernel.models import Operation
from project.kernel.outbox.operations import perform_due
from project.settings import base
from slots.models import Slot
from slots.sync.watcher import observe_pool
from tests.claims.helpers import again, ask, is_sound, member
from tests.claims.ports.evacuation.helpers import evacuate, members_of, step
from tests.claims.ports.model.outside import Outside, SeenListener, WorkerKilled
from tests.claims.ports.model.test_port_pools_model import OUTSIDES

pytestmark = pytest.mark.usefixtures("committed_tables")
IPS = ("10.0.0.7", "10.0.0.8")
WANTED = {(kind, f"{ip}:{port}") for ip in IPS for kind, port in (("tcp", 80), ("udp", 9999))}
CALLS = 24  # a fault meets one of the first calls of each worker, later and later
ROUNDS = 200


@pytest.fixture(params=sorted(OUTSIDES))
def outside(request: pytest.FixtureRequest, settings: Any) -> Iterator[Outside]:
    settings.BERTH_PROVIDERS = base.BERTH_PROVIDERS
    found = OUTSIDES[request.param]()
    assert found.kind in known_providers()
    with found.serve():
        found.begin()
        yield found


def make_games(outside: Outside) -> list[ClaimView]:
    """Two claims with two ports each, all ready, on the first of two load balancers."""
    create_pool(
        {
            "name": "lb",
            "provider": outside.provider(),
            "slots": {"ports": "30000-30009", **outside.layout},
            "backends": {"networks": ["10.0.0.0/16"], "ports": "1-65535"},
            "members": {"list": ["lb0", "lb1"]},
        }
    )
    settle(outside)
    claims = [ask("lb", ports="80/TCP,9999/UDP") for _ in IPS]
    for claim, ip in zip(claims, IPS, strict=True):
        backend = BackendRequest(ip)
        set_backend(claim_id=claim.id, generation=claim.generation, backend=backend)
    settle(outside)
    assert set(members_of(claims[0]) + members_of(claims[1])) == {"lb0"}
    assert all(is_ready(claim) for claim in claims)
    return claims


def is_ready(claim: ClaimView) -> bool:
    return all(port["ready"] for port in again(claim).ports)


def perform(outside: Outside, fault: str = "", at: int = 0) -> None:
    """A worker performs all that is due. A killed worker is followed by another one."""
    Operation.objects.filter(done_at=None).update(due_at="2020-01-01T00:00:00Z")
    if fault:
        outside.fail(fault, at)
    try:
        perform_due(outside.kind)
    except WorkerKilled:
        outside.restart()
    outside.heal()


def look() -> None:
    observe_pool(Pool.objects.get())


def settle(outside: Outside) -> None:
    for _ in range(ROUNDS):
        outside.pass_time()
        perform(outside)
        look()
        if not Operation.objects.filter(done_at=None).exists():
            return
    raise AssertionError(list(Operation.objects.filter(done_at=None).values("error", "attempts")))


def served(outside: Outside) -> set[tuple[str, str]]:
    """Protocol and target of each listener of Berth."""
    ours = [each for each in outside.listeners() if each.is_ours]
    return {(each.protocol, target) for each in ours for target in each.targets}


def listeners_of(outside: Outside, name: str) -> list[SeenListener]:
    balancer = Member.objects.get(name=name).external_id
    return [each for each in outside.listeners() if each.balancer == balancer and each.is_ours]


def check_end(outside: Outside, claims: list[ClaimView], name: str) -> None:
    """All claims work on this load balancer, and nothing is left on the other one."""
    settle(outside)
    assert {each for claim in claims for each in members_of(claim)} == {name}
    assert all(is_ready(claim) for claim in claims) and is_sound()
    (other,) = {"lb0", "lb1"} - {name}
    assert listeners_of(outside, other) == [] and outside.find_orphans() == []
    assert len(listeners_of(outside, name)) == len(WANTED) == len(served(outside))
    assert set(Slot.objects.values_list("state", flat=True)) == {"held", "idle"}


@pytest.mark.parametrize("fault", ["", "killed", "unanswered after"])
def test_claims_of_a_cloud_move_without_a_gap(outside: Outside, fault: str) -> None:
    """Each round takes a step and lets a worker perform, which meets the fault at a later call than
    the last one. What it has ordered takes effect at the end of the round.
    """
    claims = make_games(outside)
    foreign = outside.foreign()
    found = evacuate("lb0")
    assert served(outside) == WANTED
    for turn in range(ROUNDS):
        if step(found) == "nothing":
            break
        outside.become_slow()
        perform(outside, fault, turn % CALLS)
        assert served(outside) >= WANTED, "each port has a listener with its target"
        outside.pass_time()
        look()
    else:
        raise AssertionError("the evacuation does not end")
    check_end(outside, claims, "lb1")
    assert outside.foreign() == foreign and member("lb0").is_cordoned


@pytest.mark.parametrize("fault", ["killed", "unanswered after"])
def test_claim_of_a_cloud_goes_back_while_its_listeners_drain(outside: Outside, fault: str) -> None:
    claims = make_games(outside)
    found = evacuate("lb0")
    moved = claims[0]
    for _ in range(ROUNDS):
        if step(found) == "arrived":
            break
        perform(outside)
        outside.pass_time()
        look()
    assert members_of(moved) == ["lb1", "lb1"]
    outside.become_slow()
    perform(outside, fault, 3)  # the former listeners have begun to drain
    return_claim(member_id=found, claim_id=moved.id, reason="a test")
    for turn in range(CALLS):
        perform(outside, fault, turn)
        outside.pass_time()
    check_end(outside, claims, "lb0")
