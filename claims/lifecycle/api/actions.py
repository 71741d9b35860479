"""REST actions on one claim: by its holder, with the generation, or by a user, with a reason."""

from collections.abc import Callable
from typing import ClassVar

from django.http import HttpResponse

from claims.allocation.api import api_sql, schemas
from claims.allocation.api.claims import TAG
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
    """Reads the fields of an action's body and collects all faults."""

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
    """Claimants act on their own claims, operators on all."""

    action: ClassVar[str] = ""  # if set, the permission needed for any claim, own or not

    def act(
        self,
        call: FastRequest,
        claim_id: int,
        do: Callable[[api_sql.ClaimsAccessRow], ClaimView],
    ) -> HttpResponse:
        return answer(do(require_on_claim(call.identity, claim_id, self.action)).as_dict())


class ClaimRelease(ClaimAction):
    @describe(
        "Release",
        {200: schemas.ClaimAnswer},
        body=schemas.RELEASE_BODY,
        problems=(409,),
        name="release_claim",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Releases all slots of the claim on behalf of its holder. A repeated call returns the
        same answer; an old generation is rejected with 409.
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
        body=schemas.REASON_BODY,
        problems=(409,),
        name="cancel_claim",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Ends a claim that waits, or whose task an agent runs. Another claim that was bound
        meanwhile stays bound: 409 names its generation.
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
        body=schemas.NEEDED_REASON_BODY,
        problems=(409,),
        name="force_release_claim",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Ends any claim: releases its slots, or removes it from the queue. For operators, with a
        reason. Work that runs in the slots of a claim without a task is not stopped.
        """
        body = Body(call, "reason", required=("reason",))
        reason = body.text("reason")
        body.check()
        return self.act(call, claim_id, lambda _: force_release(claim_id=claim_id, reason=reason))


class ClaimPrioritise(ClaimAction):
    @describe(
        "Prioritise",
        {200: schemas.ClaimAnswer},
        body=schemas.PRIORITY_BODY,
        problems=(409, 422),
        name="prioritise_claim",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Changes the position of a waiting claim. Claimants may go up to the pool's
        `priority.max`.
        """
        body = Body(call, "priority", "reason", required=("priority",))
        priority = body.number("priority", LOWEST_PRIORITY, HIGHEST_PRIORITY)
        reason = body.text("reason")
        body.check()

        def prioritise(row: api_sql.ClaimsAccessRow) -> ClaimView:
            check_priority(call.identity, priority, row.pools)
            return prioritise_claim(claim_id=claim_id, priority=priority, reason=reason)

        return self.act(call, claim_id, prioritise)


class ClaimResize(ClaimAction):
    @describe(
        "Shrink",
        {200: schemas.ClaimAnswer},
        body=schemas.RESIZE_BODY,
        problems=(409, 422),
        name="resize_claim",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Reduces the number of slots; the last slots are released. The remaining slots get a new
        generation.
        """
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
        body=schemas.GENERATION_BODY,
        problems=(409,),
        name="acknowledge_claim",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Records that the holder has accepted the claim. A claim that is not acknowledged in
        time ends with the outcome `unacknowledged`.
        """
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
        body=schemas.GENERATION_BODY,
        problems=(409,),
        name="keep_claim",
        tag=TAG,
    )
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Records a heartbeat of the holder. Needed only if the claim was created with
        `heartbeat`.
        """
        body = Body(call, "generation", required=("generation",))
        generation = body.number("generation", 0)
        body.check()
        return self.act(
            call,
            claim_id,
            lambda _: record_claim_heartbeat(claim_id=claim_id, generation=generation),
        )
