"""Reads members and slots for the API and for the apps above. slots/pages/dashboard_queries.py
reads for pages.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from django.db.models import Prefetch, QuerySet

from pools.lifecycle.selectors import LIVE, list_members_of, snapshot_member, snapshot_pool
from pools.models import Member, Pool
from pools.providers.base import MemberSnapshot, PoolSnapshot, SlotSnapshot
from project.kernel.errors import NotFound
from slots.members import members_sql
from slots.members.tokens import token_limits
from slots.models import Slot


@dataclass(slots=True)
class StoredSlotCounts:
    """Slots of a pool by their stored state. `total` counts all slots that are not retired."""

    open: int = 0  # idle and free for the next claim
    closed: int = 0  # idle, but the pool or the member takes no claims
    held: int = 0
    reserved: int = 0
    draining: int = 0
    away: int = 0  # held and reserved slots of offline members
    retired: int = 0
    lost: int = 0  # retired slots of lost members
    by_lane: dict[str, dict[str, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )

    @property
    def idle(self) -> int:
        return self.open + self.closed

    @property
    def total(self) -> int:
        return self.idle + self.held + self.reserved + self.draining


@dataclass(slots=True)
class MemberCounts:
    """Members of a pool without gone members. A cordoned member that leaves counts as leaving."""

    total: int = 0
    ready: int = 0  # neither cordoned nor leaving
    cordoned: int = 0
    leaving: int = 0
    offline: int = 0
    lost: int = 0  # part of offline
    creating: int = 0
    deleting: int = 0


@dataclass(slots=True)
class PoolCounts:
    slots: StoredSlotCounts = field(default_factory=StoredSlotCounts)
    members: MemberCounts = field(default_factory=MemberCounts)


def count_pools(pool_ids: Iterable[int]) -> dict[int, PoolCounts]:
    """Slots and members of many pools, in two queries. Each given pool has an entry."""
    ids = list(pool_ids)
    found = {pool_id: PoolCounts() for pool_id in ids}
    for row in members_sql.count_slots(pools=ids):
        _add_slots(found[row.pool_id].slots, row)
    for states in members_sql.count_members(pools=ids):
        _add_members(found[states.pool_id].members, states)
    return found


def list_members(pool_id: int) -> QuerySet[Member]:
    """Members of a pool in the order in which they are filled, without gone members."""
    return Member.objects.filter(LIVE, pool_id=pool_id).order_by("position", "id")


def get_member(member_id: int) -> Member:
    return _get(Member.objects.select_related("pool"), member_id)


def _get(members: QuerySet[Member], member_id: int) -> Member:
    member = members.filter(pk=member_id).first()
    if member is None:
        raise no_such_member(member_id)
    return member


def no_such_member(member_id: int) -> NotFound:
    return NotFound(f"There is no member {member_id}.", way_out="List the members of the pool.")


def get_member_detail(member_id: int) -> Member:
    """The member with its heartbeat and its slots."""
    slots = Prefetch("slots", Slot.objects.order_by("number", "lane"))
    return _get(
        Member.objects.select_related("pool", "heartbeat").prefetch_related(slots), member_id
    )


def snapshot_of(member_id: int) -> tuple[PoolSnapshot, MemberSnapshot] | None:
    """A pool and one member with its slots, for the provider. None: the member is gone."""
    member = Member.objects.select_related("pool").filter(LIVE, pk=member_id).first()
    if member is None:
        return None
    is_due = bool(members_sql.is_due(member=member_id, **token_limits()))
    return snapshot_pool(member.pool), snapshot_member(
        member, _slot_snapshots([member_id])[member_id], is_token_due=is_due
    )


def snapshot_whole(pool: Pool) -> PoolSnapshot:
    """A pool with all its members, for a full look of the provider. Slots are left out, because a
    pool may have a million.
    """
    return snapshot_pool(pool, [snapshot_member(m) for m in list_members_of(pool.pk)])


def _slot_snapshots(member_ids: list[int]) -> dict[int, list[SlotSnapshot]]:
    found: dict[int, list[SlotSnapshot]] = defaultdict(list)
    for row in members_sql.slots_outside(members=member_ids):
        found[row.member_id].append(SlotSnapshot(*row[1:]))
    return found


def _add_slots(counts: StoredSlotCounts, row: members_sql.CountSlotsRow) -> None:
    name = row.state
    if row.state == "idle":
        name = "open" if row.is_open else "closed"
    setattr(counts, name, getattr(counts, name) + row.n)
    counts.by_lane[row.lane][name] += row.n
    if row.state in ("held", "reserved") and row.member_state == "offline":
        counts.away += row.n
    if row.state == "retired" and row.is_lost:
        counts.lost += row.n


def _add_members(counts: MemberCounts, row: members_sql.CountMembersRow) -> None:
    counts.total += row.n
    if row.is_lost:
        counts.lost += row.n
    if row.state != "ready":
        name = row.state
    elif row.is_leaving:
        name = "leaving"
    else:
        name = "cordoned" if row.is_cordoned else "ready"
    setattr(counts, name, getattr(counts, name) + row.n)
