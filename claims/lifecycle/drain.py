"""Evict the claims of a member at the deadline of its drain, or by force: one claim in one
transaction.

Locks are taken in the order member, workspace, claim, slots. The member's lock is shared, so that
several claims end at the same time while an undrain waits. A result, an approval or a release
locks the same claim: if it commits first, the eviction sees its effect.
"""

import logging
from functools import partial
from typing import NamedTuple

from django.db import transaction

from claims import claims_sql
from claims.lifecycle import draining_sql
from claims.lifecycle.end_hold import apply_fate, lock_hold
from claims.lifecycle.lost_member import replace_slots
from claims.lifecycle.policy import Fate, fate_of_drained
from claims.statements import repeat
from project.kernel.controllers.periodic import run_each
from slots.members import members_sql
from slots.members.drain import drain_member
from slots.members.services import Removal

logger = logging.getLogger(__name__)

AT_ONCE = 100  # claims that a forced drain evicts before it returns; the finalizer evicts the rest
VERB = "put_out"


class ClaimFate(NamedTuple):
    """A claim that holds slots of a draining member, and its fate at the deadline."""

    row: draining_sql.HoldersRow
    fate: Fate
    is_moved: bool  # its slots here are replaced, if enough slots are free elsewhere


def evict_claim(*, claim_id: int, member_id: int) -> bool:
    """False: the claim holds no slot there any more, or the deadline was moved."""
    return repeat(partial(_evict, claim_id, member_id))


def evict_claims(member_id: int, most: int | None = None) -> int:
    """Evict the claims of a member, each in its own transaction: a failure does not stop the
    rest. Returns how many claims were found.
    """
    rows = claims_sql.claims_on_member(member=member_id)[:most]
    run_each(
        [row.id for row in rows],
        lambda claim_id: evict_claim(claim_id=claim_id, member_id=member_id),
    )
    return len(rows)


def force_drain(*, member_id: int, reason: str, stays: bool | None = None) -> Removal:
    """Drain a member with the deadline now, and evict its claims. The finalizer retries the
    evictions that fail.
    """
    removal = drain_member(member_id=member_id, reason=reason, force=True, stays=stays)
    try:
        evict_claims(member_id, AT_ONCE)
    except Exception:
        logger.exception(
            "some claims on member %s were not evicted; the finalizer retries", member_id
        )
    return removal


def list_fates(member_ids: list[int]) -> dict[int, list[ClaimFate]]:
    """The claims that hold slots of the given members, by member, oldest first."""
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


def drains_of(claim_ids: list[int]) -> dict[int, draining_sql.DrainsRow]:
    """The drain with the earliest deadline, by claim; claims without a draining member are left
    out.
    """
    found: dict[int, draining_sql.DrainsRow] = {}
    for row in draining_sql.drains(claims=claim_ids):
        found.setdefault(row.claim_id, row)
    return found


def _evict(claim_id: int, member_id: int) -> bool:
    with transaction.atomic():
        member = members_sql.lock_overdue(member=member_id)
        if member is None:
            return False
        held = lock_hold(claim_id)
        if not held.holds or not draining_sql.holds_on(claim=claim_id, member=member_id):
            return False
        note = describe_drain(member)
        if replace_slots(held, member_id, f"a member was drained: {note}", is_lost=False):
            return True
        words = f"was evicted during its apply: its member was drained: {note}"
        apply_fate(held, fate_of_drained(**held.facts), verb=VERB, words=words, note=note)
    return True


def describe_drain(member: members_sql.LockOverdueRow) -> str:
    """Such as "tf-0, by anna: kernel patch"."""
    by = f", by {member.drain_by}" if member.drain_by else ""
    return f"{member.name}{by}: {member.note}" if member.note else f"{member.name}{by}"
