"""State machines of pools and members."""

from project.kernel.db.state_machine import StateMachine, edges

POOL = StateMachine(
    name="pool",
    table="pools_pool",
    states={
        "pending": "its provider has not answered yet",
        "active": "hands out slots",
        "deleting": "hands out no slots; ends with its last claim and member",
        "gone": "kept for the record; its name is free again",
    },
    initial="pending",
    insert_states=("active",),
    edges=edges(
        [
            "pending > active: service | the provider answered",
            "pending, active > deleting: service | no live claim, or its claims end with it",
            "deleting > gone: finalize | the last claim and member have gone",
        ]
    ),
)

MEMBER = StateMachine(
    name="member",
    table="pools_member",
    states={
        "creating": "ordered, not yet reported",
        "ready": "present; takes claims unless cordoned",
        "offline": "silent; takes no claims, keeps those that it has",
        "deleting": "closed and empty, being removed",
        "gone": "removed, or reported as gone",
    },
    initial="creating",
    insert_states=("ready",),  # declared members are there already
    edges=edges(
        [
            "creating > ready: scale, watch | created and seen; its slots open with it",
            "ready > offline: finalize, watch | silent for too long, or not ready",
            "offline > ready: heartbeat, watch | heartbeat received",
            "ready, offline > creating: finalize | restart, a new incarnation",
            (
                "creating, ready, offline > deleting: scale, operator | closed, then found empty, "
                "in one transaction"
            ),
            (
                "creating, ready, offline, deleting > gone: settle, watch | the provider "
                "reports its absence; its claims are lost first"
            ),
        ]
    ),
)
MACHINES = (POOL, MEMBER)
