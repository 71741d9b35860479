"""Orders and steps of evacuations for tests."""

from claims.allocation.claim_view import ClaimView
from claims.ports.backends import BackendRequest, set_backend
from claims.ports.evacuation.mover import Step, step_evacuation
from claims.ports.evacuation.orders import evacuate_member
from slots.models import Evacuation, Slot
from tests.claims.helpers import again, ask, member
from tests.claims.ports.quay import QuayProvider, work


def claim_routed(pool: str = "lb", ip: str = "10.0.0.7", **more: object) -> ClaimView:
    """A claim whose ports are ready."""
    claim = ask(pool, **({"ports": "80/TCP"} | more))
    set_backend(
        claim_id=claim.id, generation=claim.generation, backend=BackendRequest(ip, port=8080)
    )
    work()
    return again(claim)


def evacuate(name: str, *, stays: bool = True) -> int:
    found = member(name)
    evacuate_member(member_id=found.pk, reason="under attack", stays=stays)
    return found.pk


def step(member_id: int) -> Step:
    """The next step, whether or not it is due."""
    Evacuation.objects.filter(pk=member_id).update(due_at="2000-01-01T00:00:00Z")
    return step_evacuation(member_id)


def steps_until_done(member_id: int, most: int = 60) -> list[Step]:
    """Steps with the work of the provider between them, until the evacuation has ended or is
    stuck.
    """
    found: list[Step] = []
    for _ in range(most):
        found.append(step(member_id))
        work()
        if found[-1] in ("nothing", "stuck"):
            return found
    raise AssertionError(f"the evacuation does not end: {found}")


def members_of(claim: ClaimView) -> list[str]:
    return [slot.member for slot in again(claim).slots]


def states_of(name: str) -> set[str]:
    return set(Slot.objects.filter(member=member(name)).values_list("state", flat=True))


def listeners_of(name: str) -> set[int]:
    """The numbers at which the load balancer listens."""
    found = member(name).pk
    return {number for owner, _, number in QuayProvider.world.listeners if owner == found}
