"""REST actions on one claim: by its holder, with the generation, or by a user, with a reason."""

from collections.abc import Callable
from typing import ClassVar

from django.http import HttpResponse

from claims.allocation.api import schemas
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
from pools.http.endpoint import describe_changes
from pools.http.fast_view import FastRequest, LeanEndpoint, answer
from project.kernel.http.api_base import BIGINT
from project.kernel.validation import LONGEST_REASON

describe_action = describe_changes(schemas.ClaimAnswer, TAG)


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


def read_reason(call: FastRequest, *, is_needed: bool = True) -> str:
    """The reason from a body without other fields."""
    body = Body(call, "reason", required=("reason",) if is_needed else ())
    reason = body.text("reason")
    body.check()
    return reason


class ClaimAction(LeanEndpoint):
    """Claimants act on their own claims, operators on all."""

    action: ClassVar[str] = ""  # if set, the permission needed for any claim, own or not

    def act(
        self, call: FastRequest, claim_id: int, do: Callable[..., ClaimView], **given: object
    ) -> HttpResponse:
        require_on_claim(call.identity, claim_id, self.action)
        return answer(do(claim_id=claim_id, **given).as_dict())


def read_generation(call: FastRequest) -> int:
    """The generation from a body without other fields."""
    body = Body(call, "generation", required=("generation",))
    generation = body.number("generation", 0)
    body.check()
    return generation


class ClaimRelease(ClaimAction):
    @describe_action("Release", schemas.RELEASE_BODY, "release_claim")
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Releases all slots of the claim on behalf of its holder. A repeated call returns the
        same answer; an old generation is rejected with 409.
        """
        body = Body(call, "generation", "reason", required=("generation",))
        generation, reason = body.number("generation", 0), body.text("reason")
        body.check()
        return self.act(call, claim_id, release_claim, generation=generation, reason=reason)


class ClaimCancel(ClaimAction):
    @describe_action("Cancel", schemas.REASON_BODY, "cancel_claim")
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Ends a claim that waits, or whose task an agent runs. A claim without a task that was
        bound meanwhile is not cancelled; 409 names its generation.
        """
        reason = read_reason(call, is_needed=False)
        return self.act(call, claim_id, cancel_claim, reason=reason)


class ClaimForceRelease(ClaimAction):
    action = "force_release"

    @describe_action("Force release", schemas.NEEDED_REASON_BODY, "force_release_claim")
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Ends any claim: releases its slots, or removes it from the queue. For operators, with a
        reason. Work that runs in the slots of a claim without a task is not stopped.
        """
        return self.act(call, claim_id, force_release, reason=read_reason(call))


class ClaimPrioritise(ClaimAction):
    @describe_action("Prioritise", schemas.PRIORITY_BODY, "prioritise_claim", 422)
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Changes the position of a waiting claim. Claimants may go up to the pool's
        `priority.max`.
        """
        body = Body(call, "priority", "reason", required=("priority",))
        priority = body.number("priority", LOWEST_PRIORITY, HIGHEST_PRIORITY)
        reason = body.text("reason")
        body.check()
        access = require_on_claim(call.identity, claim_id)
        check_priority(call.identity, priority, access.pools)
        changed = prioritise_claim(claim_id=claim_id, priority=priority, reason=reason)
        return answer(changed.as_dict())


class ClaimResize(ClaimAction):
    @describe_action("Shrink", schemas.RESIZE_BODY, "resize_claim", 422)
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Reduces the number of slots; the last slots are released. The remaining slots get a new
        generation.
        """
        body = Body(call, "generation", "size", required=("generation", "size"))
        generation, size = body.number("generation", 0), body.number("size", 1, MOST_SLOTS)
        body.check()
        return self.act(call, claim_id, resize_claim, generation=generation, size=size)


class ClaimAcknowledge(ClaimAction):
    @describe_action("Acknowledge", schemas.GENERATION_BODY, "acknowledge_claim")
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Records that the holder has accepted the claim. A claim that is not acknowledged in
        time ends with the outcome `unacknowledged`.
        """
        return self.act(call, claim_id, acknowledge_claim, generation=read_generation(call))


class ClaimKeep(ClaimAction):
    @describe_action("Keep alive", schemas.GENERATION_BODY, "keep_claim")
    def post(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Records a heartbeat of the holder. Needed only if the claim was created with
        `heartbeat`.
        """
        return self.act(call, claim_id, record_claim_heartbeat, generation=read_generation(call))
