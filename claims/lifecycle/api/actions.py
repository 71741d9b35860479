"""What is done to a claim: by its holder, who names the generation it was told, or by a person,
with a reason.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from django.http import HttpResponse

from claims.allocation.api import schemas
from claims.allocation.api.claims import TAG, show_claim
from claims.allocation.api.permissions import check_priority, require_on_claim
from claims.allocation.claim_view import ClaimView
from claims.allocation.requests.claim_request import HIGHEST_PRIORITY, LOWEST_PRIORITY, MOST_SLOTS
from claims.lifecycle.cancel import cancel_claim, force_release
from claims.lifecycle.release import release_claim
from claims.lifecycle.update import (
    acknowledge_claim,
    prioritise_claim,
    record_claim_heartbeat,
    resize_claim,
)
from pools.config.parsing import Faults, read_integer, read_mapping, read_text
from pools.http.endpoint import describe
from pools.http.fast_view import FastRequest, LeanEndpoint, answer
from project.kernel.validation import LONGEST_REASON

BIGINT = (1 << 63) - 1


class Body:
    """Reads what the body of an action says, keeping every fault."""

    def __init__(self, call: FastRequest, *known: str, required: tuple[str, ...] = ()) -> None:
        self.faults = Faults()
        body = call.read()
        self.given = read_mapping(
            body, "", known, self.faults, required=required if isinstance(body, dict) else ()
        )

    def number(self, name: str, low: int = 1, high: int = BIGINT) -> int:
        return read_integer(self.given, "", name, self.faults, low, high, low)

    def text(self, name: str, longest: int = LONGEST_REASON) -> str:
        return read_text(self.given, "", name, self.faults, longest)

    def check(self) -> None:
        self.faults.raise_if_any()


class ClaimAction(LeanEndpoint):
    """One's own claims as a claimant, those of others as an operator."""

    action: ClassVar[str] = ""  # this one, whoever has asked for the claim

    def act(self, call: FastRequest, claim_id: int, do: Callable[[Any], ClaimView]) -> HttpResponse:
        return answer(show_claim(do(require_on_claim(call.identity, claim_id, self.action))))


class ClaimRelease(ClaimAction):
    @describe(
        "Release",
        {200: schemas.ClaimAnswer},
        body=schemas.as_json(schemas.RELEASE_BODY),
        problems=(409,),
        name="release_claim",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Its holder lets go of all its slots. Said twice, it is done once; an old generation
        changes nothing and gets 409.
        """
        body = Body(call, "generation", "reason", required=("generation",))
        generation, reason = body.number("generation", 0), body.text("reason")
        body.check()
        return self.act(
            call,
            claim_id,
            lambda _: release_claim(claim_id=claim_id, generation=generation, reason=reason),
        )


class ClaimCancel(ClaimAction):
    @describe(
        "Cancel",
        {200: schemas.ClaimAnswer},
        body=schemas.as_json(schemas.REASON_BODY),
        problems=(409,),
        name="cancel_claim",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Calls off one that holds nothing yet. One that was bound in the meantime stays so,
        and gets 409.
        """
        body = Body(call, "reason")
        reason = body.text("reason")
        body.check()
        return self.act(call, claim_id, lambda _: cancel_claim(claim_id=claim_id, reason=reason))


class ClaimForceRelease(ClaimAction):
    action = "force_release"

    @describe(
        "Force release",
        {200: schemas.ClaimAnswer},
        body=schemas.as_json(schemas.NEEDED_REASON_BODY),
        problems=(409,),
        name="force_release_claim",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Takes its slots from it, whoever holds it, or calls it off while it waits. For
        operators, with a reason.
        """
        body = Body(call, "reason", required=("reason",))
        reason = body.text("reason")
        body.check()
        return self.act(call, claim_id, lambda _: force_release(claim_id=claim_id, reason=reason))


class ClaimPrioritise(ClaimAction):
    @describe(
        "Prioritise",
        {200: schemas.ClaimAnswer},
        body=schemas.as_json(schemas.PRIORITY_BODY),
        problems=(409, 422),
        name="prioritise_claim",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Another place in line. Claimants go up to the pool's limit."""
        body = Body(call, "priority", "reason", required=("priority",))
        priority, reason = (
            body.number("priority", LOWEST_PRIORITY, HIGHEST_PRIORITY),
            body.text("reason"),
        )
        body.check()

        def prioritise(row: Any) -> ClaimView:
            check_priority(call.identity, priority, row.pools)
            return prioritise_claim(claim_id=claim_id, priority=priority, reason=reason)

        return self.act(call, claim_id, prioritise)


class ClaimResize(ClaimAction):
    @describe(
        "Shrink",
        {200: schemas.ClaimAnswer},
        body=schemas.as_json(schemas.RESIZE_BODY),
        problems=(409, 422),
        name="resize_claim",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Fewer slots; the last ones go. What is left is a new hand-over with a new generation."""
        body = Body(call, "generation", "size", required=("generation", "size"))
        generation, size = body.number("generation", 0), body.number("size", 1, MOST_SLOTS)
        body.check()
        return self.act(
            call,
            claim_id,
            lambda _: resize_claim(claim_id=claim_id, generation=generation, size=size),
        )


class ClaimAcknowledge(ClaimAction):
    @describe(
        "Acknowledge",
        {200: schemas.ClaimAnswer},
        body=schemas.as_json(schemas.GENERATION_BODY),
        problems=(409,),
        name="acknowledge_claim",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Its holder has heard that it is bound. In time, or it ends as unacknowledged."""
        body = Body(call, "generation", required=("generation",))
        generation = body.number("generation", 0)
        body.check()
        return self.act(
            call, claim_id, lambda _: acknowledge_claim(claim_id=claim_id, generation=generation)
        )


class ClaimKeep(ClaimAction):
    @describe(
        "Keep alive",
        {200: schemas.ClaimAnswer},
        body=schemas.as_json(schemas.GENERATION_BODY),
        problems=(409,),
        name="keep_claim",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """A heartbeat of its holder, where it was asked for."""
        body = Body(call, "generation", required=("generation",))
        generation = body.number("generation", 0)
        body.check()
        return self.act(
            call,
            claim_id,
            lambda _: record_claim_heartbeat(claim_id=claim_id, generation=generation),
        )
