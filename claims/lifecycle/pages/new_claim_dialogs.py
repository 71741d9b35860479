"""Dialogs that create a claim in a pool, or claim one named slot."""

from django.http import HttpResponse
from django.urls import reverse

from claims.allocation.api.permissions import require_to_create
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest, parse_claim
from claims.lifecycle.pages.claim_dialogs import describe_slots
from pools.access.permissions import require, require_anywhere
from pools.config.layout import default_kind, kinds
from pools.lifecycle.selectors import list_pools, spec_of
from pools.models import Pool
from pools.pages.base import PageRequest, confirm, signed_in
from project.kernel.errors import FieldError, Invalid, NotFound
from project.kernel.ui.confirm import ConfirmInput, Done, Field, Question
from slots.models import Slot
from slots.pages.views import read_labels

OWNER = Field(
    "owner", "Owner", help="Shown beside the claim’s number: user:ana, branch:login, job:42"
)
HOLD_FOR = Field("hold_for", "Maximum hold time", help="Like 2h. Empty: the pool’s limit")


@signed_in
def new(request: PageRequest) -> HttpResponse:
    identity = request.identity
    require_anywhere(identity, "claim")
    pools = [
        pool
        for pool in list_pools(identity.visible_pools())
        if identity.may("claim", pool.pk) and pool.state == "active"
    ]
    first = (
        request.GET.get("pool", "")
        or request.POST.get("pool", "")
        or (pools[0].name if pools else "")
    )
    pool = next((p for p in pools if p.name == first), None)
    question = Question(
        title="New claim",
        verb="Claim",
        intro=(
            "Bound at once if a slot is free and no other claim waits for it; otherwise queued, "
            "with the reason."
        ),
        fields=[
            Field(
                "pool",
                "Pool",
                "select",
                first,
                options=[(p.name, p.name) for p in pools],
                is_needed=True,
            ),
            *(
                [
                    Field(
                        "kind",
                        "Kind",
                        "select",
                        "",
                        options=[(k, k) for k in kinds(spec_of(pool).layout)],
                    )
                ]
                if pool and needs_kind(pool)
                else []
            ),
            OWNER,
            Field("size", "Number of slots", "number", "1"),
            Field("selector", "Member labels", help="For example: zone=eu-1, size=large"),
            HOLD_FOR,
        ],
        reason="none",
        nothing="" if pools else "You may not claim in any pool.",
    )

    def perform(given: ConfirmInput) -> Done:
        claim = create_claim(request_of(request, {"pool": given.values["pool"]}, given))
        outcome = f"is bound to {describe_slots(claim)}"
        if claim.is_waiting:
            outcome = f"waits: {claim.wait.text if claim.wait else 'queued'}"
        return Done(f"Claim {claim.id} {outcome}.", reverse("claim", args=[claim.id]))

    return confirm(request, question, perform, "claims")


def needs_kind(pool: Pool) -> bool:
    return default_kind(spec_of(pool).layout) is None


def request_of(request: PageRequest, body: dict[str, object], given: ConfirmInput) -> ClaimRequest:
    """Turn the form into the body of an API call and parse it: form and API report the same
    errors.
    """
    for name in ("kind", "owner", "hold_for"):
        if given.values.get(name):
            body[name] = given.values[name]
    if size := given.values.get("size", ""):
        body["size"] = int(size) if size.isdecimal() and len(size) < 10 else size
    if selector := given.values.get("selector"):
        try:
            body["selector"] = read_labels(selector)
        except Invalid as error:
            raise Invalid(
                fields=[FieldError("selector", e.message, e.way_out) for e in error.fields]
            )
    wanted = parse_claim(body, requested_by=request.identity.requester)
    require_to_create(request.identity, wanted)
    return wanted


@signed_in
def claim_slot(request: PageRequest, slot_id: int) -> HttpResponse:
    slot = Slot.objects.select_related("pool", "member").filter(pk=slot_id).first()
    if slot is None or not request.identity.may("read", slot.pool_id):
        raise NotFound(f"Slot {slot_id} does not exist.", way_out="Look at the slots of the pool.")
    require(request.identity, "claim_slot", slot.pool)
    place = f"{slot.member.name} · {slot.lane} {slot.number}"
    question = Question(
        title=f"Claim {place}",
        verb="Claim this slot",
        intro=(
            "Claims exactly this slot. The claim never waits: if the slot is taken meanwhile or "
            "other claims wait for it, the claim is refused."
        ),
        fields=[OWNER, HOLD_FOR],
        reason="none",
        nothing="" if slot.state == "idle" and slot.is_open else "The slot is no longer free.",
    )

    def perform(given: ConfirmInput) -> Done:
        claim = create_claim(request_of(request, {"slot": slot_id}, given))
        return Done(f"Claim {claim.id} holds {place}.")

    return confirm(request, question, perform, "claims")
