"""Confirmation pages for differences outside: repair a slot or put it into quarantine, adopt or
delete an object without a member, and look at a pool now.
"""

from datetime import datetime

from django.http import HttpResponse

from pools.access.permissions import require
from pools.lifecycle.selectors import LIVE, spec_of
from pools.models import Member
from pools.pages.base import PageRequest, confirm, pool_for, signed_in
from project.kernel.ui import formatting
from project.kernel.ui.confirm import ConfirmInput, Done, Question
from project.kernel.validation import moment
from slots.members.store import no_such_slot
from slots.models import Slot
from slots.sync.drift import REPAIRED, THEN, describe_found
from slots.sync.orders import order_look, repair_slot
from slots.sync.quarantine import end_quarantine, find_quarantine, quarantine_slot
from slots.sync.slot_drift import find_kind
from slots.sync.stray_orders import (
    adopt_stray,
    delete_stray,
    find_stray,
    keep_stray,
    name_adopted,
    read_orders,
)


def find_slot(request: PageRequest, slot_id: int) -> Slot:
    slot = Slot.objects.select_related("pool", "member").filter(pk=slot_id).first()
    if slot is None or not request.identity.may("read", slot.pool_id):
        raise no_such_slot(slot_id)
    require(request.identity, "repair", slot.pool)
    return slot


def place_of(slot: Slot) -> str:
    return f"{slot.lane} {slot.number} of {slot.member.name}"


@signed_in
def repair(request: PageRequest, slot_id: int) -> HttpResponse:
    slot = find_slot(request, slot_id)
    kind, member = find_kind(slot.state, slot.observed), slot.member.name
    where = place_of(slot)
    nothing = ""
    if kind not in REPAIRED:
        nothing = (
            "Berth changes no foreign object."
            if kind == "foreign"
            else "The last look found no difference here."
        )
    facts = []
    if kind:
        found = describe_found(kind, slot.claim_id, slot.observed)
        facts = [("Found", f"{found[0].upper()}{found[1:]}"), ("Then", THEN[kind])]
    question = Question(
        title=f"Repair {where}",
        verb="Repair",
        intro=(
            f"The provider makes {member} equal to its rows now, with all of its slots. "
            "Claims keep their slots."
        ),
        facts=facts,
        note="A worker calls the provider within seconds.",
        nothing=nothing,
    )

    def perform(given: ConfirmInput) -> Done:
        repair_slot(slot_id=slot_id, reason=given.reason)
        return Done(f"{where} is repaired as soon as a worker has called the provider.")

    return confirm(request, question, perform, "overview")


@signed_in
def sweep(request: PageRequest, name: str) -> HttpResponse:
    pool = pool_for(request.identity, name, "repair")
    facts = [("Last look", "none yet")]
    if pool.observed_at is not None:
        age = (moment() - pool.observed_at).total_seconds()
        facts = [("Last look", f"{formatting.coarse(age)} ago")]
    if pool.provider_error_since is not None:
        failed = f"{pool.provider_error}. Berth tries again within a minute, also with this order."
        facts.append(("Last failure", failed))
    question = Question(
        title=f"Sweep {pool.name}",
        verb="Sweep now",
        intro=(
            "Berth looks at all objects of the pool outside now, not only at the next look. "
            "It records the differences, removes objects of members that are gone, and changes "
            "no foreign object."
        ),
        facts=facts,
        reason="optional",
        note="The page shows the result within seconds.",
    )

    def perform(given: ConfirmInput) -> Done:
        order_look(pool_id=pool.pk, reason=given.reason)
        return Done(f"The look at {pool.name} is due now.")

    return confirm(request, question, perform, "overview")


@signed_in
def quarantine(request: PageRequest, slot_id: int) -> HttpResponse:
    slot = find_slot(request, slot_id)
    where, kind = place_of(slot), find_kind(slot.state, slot.observed)
    facts = [("Now", f"claim {slot.claim_id} holds it" if slot.claim_id else slot.state)]
    if kind:
        found = describe_found(kind, slot.claim_id, slot.observed)
        facts.append(("Found", f"{found[0].upper()}{found[1:]}"))
    question = Question(
        title=f"Quarantine {where}",
        verb="Put into quarantine",
        intro=(
            "No claim gets the slot until a person ends its quarantine. A claim that holds it "
            "keeps it. Berth changes nothing outside."
        ),
        facts=facts,
        nothing="The slot is in quarantine already." if find_quarantine(slot_id) else "",
    )

    def perform(given: ConfirmInput) -> Done:
        quarantine_slot(slot_id=slot_id, reason=given.reason)
        return Done(f"{where} is in quarantine.")

    return confirm(request, question, perform, "overview")


