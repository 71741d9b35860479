"""What can be done with claims. The HTML button, the REST call, the admin's action and the command all end in one of these.

Each is one short transaction that raises kernel errors, asks for no permission (its caller has) and wakes whoever waits after the commit.
"""

from claims.services.bulk import create_claims
from claims.services.cancelling import cancel_claim, force_release
from claims.services.company import Asked, ask_at_once
from claims.services.creating import claim_named_slot, create_at_once, create_claim
from claims.services.deciding import (
    approve_plan,
    decide_many,
    extend_reservation,
    move_reserved,
    plan_again,
    reject_plan,
    settle_lost_apply,
)
from claims.services.deleting import delete_pool, finish_deleting
from claims.services.losing import lose_claim
from claims.services.releasing import release_claim, release_claims
from claims.services.sharing import share_workspace, unshare_workspace
from claims.services.steering import acknowledge_claim, keep_claim, prioritise_claim, resize_claim
from claims.services.tasks import confirm_stopped, lose_runs, start_run, take_result
from claims.services.workspaces import add_workspace, free_workspace, lock_workspace, unlock_workspace

__all__ = [
    "Asked",
    "acknowledge_claim",
    "add_workspace",
    "approve_plan",
    "ask_at_once",
    "cancel_claim",
    "claim_named_slot",
    "confirm_stopped",
    "create_at_once",
    "create_claim",
    "create_claims",
    "decide_many",
    "delete_pool",
    "extend_reservation",
    "finish_deleting",
    "force_release",
    "free_workspace",
    "keep_claim",
    "lock_workspace",
    "lose_claim",
    "lose_runs",
    "move_reserved",
    "plan_again",
    "prioritise_claim",
    "reject_plan",
    "release_claim",
    "release_claims",
    "resize_claim",
    "settle_lost_apply",
    "share_workspace",
    "start_run",
    "take_result",
    "unlock_workspace",
    "unshare_workspace",
]
