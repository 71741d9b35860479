"""Repairs that the configuration of a pool (`drift`) lets Berth carry out without a person.

A difference in a slot is repaired once, when it is first found: if the repair does not help, the
difference stays in the list for a person. A problem puts its slot into quarantine only once it has
lasted, because most problems pass. Objects without a member are handled after each look.
"""

import logging
from collections.abc import Collection, Mapping

from pools.config.drift_spec import ADOPT, DELETE, QUARANTINE, REPAIR
from pools.lifecycle.selectors import spec_of
from pools.models import Pool
from project.kernel.errors import BerthError
from slots.sync.orders import repair_slot
from slots.sync.port_uses import read_uses
from slots.sync.quarantine import quarantine_slot
from slots.sync.slot_drift import LASTING
from slots.sync.stray_orders import adopt_stray, delete_stray, name_adopted, read_orders
from slots.sync.strays import read_strays

logger = logging.getLogger(__name__)

NOT_ALLOWED = "the listener has a target that the pool does not allow"
REASON = "drift.{kind} of the pool is {rule}"


def repair_found(
    pool_id: int, found: Mapping[int, str], rules: Collection[str] = (REPAIR, QUARANTINE)
) -> None:
    """Apply the rules of the pool to slots with a new finding, by the kind of each. A slot that has
    changed meanwhile is left as it is.
    """
    pool = Pool.objects.filter(pk=pool_id).first()
    if pool is None or not found:
        return
    by_kind = spec_of(pool).drift.by_kind
    for slot_id, kind in found.items():
        name = "problem" if kind == LASTING else kind
        rule = by_kind[name]
        if rule not in rules:
            continue
        if (kind, rule) in (("problem", QUARANTINE), (LASTING, REPAIR)):
            continue  # it may pass; or the repair was ordered when it was found
        act = repair_slot if rule == REPAIR else quarantine_slot
        try:
            act(slot_id=slot_id, reason=REASON.format(kind=name, rule=rule))
        except BerthError as error:
            logger.info("slot %s of pool %s is left to a person: %s", slot_id, pool.name, error)


def remove_withheld(found: Mapping[int, str]) -> None:
    """Repair the listeners of new differences that have a target which they may not have. Traffic
    would go where the pool does not allow it, so no rule of the pool is needed.
    """
    uses = read_uses([slot_id for slot_id, kind in found.items() if kind == "changed"])
    for slot_id in [slot_id for slot_id, use in uses.items() if use.is_withheld]:
        try:
            repair_slot(slot_id=slot_id, reason=NOT_ALLOWED)
        except BerthError as error:
            logger.info("the target of slot %s is left as it is: %s", slot_id, error)


def settle_strays(pool: Pool) -> None:
    """Adopt the objects without a member, or order their deletion, if the pool says so."""
    rule = spec_of(pool).drift.strays
    if rule not in (ADOPT, DELETE):
        return
    fresh = Pool.objects.filter(pk=pool.pk).first()
    if fresh is None:
        return
    ordered = read_orders(fresh)
    for stray in read_strays(fresh):
        if stray.is_gone or not stray.member_id or stray.member_id in ordered:
            continue
        reason = REASON.format(kind="strays", rule=rule)
        try:
            if rule == DELETE:
                delete_stray(pool_id=fresh.pk, member_id=stray.member_id, reason=reason)
            elif name_adopted(fresh, stray) is not None:
                adopt_stray(pool_id=fresh.pk, member_id=stray.member_id, reason=reason)
        except BerthError as error:
            logger.info("%s of pool %s is left to a person: %s", stray.name, fresh.name, error)
