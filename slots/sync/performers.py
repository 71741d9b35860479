"""Operations of the kind `sync`: a provider makes a member equal to its rows, and Berth records
what the provider confirms.

The provider is called outside of transactions, perhaps twice, perhaps late. An error is raised: the
operation stays open and visible and is retried, and a draining slot keeps draining meanwhile.
"""

from collections.abc import Sequence
from dataclasses import replace

from django.db import transaction

from pools.config.drift_spec import QUARANTINE
from pools.models import Member
from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    PoolSnapshot,
    provider_class,
    provider_of,
)
from pools.providers.pacing import PartlySynced
from project.kernel.db.guards import outside_transaction
from project.kernel.outbox.budgets import count_throttled, spend
from project.kernel.outbox.operations import (
    AcquiredOperation,
    NotFoundOutside,
    ProviderError,
    Throttled,
    register_batch_performer,
)
from slots.members import members_sql
from slots.members.provider_status import record_down, record_external_state, record_failure
from slots.members.selectors import snapshot_of
from slots.members.services import clean_slot, record_sync_result
from slots.members.store import lane_of, request_sync
from slots.members.tokens import issue_token
from slots.models import Slot
from slots.sync.automatic_repairs import repair_found
from slots.sync.metrics import timed_call
from slots.sync.port_uses import with_uses
from slots.sync.slot_drift import record_reported_slots

LOOK_AGAIN = 10.0  # seconds until the next sync of a member that drains, or is created or deleted


@register_batch_performer("sync")
def sync_member(taken: Sequence[AcquiredOperation]) -> None:
    """Perform all due operations of a member's lane with one provider call."""
    member_id = taken[0].member_id
    found = None if member_id is None else snapshot_of(member_id)
    if found is None:
        return  # the member is gone
    pool, member = found
    member = with_uses(pool, member)
    budget = provider_class(pool.provider).call_budget(pool.options)
    try:
        if budget is not None:
            spend(budget)
        report = call_provider(pool, member)
    except PartlySynced as partial:
        record_report(pool, member, partial.report)
        raise
    except ProviderError as error:
        if budget is not None and isinstance(error, Throttled):
            count_throttled(budget)
        record_failure(member, error)
        raise
    if report.failure is not None:
        record_failure(member, report.failure)
    record_report(pool, member, report)
    # A provider of ports also comes back to held slots, such as one whose target is not healthy.
    is_asked = pool.ports is not None and report.again is not None
    delay = LOOK_AGAIN if report.again is None else report.again
    if report.failure is None or is_asked:
        _sync_later(member.id, taken, delay, is_asked=is_asked)
    if report.failure is not None:
        raise report.failure


@outside_transaction
def call_provider(pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
    """The report of the provider. A missing object that should be gone is success; the watcher
    handles a missing object that should exist.
    """
    provider = provider_of(pool.provider)
    if member.state == "deleting" and not member.is_owned and not provider.serves_named:
        # Berth did not create this member, so it leaves the outside object alone.
        return MemberReport(clean=_draining(member), is_gone=True)
    if provider.needs_token(pool, member):
        reason = "its agent is started" if member.state == "creating" else "it is due for renewal"
        member = replace(member, token=issue_token(member_id=member.id, reason=reason))
    try:
        with timed_call(pool.provider, "sync"):
            return provider.sync(pool, member)
    except NotFoundOutside:
        if member.state == "deleting":
            return MemberReport(clean=_draining(member), is_gone=True)
        if any(slot.state in ("held", "reserved") for slot in member.slots) or not _draining(
            member
        ):
            raise
        return MemberReport(clean=_draining(member))


def record_report(pool: PoolSnapshot, member: MemberSnapshot, report: MemberReport) -> None:
    """Each slot changes in a transaction of its own, and only in the generation of the snapshot: a
    later holder is not affected. What was seen is recorded before the slot is free, so that the
    next holder never finds what was seen of this one.
    """
    repair_found(pool.id, record_reported_slots(pool, member, report), [QUARANTINE])
    for slot in member.slots:
        if slot.state == "draining" and slot.id in report.clean:
            clean_slot(slot_id=slot.id, generation=slot.generation)
    if report.external_id or report.addresses or (report.down or report.why) != member.outside:
        record_external_state(
            member_id=member.id,
            incarnation=member.incarnation,
            state=member.state,
            why=report.down or report.why,
            external_id=report.external_id,
            addresses=report.addresses,
        )
    if report.down:
        record_down(member, report.down, is_lost=report.is_lost, is_planned=report.is_planned)
    if (member.state == "deleting" and report.is_gone) or (
        member.state == "creating" and report.is_ready
    ):
        record_sync_result(member_id=member.id, is_gone=report.is_gone, is_ready=report.is_ready)


def _draining(member: MemberSnapshot) -> frozenset[int]:
    return frozenset(slot.id for slot in member.slots if slot.state == "draining")


def _sync_later(
    member_id: int, taken: Sequence[AcquiredOperation], delay: float, *, is_asked: bool
) -> None:
    """Add the next operation while a confirmation is missing, or if the provider asks for it,
    before these operations are done, so that the member always has one.
    """
    with transaction.atomic():
        member = Member.objects.select_related("pool").get(pk=member_id)
        is_unconfirmed = (
            member.state in ("creating", "deleting")
            or Slot.objects.filter(member_id=member_id, state="draining").exists()
        )
        if (is_unconfirmed or is_asked) and not members_sql.has_operation(
            lane=lane_of(member_id), but=[each.id for each in taken]
        ):
            request_sync(member.pool, member, delay=delay)
