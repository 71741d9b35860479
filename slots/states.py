"""The state machine of slots. The row of a slot is the hold."""

from project.kernel.db.state_machine import StateMachine, edges

SLOT = StateMachine(
    name="slot",
    table="slots_slot",
    states={
        "idle": "free; can be bound if open",
        "held": "a claim holds it",
        "reserved": "a claim holds it and waits for approval",
        "draining": "the claim has left, the slot is not clean yet",
        "retired": "not offered: the member was lost, or the number was withdrawn",
    },
    initial="idle",
    insert_states=("retired",),
    edges=edges(
        [
            "idle > held: allocate, API, operator | bind; only if open",
            "idle > reserved: allocate | a parked claim gets a slot again; only if open",
            "held > reserved: agent | the plan is in",
            "reserved > held: approver | approved in time",
            "held, reserved > idle: agent, finalize, service | the outside is clean",
            "held, reserved > draining: service, finalize | the outside is not clean yet",
            "draining > idle: settle | confirmed gone",
            "draining > held: allocate, operator | only by the claim it drains for",
            (
                "idle, held, reserved, draining > retired: finalize, watch | member lost or "
                "number withdrawn"
            ),
            "retired > idle: finalize, watch | offered again, closed",
        ]
    ),
)
MACHINES = (SLOT,)
OCCUPIED = ("held", "reserved", "draining")
HOLDING = ("held", "reserved")
