"""Confirmation pages for ports: repair a slot that differs outside, and look at a pool now."""

from django.http import HttpResponse

from pools.access.permissions import require
from pools.pages.base import PageRequest, confirm, pool_for, signed_in
from project.kernel.errors import NotFound
from project.kernel.ui import formatting
from project.kernel.ui.confirm import ConfirmInput, Done, Question
from project.kernel.validation import moment
from slots.models import Slot
from slots.sync.drift import REPAIRED, THEN, describe_found
from slots.sync.orders import order_look, repair_slot
from slots.sync.slot_drift import find_kind


@signed_in
def repair(request: PageRequest, slot_id: int) -> HttpResponse:
    slot = Slot.objects.select_related("pool", "member").filter(pk=slot_id).first()
    if slot is None or not request.identity.may("read", slot.pool_id):
        raise NotFound(f"There is no slot {slot_id}.", way_out="List the slots of the pool.")
    require(request.identity, "repair", slot.pool)
    kind, member = find_kind(slot.state, slot.observed), slot.member.name
    where = f"{slot.lane} {slot.number} of {member}"
    nothing = ""
    if kind not in REPAIRED:
        nothing = (
            "Berth never touches a foreign object."
            if kind == "foreign"
            else "The last look found no difference here."
        )
    facts = []
    if kind:
        found = describe_found(kind, slot.claim_id, slot.observed.get("problem"))
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
            "It records the differences, removes objects of members that are gone, and touches "
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
