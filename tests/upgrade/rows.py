"""Rows of the kinds that users make: the sample, claims in most states, a person, a closed
member, an operation.
"""

from django.contrib.auth.models import User

from claims.allocation.bulk import create_claims
from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.lifecycle.cancel import cancel_claim
from claims.lifecycle.release import release_claims
from pools.models import Member
from project.kernel.outbox.operations import add_operation
from project.sample.services import load_sample
from slots.members.services import cordon_member


def fill() -> None:
    load_sample()
    User.objects.create_user("ana", password="only in a snapshot")
    made = create_claims(
        [
            ClaimRequest(pools=("env-test",), owner=f"branch:{i}", requested_by="ana", key=f"k{i}")
            for i in range(30)
        ]
    )
    bound = [claim for claim in made if isinstance(claim, ClaimView) and claim.state == "bound"]
    waiting = [claim for claim in made if isinstance(claim, ClaimView) and claim.state == "waiting"]
    cancel_claim(claim_id=waiting[-1].id, reason="not needed any more")
    release_claims([(claim.id, claim.generation) for claim in bound[:5]])
    for size in (1, 4):
        create_claim(
            ClaimRequest(
                pools=("device-ports",),
                kind="tcp",
                size=size,
                contiguous=size > 1,
                owner="service:turn",
                requested_by="ana",
            )
        )
    create_claim(ClaimRequest(pools=("not-there-yet",), owner="user:ben", requested_by="ben"))
    member = Member.objects.filter(pool__name="env-test").order_by("pk").first()
    assert member is not None
    cordon_member(member_id=member.pk, reason="a new kernel")
    add_operation(lane=f"member:{member.pk}", kind="sync", member_id=member.pk)
