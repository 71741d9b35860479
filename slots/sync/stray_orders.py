"""Orders on objects outside that have the marks of a pool and belong to no member: delete them, or
adopt them as members.

An order to delete is kept in `Pool.stray_orders`; the watcher carries it out after each look that
finds the object. An adopted object becomes a member with the id that its
marks name, so that the provider finds it as it finds what an interrupted creation left. Both are
decided under the lock of the pool, so an object is never adopted and deleted.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from django.db import transaction
from django.db.models.functions import Now

from pools.config.spec import MemberSpec
from pools.lifecycle.selectors import LIVE, lock_pool, spec_of
from pools.lifecycle.services import raise_revision
from pools.models import Member, Pool
from pools.providers.base import known_providers
from project.kernel.actor import current_actor
from project.kernel.db.locks import MEMBER_IDS, lock_in_transaction
from project.kernel.errors import Conflict, FieldError, Invalid, NotFound
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.ui import formatting
from project.kernel.validation import moment, require_reason
from slots.members import members_sql
from slots.members.store import add_member_rows
from slots.sync.strays import LARGEST_KNOWN, Stray, read_strays

LONGEST_ERROR = 300


@dataclass(frozen=True, slots=True)
class StrayOrder:
    """An object that is to be deleted."""

    member_id: int
    name: str
    reason: str
    by: str
    at: str
    error: str = ""  # why the last try failed


def read_orders(pool: Pool) -> dict[int, StrayOrder]:
    """By the id of the member that the object names."""
    return {each["member_id"]: StrayOrder(**each) for each in pool.stray_orders}


def name_adopted(pool: Pool, stray: Stray) -> str | None:
    """The name of the member that the object would become; None: it cannot be adopted."""
    provider = known_providers().get(pool.provider)
    if provider is None or stray.is_gone or not 0 < stray.member_id <= LARGEST_KNOWN:
        return None
    return provider.name_adopted(pool.name, stray.name, stray.member_id)


def delete_stray(*, pool_id: int, member_id: int, reason: str) -> None:
    """Order the deletion of an object without a member. A repeated order has no effect."""
    note = require_reason(reason)
    with transaction.atomic():
        pool = lock_pool(pool_id)
        stray = find_stray(pool, member_id)
        orders = read_orders(pool)
        if member_id in orders:
            return
        order = StrayOrder(
            member_id, stray.name, note, current_actor(), formatting.rfc3339(moment())
        )
        _store(pool, {**orders, member_id: order})
        record("delete_stray", pool_id=pool.pk, reason=note, data={"object": stray.name})
        publish("pools")


def keep_stray(*, pool_id: int, member_id: int, reason: str) -> None:
    """Withdraw an order to delete. A call to the provider that runs meanwhile may still delete."""
    with transaction.atomic():
        pool = lock_pool(pool_id)
        orders = read_orders(pool)
        order = orders.pop(member_id, None)
        if order is None:
            raise Conflict(
                "The object is not to be deleted.", way_out="Reload the list: it may be gone."
            )
        _store(pool, orders)
        record("keep_stray", pool_id=pool.pk, reason=reason.strip(), data={"object": order.name})


def adopt_stray(*, pool_id: int, member_id: int, reason: str) -> Member:
    """Make an object without a member a member of the pool. Its listeners serve no claim here, so
    the first sync removes them.
    """
    note = require_reason(reason)
    with transaction.atomic():
        pool = lock_pool(pool_id)
        if pool.state not in ("active", "pending"):
            raise Conflict(
                f"Pool {pool.name} is {pool.state}.", way_out="Create the pool again, then adopt."
            )
        stray = find_stray(pool, member_id)
        if member_id in read_orders(pool):
            raise Conflict(
                f"{stray.name} is being deleted.", way_out="Keep it first, then adopt it."
            )
        name = name_adopted(pool, stray)
        if name is None:
            raise Conflict(
                f"{stray.name} is no object that can become a member.",
                way_out="Delete it, or remove it there.",
            )
        spec = spec_of(pool)
        there = set(Member.objects.filter(LIVE, pool=pool).values_list("name", flat=True))
        if len(there) >= spec.max_members:
            text = f"The pool has {len(there)} of at most {spec.max_members} members."
            way_out = "Raise members.max of the pool, or remove a member."
            raise Invalid(fields=[FieldError("members.max", text, way_out)])
        if name in there:
            name = f"{name}-{member_id}"
        # Another pool may adopt at the same moment, and the sequence must not go back.
        lock_in_transaction(MEMBER_IDS, "ids")
        members_sql.reserve_member_id(id=member_id)
        (member,) = add_member_rows(
            pool, spec, [MemberSpec(name, spec.member_labels)], note, verb="adopt", ids=[member_id]
        )
        raise_revision(pool)
        return member


def list_ordered(pool: Pool, strays: Collection[int]) -> set[int]:
    """The strays of a look that are to be deleted, by the orders of this moment."""
    stored = Pool.objects.filter(pk=pool.pk).only("stray_orders").first()
    return set() if stored is None else read_orders(stored).keys() & set(strays)


def end_orders(pool: Pool, strays: Collection[int], started: datetime) -> None:
    """End the orders of objects that the look has not found. `started`: when the look began."""
    if not Pool.objects.filter(pk=pool.pk).exclude(stray_orders=[]).exists():
        return
    with transaction.atomic():
        locked = lock_pool(pool.pk)
        orders = read_orders(locked)
        gone = [
            order
            for order in orders.values()
            if order.member_id not in strays and datetime.fromisoformat(order.at) < started
        ]
        if gone:
            left = {each: order for each, order in orders.items() if order not in gone}
            _store(locked, left)
            for order in gone:
                record("stray_gone", pool_id=pool.pk, data={"object": order.name})


def record_stray_error(pool_id: int, member_ids: Iterable[int], error: str) -> None:
    """Keep why objects could not be deleted, for the pages."""
    with transaction.atomic():
        pool = lock_pool(pool_id)
        orders = read_orders(pool)
        failed = orders.keys() & set(member_ids)
        if failed:
            changed = {each: replace(orders[each], error=error[:LONGEST_ERROR]) for each in failed}
            _store(pool, {**orders, **changed})


def find_stray(pool: Pool, member_id: int) -> Stray:
    """The object, if the last look found it and no member has its id. Raises NotFound."""
    found = next((each for each in read_strays(pool) if each.member_id == member_id), None)
    if found is None or found.is_gone or Member.objects.filter(pk=member_id).exists():
        raise NotFound(
            f"The last look at {pool.name} found no object without a member of this number.",
            way_out="Reload the list: the object may be gone, or have a member by now.",
        )
    return found


def _store(pool: Pool, orders: Mapping[int, StrayOrder]) -> None:
    stored = [asdict(orders[each]) for each in sorted(orders)]
    Pool.objects.filter(pk=pool.pk).update(stray_orders=stored, changed_at=Now())
