"""The states and outcomes of claims, and the states of claim sets."""

from project.kernel.db.state_machine import StateMachine, edges

CLAIM = StateMachine(
    name="claim",
    table="claims_claim",
    states={
        "waiting": "waits in its queue",
        "blocked": "not in a queue: a predecessor, a lock or a back-off comes first",
        "bound": "holds its slots",
        "reserved": "holds its slots and waits for approval",
        "parked": "waits for approval without a slot",
        "ended": "over; the outcome says how",
    },
    initial="waiting",
    insert_states=("blocked", "bound"),
    edges=edges(
        [
            "waiting > blocked: finalize, operator | serial predecessor, workspace lock, back-off",
            "blocked > waiting: finalize, operator | the block has ended",
            "waiting > bound: allocate, API",
            (
                "bound > reserved, parked: agent | the plan is in; the pool holds the slot "
                "or releases it"
            ),
            "reserved > parked: finalize | held too long, or its member was lost",
            (
                "reserved > bound: approver, operator | apply in the slot that waited, or "
                "plan again there"
            ),
            "parked > waiting: approver, operator | head of the queue, or its place to plan again",
            "parked > reserved: allocate | a slot is reserved again; its deadline stays",
            (
                "bound > waiting, blocked: finalize, agent | lost or failed, with a retry; "
                "never an apply that has begun"
            ),
            (
                "waiting, blocked, bound, reserved, parked > ended: holder, finalize, operator | "
                "the same statement releases its slots"
            ),
        ]
    ),
)
CLAIM_SET = StateMachine(
    name="claim_set",
    table="claims_claimset",
    states={"active": "keeps its number of claims", "deleting": "releases its claims, then ends"},
    initial="active",
    edges=edges(["active > deleting: service"]),
)
MACHINES = (CLAIM, CLAIM_SET)
LIVE = ("waiting", "blocked", "bound", "reserved", "parked")
HOLDING = ("bound", "reserved")
PENDING = ("reserved", "parked")  # the plan waits for an approval
SERIAL_LIVE = ("waiting", "bound", "reserved", "parked")
OUTCOMES = {
    "released": "its holder released it",
    "applied": "applied",
    "planned": "the plan has no changes, or only a plan was requested",
    "failed": "failed",
    "lost": "its member was lost",
    "expired": "its deadline passed",
    "rejected": "an approver rejected the plan",
    "cancelled": "cancelled before it was bound, or forced",
    "unacknowledged": "its holder did not acknowledge it in time",
    "silent": "its holder stopped sending heartbeats",
}
