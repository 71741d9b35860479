"""What a claim may be, how it may end, and what a claim set may be."""

from project.kernel.db.state_machine import Machine, edges

CLAIM = Machine(
    name="claim",
    table="claims_claim",
    states={
        "waiting": "stands in its line",
        "blocked": "not in line: a predecessor, a lock or a back-off comes first",
        "bound": "holds its slots",
        "reserved": "holds its slots and waits for a person",
        "parked": "waits for a person without a slot",
        "ended": "over; its outcome says how",
    },
    initial="waiting",
    born=("blocked", "bound"),
    edges=edges(
        [
            "waiting > blocked: finalize, operator | serial predecessor, workspace lock, back-off",
            "blocked > waiting: finalize, operator | nothing blocks it any more",
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
            "parked > waiting: approver, operator | goes first; or plans again at its own place",
            "parked > reserved: allocate | a slot is reserved again; its deadline stays",
            (
                "bound > waiting, blocked: finalize, agent | lost or failed, to be tried again; "
                "never an apply that has begun"
            ),
            (
                "waiting, blocked, bound, reserved, parked > ended: holder, finalize, operator | "
                "its slots are let go in the same statement"
            ),
        ]
    ),
)
CLAIM_SET = Machine(
    name="claim_set",
    table="claims_claimset",
    states={"active": "keeps its number of claims", "deleting": "lets them go, then goes itself"},
    initial="active",
    edges=edges(["active > deleting: service"]),
)
MACHINES = (CLAIM, CLAIM_SET)
LIVE = ("waiting", "blocked", "bound", "reserved", "parked")
HOLDING = ("bound", "reserved")
PENDING = ("reserved", "parked")  # the plan waits for an approval
SERIAL_LIVE = ("waiting", "bound", "reserved", "parked")
OUTCOMES = {
    "released": "its holder let it go",
    "applied": "applied",
    "planned": "nothing to apply, or only a plan was asked for",
    "failed": "failed",
    "lost": "its member was lost",
    "expired": "its deadline passed",
    "rejected": "a person said no",
    "cancelled": "called off before it was served, or forced",
    "unacknowledged": "nobody answered for it in time",
    "silent": "its holder was not heard of any more",
}
