"""The claims that keep draining members from being empty, and their fate at the deadline, for
pages and REST.
"""

from dataclasses import dataclass
from datetime import datetime

from claims.display import claim_class, claim_word
from claims.lifecycle.drain import ClaimFate, list_kept
from project.kernel.ui import formatting


@dataclass(frozen=True, slots=True)
class DrainBlocker:
    """A claim that holds slots of a draining member, now and after the deadline."""

    claim_id: int
    member_id: int
    owner: str
    workspace: str
    step: str
    state: str
    css: str
    word: str
    places: tuple[str, ...]
    more: int  # further places
    since: datetime | None
    expires_at: datetime | None
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
        member: [_blocker(kept) for kept in found]
        for member, found in list_kept(member_ids).items()
    }


def _blocker(kept: ClaimFate) -> DrainBlocker:
    row = kept.row
    css, then, loses, text = _describe_fate(kept)
    return DrainBlocker(
        claim_id=row.id,
        member_id=row.member_id,
        owner=row.owner or row.requested_by,
        workspace=row.workspace or "",
        step=row.step,
        state=row.state,
        css=claim_class(row.state, outcome=row.outcome, step=row.step),
        word=claim_word(row.state, outcome=row.outcome, step=row.step),
        places=tuple(row.places or ()),
        more=max(0, row.n - len(row.places or ())),
        since=row.bound_at,
        expires_at=row.expires_at,
        to=kept.fate.to,
        outcome=kept.fate.outcome,
        then=(css, then),
        loses=loses,
        text=text,
    )


def _describe_fate(kept: ClaimFate) -> tuple[str, str, str, str]:
    """CSS class, state after the deadline, loss, and the same as a sentence."""
    row, fate = kept.row, kept.fate
    if kept.is_moved:
        return (
            "bound",
            "moves, or is lost",
            "its slots here",
            "Its slots here move if as many are free, else it is lost",
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


def summarise(keepers: list[DrainBlocker]) -> str:
    """Such as "2 plans run and 1 plan waits for an approval"."""
    waiting = sum(keeper.awaits_approval for keeper in keepers)
    applying = sum(keeper.css == "applying" for keeper in keepers)
    running = sum(keeper.css == "running" for keeper in keepers)
    rest = len(keepers) - waiting - applying - running
    parts = [
        formatting.plural(running, "plan runs", "plans run") if running else "",
        formatting.plural(applying, "apply runs", "applies run") if applying else "",
        formatting.plural(rest, "claim holds slots", "claims hold slots") if rest else "",
        formatting.plural(waiting, "plan waits for an approval", "plans wait for an approval")
        if waiting
        else "",
    ]
    return formatting.sentence([part for part in parts if part])


def show_blocker(keeper: DrainBlocker) -> dict[str, object]:
    return {
        "claim_id": keeper.claim_id,
        "state": keeper.state,
        "step": keeper.step or None,
        "owner": keeper.owner,
        "workspace": keeper.workspace or None,
        "since": keeper.since,
        "then": {"state": keeper.to, "outcome": keeper.outcome or None, "text": keeper.text},
    }
