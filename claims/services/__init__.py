"""What can be done with claims. The HTML button, the REST call, the admin's action and the command all end in one of these.

Each is one short transaction that raises kernel errors, asks for no permission (its caller has) and wakes whoever waits after the commit.
"""

from claims.services.bulk import create_claims
from claims.services.creating import claim_named_slot, create_claim
from claims.services.deleting import delete_pool, finish_deleting
from claims.services.losing import lose_claim
from claims.services.releasing import cancel_claim, force_release, release_claim, release_claims
from claims.services.steering import acknowledge_claim, keep_claim, prioritise_claim, resize_claim
from claims.services.workspaces import free_workspace, lock_workspace, unlock_workspace

__all__ = [
    "acknowledge_claim",
    "cancel_claim",
    "claim_named_slot",
    "create_claim",
    "create_claims",
    "delete_pool",
    "finish_deleting",
    "force_release",
    "free_workspace",
    "keep_claim",
    "lock_workspace",
    "lose_claim",
    "prioritise_claim",
    "release_claim",
    "release_claims",
    "resize_claim",
    "unlock_workspace",
]
