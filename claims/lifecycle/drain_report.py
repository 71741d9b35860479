"""The claims that keep draining members from being empty, and their fate at the deadline, for
pages and REST.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from claims.display import claim_class, claim_word
from claims.lifecycle.drain import ClaimFate, list_fates
from project.kernel.ui import formatting


@dataclass(frozen=True, slots=True)
class DrainBlocker:
    """A claim that holds slots of a draining member, now and after the deadline."""

    claim_id: int
    owner: str
    workspace: str
    step: str
    state: str
    css: str
    word: str
    places: tuple[str, ...]
    more: int  # further places
    since: datetime | None
    to: str
    outcome: str
    then: tuple[str, str]  # CSS class and short text
    loses: str
    text: str  # its fate as a sentence

    @property
    def name(self) -> str:
        return self.workspace or self.owner

    @property
    def where(self) -> str:
        return formatting.sentence(self.places) + (f" and {self.more} more" if self.more else "")

    @property
    def awaits_approval(self) -> bool:
        return self.state == "reserved"


def list_blockers(member_ids: list[int]) -> dict[int, list[DrainBlocker]]:
    return {
        member: [_blocker(claim_fate) for claim_fate in found]
        for member, found in list_fates(member_ids).items()
    }


def _blocker(claim_fate: ClaimFate) -> DrainBlocker:
    row = claim_fate.row
    css, then, loses, text = _describe_fate(claim_fate)
    return DrainBlocker(
        claim_id=row.id,
        owner=row.owner or row.requested_by,
        workspace=row.workspace or "",
        step=row.step,
        state=row.state,
        css=claim_class(row.state, step=row.step),
        word=claim_word(row.state, step=row.step),
        places=tuple(row.places or ()),
        more=max(0, row.n - len(row.places or ())),
        since=row.bound_at,
        to=claim_fate.fate.to,
        outcome=claim_fate.fate.outcome,
        then=(css, then),
        loses=loses,
        text=text,
    )


def _describe_fate(claim_fate: ClaimFate) -> tuple[str, str, str, str]:
    """CSS class, state after the deadline, loss, and the same as a sentence."""
    row, fate = claim_fate.row, claim_fate.fate
    if claim_fate.is_moved:
        return (
            "bound",
            "moves, or is lost",
            "its slots here",
            "Slots on this member move if enough are free elsewhere; otherwise the claim is lost",
        )
    if fate.to == "ended":
        if row.step == "apply":
            return (
                "lost",
                "lost, workspace locked",
                "its result",
                "Lost; its workspace is locked until the outcome is recorded",
            )
        return "lost", "lost", "its slots", "Lost; later calls by the holder are rejected"
    if fate.to == "parked":
        return "apply_pending", "keeps its plan", "its slot", "Keeps plan and approvals, no slot"
    if row.step == "apply":
        return "waiting", "applies elsewhere", "its slot", "First in the queue, applies elsewhere"
    if row.has_task:
        return (
            "waiting",
            "plans again",
            "its work so far" if row.is_begun else "its slot",
            "Queued again, plans again",
        )
    return "waiting", "queued again", "its slots", "Queued again"


def summarise(blockers: list[DrainBlocker]) -> str:
    """Such as "2 plans run and 1 plan waits for an approval"."""
    words = {
        "running": ("plan runs", "plans run"),
        "applying": ("apply runs", "applies run"),
        "bound": ("claim holds slots", "claims hold slots"),
        "apply_pending": ("plan waits for an approval", "plans wait for an approval"),
    }
    counts = Counter(blocker.css for blocker in blockers)
    return formatting.sentence(
        [formatting.plural(counts[css], *forms) for css, forms in words.items() if counts[css]]
    )


def show_blocker(blocker: DrainBlocker) -> dict[str, object]:
    return {
        "claim_id": blocker.claim_id,
        "state": blocker.state,
        "step": blocker.step or None,
        "owner": blocker.owner,
        "workspace": blocker.workspace or None,
        "since": blocker.since,
        "then": {"state": blocker.to, "outcome": blocker.outcome or None, "text": blocker.text},
    }
