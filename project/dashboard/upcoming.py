"""The next known moments of a pool: probable starts of claims, expiries, and ends of orders and
freezes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import list_live_claims, queue_of_pool
from claims.tasks.plans.selectors import PendingPlan, list_pending
from pools.access.permissions import Identity
from pools.models import Member, Pool
from project.kernel.ui import formatting

LINES = 6
WAITING = 3  # starts shown; the tab Queue shows all waiting claims
LOOKED_AT = 200  # oldest holders; claims with a time limit mostly end in order of their age


@dataclass(frozen=True, slots=True)
class Upcoming:
    at: datetime
    text: str
    subject: str = ""  # emphasised before the text
    href: str = ""
    until: datetime | None = None  # with `at` a range: probability 50 % to 90 %

    @property
    def is_range(self) -> bool:
        """The two times differ as they are shown, in minutes."""
        return self.until is not None and to_minute(self.until) != to_minute(self.at)


def upcoming(identity: Identity, pool: Pool) -> dict[str, object]:
    now = timezone.now()
    draining = (
        Member.objects.filter(pool=pool, drain_until__isnull=False)
        .exclude(state="gone")
        .order_by("drain_until")[:LINES]
    )
    found = [
        *list_order_ends(pool),
        *list_drain_deadlines(draining),
        *expiries(list_pending({pool.pk}, limit=LINES)),
        *list_hold_ends(list_live_claims(pool.pk, limit=LOOKED_AT)),
        *list_claim_starts(queue_of_pool(pool.name, limit=WAITING, with_blocked=False), now),
    ]
    return {"upcoming": sort_upcoming(found, now)}


def sort_upcoming(found: Iterable[Upcoming], now: datetime) -> list[Upcoming]:
    """The next future moments in order."""
    return sorted(
        (line for line in found if (line.until or line.at) > now),
        key=lambda line: (line.at, line.subject),
    )[:LINES]


def list_order_ends(pool: Pool) -> list[Upcoming]:
    orders = (
        (pool.paused_until, "the pause ends"),
        (pool.frozen_until, "the freeze ends"),
        (pool.pin_until, f"the pin to {formatting.plural(pool.pin_count or 0, 'member')} ends"),
        (pool.scaling_paused_until, "the scaler’s pause ends"),
    )
    return [Upcoming(at, text) for at, text in orders if at is not None]


def list_drain_deadlines(members: Iterable[Member]) -> list[Upcoming]:
    return [
        Upcoming(
            member.drain_until, "reaches its drain deadline", member.name, f"?member={member.name}"
        )
        for member in members
        if member.drain_until
    ]


def expiries(pending: Iterable[PendingPlan]) -> list[Upcoming]:
    return [
        Upcoming(
            plan.expires_at,
            f"{in_brackets(plan.workspace)} expires without a decision".strip(),
            *claim_link(plan.claim_id),
        )
        for plan in pending
    ]


def list_hold_ends(claims: Iterable[ClaimView]) -> list[Upcoming]:
    return [
        Upcoming(
            claim.expires_at,
            f"{in_brackets(claim.owner)} reaches its time limit".strip(),
            *claim_link(claim.id),
        )
        for claim in claims
        if claim.state == "bound" and claim.expires_at is not None
    ]


def list_claim_starts(claims: Iterable[ClaimView], now: datetime) -> list[Upcoming]:
    found = []
    for claim in claims:
        if claim.wait is not None and claim.wait.start is not None:
            first, last = (now + timedelta(seconds=seconds) for seconds in claim.wait.start)
            found.append(
                Upcoming(
                    first,
                    f"{in_brackets(claim.owner)} probably starts".strip(),
                    *claim_link(claim.id),
                    until=last,
                )
            )
    return found


def to_minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def claim_link(claim_id: int) -> tuple[str, str]:
    return f"Claim {claim_id}", f"/claims/{claim_id}/"


def in_brackets(name: str | None) -> str:
    return f"({name})" if name else ""
