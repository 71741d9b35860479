"""The texts that say why a claim waits and what would change it."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from claims.allocation.requests.policy import Refusal, SlotDemand
from claims.allocation.wait_messages import SlotCounts, WaitContext, describe_blocked, describe_wait

FULL = WaitContext(
    pool="tf-prod", code="full", lanes=("any",), places=SlotCounts(total=11, held=3, reserved=8),
    members=12, max_members=12, each=1, holders=11,
)  # fmt: skip
AT_TWO = datetime(2026, 3, 12, 14, 0, tzinfo=UTC)

SAYINGS: list[tuple[WaitContext, str, list[str]]] = [
    (WaitContext("gpu", "pool_not_found"), "Pool gpu does not exist", ["Create gpu"]),
    (
        WaitContext("lab", "pool_paused", paused_until=AT_TWO, pause_reason="firmware"),
        "Pool lab is paused until 2026-03-12 14:00 UTC: firmware",
        ["The pool is resumed, at 2026-03-12 14:00 UTC"],
    ),
    (WaitContext("lab", "no_member"), "Pool lab has no member", ["A member is added to lab"]),
    (
        WaitContext("cn", "no_member_with_labels", wanted=SlotDemand(selector={"gpu": "t4"})),
        "No member of cn has gpu=t4",
        ["A member with gpu=t4 is added"],
    ),
    (
        WaitContext("lab", "no_member_willing", cordoned=("a",), offline=("b",)),
        "Every member of lab is offline, cordoned or leaving",
        ["a is uncordoned", "b answers"],
    ),
    (
        FULL,
        "All 11 any slots are taken: 3 held, 8 reserved",
        [
            "The maximum of members goes from 12 to 13",
            "One of 11 claims ends",
            "One of 8 approvals is decided",
        ],
    ),
    (
        replace(FULL, ahead=1),
        "All 11 any slots are taken: 3 held, 8 reserved, and 1 claim is ahead",
        [
            "The maximum of members goes from 12 to 14",
            "2 of 11 claims end",
            "One of 8 approvals is decided",
        ],
    ),
    (
        WaitContext(
            "env",
            "full",
            lanes=("slot",),
            places=SlotCounts(total=1, held=1),
            members=1,
            max_members=3,
            holders=1,
            one_holder=88,
        ),
        "The only slot is taken: 1 held",
        ["One more member", "Claim 88 ends"],
    ),
    (
        WaitContext(
            "env",
            "full",
            lanes=("slot",),
            places=SlotCounts(total=4, held=2, closed=1, offline=1),
            members=4,
            max_members=4,
            holders=2,
            cordoned=("c",),
            offline=("d",),
        ),
        "All 4 slots are taken: 2 held, 1 offline, 1 closed",
        [
            "c is uncordoned",
            "d answers",
            "The maximum of members goes from 4 to 5",
            "One of 2 claims ends",
        ],
    ),
    (
        WaitContext(
            "game",
            "not_contiguous",
            lanes=("port",),
            wanted=SlotDemand(16, contiguous=True),
            longest=4,
            longest_on="game-us-2",
            places=SlotCounts(total=200, open=7, held=193),
            members=4,
            max_members=4,
            each=50,
            holders=193,
        ),
        "Largest free run is 4 of 16 (game-us-2)",
        ["The maximum of members goes from 4 to 5", "9 of 193 claims end"],
    ),
    (
        replace(FULL, undecided=(88, 89, 90, 91), kept=11_100.0),
        "All 11 any slots are taken: 3 held, 8 reserved (the longest for 3 h 5 min)",
        [
            "The maximum of members goes from 12 to 13",
            "One of 11 claims ends",
            "One of 8 approvals is decided",
        ],
    ),
    (
        replace(
            FULL,
            places=SlotCounts(total=2, held=1, reserved=1),
            undecided=(88,),
            kept=600.0,
            holders=2,
        ),
        "All 2 any slots are taken: 1 held, 1 reserved (for 10 min)",
        [
            "The maximum of members goes from 12 to 13",
            "One of 2 claims ends",
            "Claim 88 is approved or rejected",
        ],
    ),
    (
        replace(
            FULL,
            places=SlotCounts(total=3, held=1, reserved=2),
            undecided=(88, 97),
            kept=6.0,
            holders=3,
        ),
        "All 3 any slots are taken: 1 held, 2 reserved",
        [
            "The maximum of members goes from 12 to 13",
            "One of 3 claims ends",
            "Claim 88 or 97 is approved or rejected",
        ],
    ),
    (
        WaitContext("env", "next", places=SlotCounts(total=2, open=1), strict=88),
        "Claim 88 goes first, and this claim may not pass it",
        ["Claim 88 starts, or is cancelled"],
    ),
    (
        WaitContext(
            "env",
            "too_big",
            refusal=Refusal("too_big", "7 slots are more than pool env ever has.", "Ask for 6."),
        ),
        "7 slots are more than pool env ever has",
        ["Cancel it, or change the pool: Ask for 6"],
    ),
]


@pytest.mark.parametrize(
    ("scene", "text", "unblock"),
    SAYINGS,
    ids=[f"{s.code}-{s.ahead}-{s.pool}" for s, _, _ in SAYINGS],
)
def test_a_wait_is_described_by_reason_and_way_out(
    scene: WaitContext, text: str, unblock: list[str]
) -> None:
    assert describe_wait(scene) == (text, unblock)


def blocked(**changes: object) -> tuple[str, str, list[str]]:
    values = {
        "workspace": "net", "is_locked": False, "locked_by": "", "lock_reason": "", "holder": None,
        "holder_class": "", "back_off": None, "ahead": 0,
    }  # fmt: skip
    code, said = describe_blocked(**{**values, **changes})  # type: ignore[arg-type]
    return code, said.text, said.unblock


def test_a_blocked_claim_names_its_blocker() -> None:
    assert blocked(is_locked=True, locked_by="ben", lock_reason="state is broken") == (
        "workspace_locked", "Workspace net is locked by ben: state is broken", ["net is unlocked"],
    )  # fmt: skip
    assert blocked(holder=7, holder_class="applying") == (
        "workspace_busy",
        "Workspace net is busy with claim 7, applying",
        ["Claim 7 ends"],
    )
    assert blocked(holder=7, holder_class="apply_pending")[2] == ["Claim 7 is approved or rejected"]
    assert blocked(is_locked=True, locked_by="finalize", lost_claim=7)[2] == [
        "The outcome of claim 7 is recorded"
    ]
    assert blocked(holder=7, holder_class="running", ahead=2)[1].endswith("and 2 claims are ahead")
    assert blocked(back_off=40.0)[:2] == ("back_off", "Berth retries in 40 s")
    assert blocked()[0] == "unblocking"