@signed_in
def end_slot_quarantine(request: PageRequest, slot_id: int) -> HttpResponse:
    slot = find_slot(request, slot_id)
    where, facts = place_of(slot), list[tuple[str, str]]()
    known = find_quarantine(slot_id)
    if known is not None:
        facts = [("Reason", known.reason), ("Ordered by", known.by_user)]
    if find_kind(slot.state, slot.observed) == "foreign":
        facts.append(("Found", "A foreign object has its place, so it is not offered yet."))
    question = Question(
        title=f"End the quarantine of {where}",
        verb="End the quarantine",
        intro="Claims may get the slot again, as far as its member takes claims.",
        facts=facts,
        reason="optional",
        nothing="" if known else "The slot is in no quarantine.",
    )

    def perform(given: ConfirmInput) -> Done:
        end_quarantine(slot_id=slot_id, reason=given.reason)
        return Done(f"The quarantine of {where} has ended.")

    return confirm(request, question, perform, "overview")


@signed_in
def adopt(request: PageRequest, name: str, stray_id: int) -> HttpResponse:
    pool = pool_for(request.identity, name, "repair")
    stray = find_stray(pool, stray_id)
    there = Member.objects.filter(LIVE, pool=pool).count()
    most, named = spec_of(pool).max_members, name_adopted(pool, stray)
    nothing = ""
    if named is None:
        nothing = "The object cannot become a member. Delete it, or remove it there."
    elif stray_id in read_orders(pool):
        nothing = "The object is being deleted. Keep it first, then adopt it."
    elif there >= most:
        nothing = f"The pool has {there} of at most {most} members."
    question = Question(
        title=f"Adopt {stray.name}",
        verb="Adopt",
        intro=(
            f"The object becomes a member of {pool.name}. Its listeners serve no claim that this "
            "database knows, so the first sync removes them. Do not adopt an object that a newer "
            "copy of this database uses."
        ),
        facts=[
            ("New member", named or "none"),
            ("Members", f"{there + 1} of at most {most} afterwards"),
        ],
        nothing=nothing,
    )

    def perform(given: ConfirmInput) -> Done:
        member = adopt_stray(pool_id=pool.pk, member_id=stray_id, reason=given.reason)
        return Done(f"{stray.name} becomes the member {member.name}.")

    return confirm(request, question, perform, "overview")


@signed_in
def delete(request: PageRequest, name: str, stray_id: int) -> HttpResponse:
    pool = pool_for(request.identity, name, "repair")
    stray = find_stray(pool, stray_id)
    question = Question(
        title=f"Delete {stray.name}",
        verb="Delete",
        intro=(
            "Berth deletes the object at the provider, with the listeners that have the marks of "
            "this pool. Foreign listeners on it prevent that. Traffic through it ends."
        ),
        facts=[
            ("Object", stray.name),
            ("Found since", f"{datetime.fromisoformat(stray.since):%d %b %H:%M} UTC"),
        ],
        typed=stray.name,
        is_dangerous=True,
        note="Berth deletes it after the next look that finds it.",
        nothing="Its deletion is ordered already." if stray_id in read_orders(pool) else "",
    )

    def perform(given: ConfirmInput) -> Done:
        delete_stray(pool_id=pool.pk, member_id=stray_id, reason=given.reason)
        return Done(f"{stray.name} is deleted after the next look at {pool.name}.")

    return confirm(request, question, perform, "overview")


@signed_in
def keep(request: PageRequest, name: str, stray_id: int) -> HttpResponse:
    pool = pool_for(request.identity, name, "repair")
    order = read_orders(pool).get(stray_id)
    what = f"object {stray_id}" if order is None else order.name
    facts = [] if order is None else [("Ordered by", order.by), ("Reason", order.reason)]
    if order is not None and order.error:
        facts.append(("Last try", order.error))
    question = Question(
        title=f"Keep {what}",
        verb="Keep",
        intro="Berth no longer deletes the object. A call that runs now may still delete it.",
        facts=facts,
        reason="optional",
        nothing="The object is not to be deleted." if order is None else "",
    )

    def perform(given: ConfirmInput) -> Done:
        keep_stray(pool_id=pool.pk, member_id=stray_id, reason=given.reason)
        return Done(f"{what} is kept.")

    return confirm(request, question, perform, "overview")
