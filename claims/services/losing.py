"""A claim whose member was lost: what becomes of it is said by policy, one claim in one transaction."""

from functools import partial

from django.db import transaction

from claims.services.holds import look_at_hold, lose_hold
from claims.statements import CLAIMS, repeat


def lose_claim(*, claim_id: int, member_id: int, reason: str = "") -> bool:
    """It lets go of all its slots; those on the lost member retire. False: it holds nothing there any more."""
    return repeat(partial(_lose, claim_id, member_id, reason))


def _lose(claim_id: int, member_id: int, reason: str) -> bool:
    with transaction.atomic():
        held = look_at_hold(claim_id)
        if not held.holds or not CLAIMS.value("holds_on", claim=claim_id, member=member_id):
            return False
        lose_hold(held, what="its member was lost", lost_member=member_id, note=reason)
    return True
