"""The rules that every row of a claim satisfies by itself."""

from claims.states import CLAIM, HOLDING
from project.kernel.db.row_constraint import Column, RowConstraint, one_of

CLAIM_CONSTRAINT = RowConstraint(
    name="claim_sound",
    table="claims_claim",
    columns={
        "state": Column("varchar"),
        "outcome": Column("varchar"),
        "size": Column("integer"),
        "generation": Column("bigint"),
        "named_generation": Column("bigint"),
        "step": Column("varchar"),
        "approved_plan_id": Column("bigint", field="approved_plan"),
        "expires_at": Column("timestamptz"),
    },
    rules={
        "claim_state_known": one_of("state", CLAIM.states),
        "claim_size": "size > 0",
        "claim_outcome": "(state = 'ended') = (outcome <> '')",
        "claim_deadline": "expires_at IS NOT NULL OR state <> 'reserved' AND state <> 'parked'",
        "claim_named": f"named_generation = generation OR {one_of('state', HOLDING)}",
        "claim_apply_approved": "step <> 'apply' OR approved_plan_id IS NOT NULL",
    },
)
