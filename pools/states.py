"""What a pool and a member may be, and how they get there."""

from project.kernel.db.state_machine import Machine, edges

POOL = Machine(
    name="pool",
    table="pools_pool",
    states={
        "pending": "its provider has not been looked at yet",
        "active": "hands out slots",
        "deleting": "hands out nothing, goes with its last claim and member",
        "gone": "kept for the record; its name may be used again",
    },
    initial="pending",
    born=("active",),
    edges=edges(
        [
            "pending > active: service | the provider answered",
            "pending, active > deleting: service | no live claim, or they are to go with it",
            "deleting > gone: finalize | the last claim and member have gone",
        ]
    ),
)

MEMBER = Machine(
    name="member",
    table="pools_member",
    states={
        "creating": "wished for, not seen yet",
        "ready": "there; takes claims unless cordoned",
        "offline": "silent: takes nothing, keeps its claims",
        "deleting": "closed and empty, being removed",
        "gone": "removed, or known to be gone",
    },
    initial="creating",
    born=("ready",),  # declared members are there already
    edges=edges(
        [
            "creating > ready: scale, watch | created and seen; its slots open with it",
            "ready > offline: finalize, watch | silent for too long, or not ready",
            "offline > ready: heartbeat, watch | heard again",
            "ready, offline > creating: finalize | restart, a new incarnation",
            (
                "creating, ready, offline > deleting: scale, operator | closed, then found empty, "
                "in one transaction"
            ),
            (
                "creating, ready, offline, deleting > gone: settle, watch | the provider says so; "
                "its claims are lost first"
            ),
        ]
    ),
)
MACHINES = (POOL, MEMBER)
