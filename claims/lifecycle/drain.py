"""Past the deadline of a member's drain, or by force, whoever still holds a slot there is put out:
one claim in one transaction.

In the order of locks: the member, the workspace, the claim, its slots. The member's lock is shared,
so that many claims end at once, and keeps an undrain waiting; whichever came first holds. A result,
a yes or a release that comes first needs the same claim, and is found here.
"""

import logging
from functools import partial
from typing import Any, NamedTuple

from django.db import transaction

from claims import claims_sql
from claims.allocation.requests.policy import Fate, fate_of_drained
from claims.lifecycle import draining_sql
from claims.lifecycle.end_hold import apply_fate, lock_hold
from claims.lifecycle.lost_member import replace_places
from claims.statements import repeat
from project.kernel.controllers.periodic import run_each
from slots.members.drain import drain_member, lock_overdue
from slots.members.services import Removal

logger = logging.getLogger(__name__)

AT_ONCE = 100  # claims that a forced drain ends before it answers; the finalizer ends the rest
VERB = "put_out"


class ClaimFate(NamedTuple):
    """A claim that keeps a member, and what becomes of it past the deadline."""

    row: Any
    fate: Fate
    is_moved: bool  # of several slots those here are replaced, if as many are free

    @property
    def is_running(self) -> bool:
        return bool(self.row.has_task and self.row.state == "bound")


def evict_claim(*, claim_id: int, member_id: int) -> bool:
    """False: it holds nothing there any more, or the deadline is another one by now."""
    return repeat(partial(_evict, claim_id, member_id))


def evict_claims(member_id: int, most: int | None = None) -> int:
    """Each on its own: one that can't be dealt with holds up none of the others. Answers how
    many there were.
    """
    rows = claims_sql.claims_on_member(member=member_id)[:most]
    run_each(
        [row.id for row in rows],
        lambda claim_id: evict_claim(claim_id=claim_id, member_id=member_id),
    )
    return len(rows)


def force_drain(*, member_id: int, reason: str, stays: bool | None = None) -> Removal:
    """Whoever is there is put out now. It is so from the first commit on: what fails after it
    the finalizer does again.
    """
    removal = drain_member(member_id=member_id, reason=reason, force=True, stays=stays)
    try:
        evict_claims(member_id, AT_ONCE)
    except Exception:
        logger.exception(
            "not everybody on member %s could be put out at once, the finalizer goes on", member_id
        )
    return removal


def list_kept(member_ids: list[int]) -> dict[int, list[ClaimFate]]:
    """What keeps members from being empty, of each in the order in which it came."""
    found: dict[int, list[ClaimFate]] = {member_id: [] for member_id in member_ids}
    for row in draining_sql.holders(members=member_ids):
        fate = fate_of_drained(
            step=row.step,
            is_retried=row.is_retried,
            is_reserved=row.state == "reserved",
            is_started=row.is_begun or not row.has_task,
            has_task=row.has_task,
        )
        found[row.member_id].append(
            ClaimFate(row, fate, row.state == "bound" and not row.step and row.size > row.n)
        )
    return found


def drains_of(claim_ids: list[int]) -> dict[int, Any]:
    """Of claims whose member drains: the first deadline."""
    found: dict[int, Any] = {}
    for row in draining_sql.drains(claims=claim_ids):
        found.setdefault(row.claim_id, row)
    return found


def _evict(claim_id: int, member_id: int) -> bool:
    with transaction.atomic():
        member = lock_overdue(member_id)
        if member is None:
            return False
        held = lock_hold(claim_id)
        if not held.holds or not draining_sql.holds_on(claim=claim_id, member=member_id):
            return False
        note = describe_drain(member)
        if replace_places(held, member_id, f"a member was drained: {note}", is_lost=False):
            return True
        words = f"was put out while it applied: its member was drained: {note}"
        apply_fate(held, fate_of_drained(**held.facts), verb=VERB, words=words, note=note)
    return True


def describe_drain(member: Any) -> str:
    """Which, by whom, and why."""
    by = f", by {member.drain_by}" if member.drain_by else ""
    return f"{member.name}{by}: {member.note}" if member.note else f"{member.name}{by}"
