"""A claim whose member was lost: what becomes of it is said by policy, one claim in one transaction."""

import json
from functools import partial

from django.db import transaction

from claims.policy import fate_of_lost
from claims.services.releasing import Ending, give_back, lock_claim
from claims.statements import CLAIMS, repeat
from project.kernel.actor import current_actor
from project.kernel.events import record
from project.kernel.hints import hint

CHUNK = 500


def lose_claim(*, claim_id: int, member_id: int, reason: str = "") -> bool:
    """It lets go of all its slots; those on the lost member retire. False: it holds nothing there any more."""
    return repeat(partial(_lose, claim_id, member_id, reason))


def _lose(claim_id: int, member_id: int, reason: str) -> bool:
    with transaction.atomic():
        # The workspace before the claim, in the order of locks; which one it is never changes.
        workspace = CLAIMS.one("lock_workspace_of", claim=claim_id)
        claim = lock_claim(claim_id)
        if claim.state not in ("bound", "reserved") or not CLAIMS.value("holds_on", claim=claim_id, member=member_id):
            return False
        fate = fate_of_lost(step=claim.step, is_retried=bool(json.loads(claim.spec).get("retry")))
        to = "blocked" if fate.to == "waiting" and workspace is not None and workspace.is_locked else fate.to
        note = f"{fate.reason}: {reason}" if reason else fate.reason
        give_back(claim_id, claim.generation, Ending(to=to, outcome=fate.outcome, verb="lose", reason=note, lost_member=member_id))
        if claim.step == "apply" and workspace is not None and not workspace.is_locked:
            # Nobody knows how far it came: nothing of the workspace starts until a person has looked.
            why = f"claim {claim_id} was lost while it applied"
            CLAIMS.rows("set_workspace_lock", workspace=workspace.id, by=current_actor(), reason=why)
            while len(CLAIMS.rows("block_waiting", CHUNK, workspace=workspace.id, actor=current_actor(), reason=why)) == CHUNK:
                pass
            record("lock", reason=why, data={"workspace": workspace.name})
            hint("claims")
        if fate.to == "waiting":
            hint("claims")
    return True
