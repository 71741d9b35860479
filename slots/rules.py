"""Constraints on a single row of a slot."""

from project.kernel.db.row_constraint import Column, RowConstraint, one_of
from slots.states import HOLDING, SLOT

SLOT_CONSTRAINT = RowConstraint(
    name="slot_sound",
    table="slots_slot",
    columns={
        "state": Column("varchar"),
        "claim_id": Column("bigint"),
        "ordinal": Column("integer"),
        "drain_until": Column("timestamptz"),
    },
    rules={
        "slot_state_known": one_of("state", SLOT.states),
        "slot_holder": f"CASE WHEN {one_of('state', HOLDING)} THEN claim_id IS NOT NULL "
        "AND ordinal IS NOT NULL AND ordinal >= 0 ELSE claim_id IS NULL "
        "AND ordinal IS NULL END",
        "slot_drain": "state <> 'draining' OR drain_until IS NOT NULL",
    },
)
