"""Helpers that create pools and claims and read their state."""

from typing import Any

from django.db import connection

from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.queues.allocator import allocate
from claims.allocation.requests.claim_request import ClaimRequest, parse_claim
from claims.allocation.selectors import view_claim
from claims.lifecycle.release import release_claim
from claims.models import Workspace
from claims.workspaces.services import add_workspace
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.models import Event
from slots.models import Slot
from tests.database import helpers as model

WHO = "ana"


def make_pool(name: str = "lab", slots: Any = 1, members: Any = 1, **more: Any) -> Pool:
    """`members`: how many of them, or their declarations; the maximum is as many unless `most`
    says otherwise.
    """
    declared = [f"m{i}" for i in range(members)] if isinstance(members, int) else members
    most = more.pop("most", max(1, len(declared)))
    return create_pool(
        {"name": name, "slots": slots, "members": {"max": most, "list": declared}, **more}
    )


def wish(pool: str = "lab", *, by: str = WHO, **body: Any) -> ClaimRequest:
    return parse_claim(
        {"pool": pool, **body} if "pools" not in body and "slot" not in body else body,
        requested_by=by,
    )


def ask(pool: str = "lab", *, by: str = WHO, **body: Any) -> ClaimView:
    return create_claim(wish(pool, by=by, **body))


def again(claim: ClaimView, *, explain: bool = False) -> ClaimView:
    return view_claim(claim.id, explain=explain)


def let_go(claim: ClaimView) -> ClaimView:
    return release_claim(claim_id=claim.id, generation=claim.generation)


def serve() -> int:
    """Runs the allocator until no claim can be served."""
    total = 0
    for _ in range(50):
        step = allocate()
        total += step.bound
        if not step.bound and not step.is_more:
            return total
    raise AssertionError("the allocator goes on for ever")


def member(name: str) -> Member:
    return Member.objects.get(name=name)


def places(claim: ClaimView) -> list[tuple[str, str, int]]:
    return [(slot.member, slot.lane, slot.number) for slot in claim.slots]


def verbs(claim: ClaimView) -> list[str]:
    return list(
        Event.objects.filter(claim_id=claim.id).order_by("id").values_list("verb", flat=True)
    )


def sql(text: str, *values: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(text, values)
        return cursor.fetchall() if cursor.description else []


def age(claim: ClaimView, seconds: float) -> None:
    """Moves the creation of a claim into the past."""
    sql(
        "UPDATE claims_claim SET created_at = created_at - make_interval(secs => %s) WHERE id = %s",
        seconds,
        claim.id,
    )


def elapse(claim: ClaimView, seconds: float) -> None:
    """Moves the timers of a claim into the past, as if the time had passed."""
    sql(
        """UPDATE claims_claim SET bound_at = bound_at - make_interval(secs => %s),
           due_at = due_at - make_interval(secs => %s),
           expires_at = expires_at - make_interval(secs => %s) WHERE id = %s""",
        seconds,
        seconds,
        seconds,
        claim.id,
    )
    sql(
        "UPDATE claims_lease SET at = at - make_interval(secs => %s) WHERE claim_id = %s",
        seconds,
        claim.id,
    )


def held() -> int:
    return Slot.objects.filter(state="held").count()


def ws(name: str, pool: str | None = None) -> int:
    """The workspace of this name; `pool`: of that pool, made if it is not there."""
    if pool is not None:
        return add_workspace(
            pool_id=Pool.objects.exclude(state="gone").get(name=pool).pk, name=name
        )
    return Workspace.objects.get(name=name).pk


def is_sound() -> bool:
    """Claims and slots agree, read from the rows alone."""
    with model.connect() as c:
        return not model.violations(c)
