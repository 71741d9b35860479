"""Orders of operators: repair a slot, and look at a pool now.

Both make a call to the provider due and return. The provider is called later, by a worker or by the
watcher.
"""

from datetime import timedelta

from django.db import transaction

from pools.lifecycle.selectors import lock_pool
from pools.models import Pool
from pools.providers.base import Provider
from project.kernel.errors import Conflict
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.validation import moment
from slots.members.provider_status import sync_member_now
from slots.members.store import lock_slot, refuse_unless_there, request_sync
from slots.sync.drift import REPAIRED
from slots.sync.slot_drift import find_kind


def repair_slot(*, slot_id: int, reason: str) -> None:
    """Sync the member of a slot now, because the outside differs from its row. Raises Conflict if
    the last observation found no difference that a sync repairs.
    """
    with transaction.atomic():
        pool, member, slot = lock_slot(slot_id)
        refuse_unless_there(member)
        kind = find_kind(slot.state, slot.observed)
        if kind not in REPAIRED:
            raise Conflict(
                f"{slot.lane} {slot.number} of {member.name} has no difference to repair.",
                way_out="Reload the list: the difference may be gone.",
            )
        if not pool.queue:
            raise Conflict(
                f"The provider {pool.provider} changes no objects outside.",
                way_out="Repair the object there.",
            )
        if not sync_member_now(member.pk):
            request_sync(pool, member)
        record(
            "repair",
            pool_id=pool.pk,
            member_id=member.pk,
            slot_id=slot.pk,
            before=kind,
            reason=reason,
        )


def order_look(*, pool_id: int, reason: str) -> None:
    """Make the next look at a pool due now. The time of the last look moves back as far as the
    watcher needs, and no further: scale-in and the doctor count on recent looks.
    """
    with transaction.atomic():
        pool = lock_pool(pool_id)
        if pool.state == "gone":
            raise Conflict(f"Pool {pool.name} is gone.", way_out="It has no objects to look at.")
        due = moment() - timedelta(seconds=Provider.look_every)
        Pool.objects.filter(pk=pool.pk, observed_at__gt=due).update(observed_at=due)
        record("sweep", pool_id=pool.pk, reason=reason)
        publish("pools")
