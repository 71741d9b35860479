"""What keeps members that drain, in words: who, for how long, and what becomes of each at the deadline. The same for pages and for REST."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from claims.display import claim_class, claim_word
from claims.services.draining import Kept, list_kept
from project.kernel import words

LOST_APPLY = "lost; its workspace is locked until somebody says what became of it"
THEN = {
    "waiting": ("waiting", "back in its line"),
    "parked": ("apply_pending", "keeps plan and approvals, no slot"),
}


@dataclass(frozen=True, slots=True)
class Keeper:
    """A claim that holds slots of a member, now and past the deadline."""

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
    then: tuple[str, str]  # class and words
    loses: str

    @property
    def name(self) -> str:
        return self.workspace or self.owner

    @property
    def where(self) -> str:
        return words.sentence(self.places) + (f" and {self.more} more" if self.more else "")

    @property
    def is_waiting(self) -> bool:
        """For a person."""
        return self.state == "reserved"


def keepers_of(member_ids: list[int]) -> dict[int, list[Keeper]]:
    return {member: [_keeper(kept) for kept in found] for member, found in list_kept(member_ids).items()}


def _keeper(kept: Kept) -> Keeper:
    row = kept.row
    then, loses = _then(kept)
    return Keeper(
        claim_id=row.id,
        member_id=row.member_id,
        owner=row.owner or row.requested_by,
        workspace=row.workspace or "",
        step=row.step,
        state=row.state,
        css=claim_class(row.state, outcome=row.outcome, step=row.step),
        word=claim_word(row.state, outcome=row.outcome, step=row.step),
        places=tuple(row.places),
        more=max(0, row.n - len(row.places)),
        since=row.bound_at,
        expires_at=row.expires_at,
        to=kept.fate.to,
        outcome=kept.fate.outcome,
        then=then,
        loses=loses,
    )


def _then(kept: Kept) -> tuple[tuple[str, str], str]:
    row, fate = kept.row, kept.fate
    if kept.is_moved:
        return ("bound", "moves if as many slots are free, else lost"), "its slots here"
    if fate.to == "ended":
        if row.step == "apply":
            return ("lost", LOST_APPLY), "nobody knows how far it came"
        return ("lost", "lost"), "its slots"
    if fate.to == "parked":
        return THEN["parked"], "its slot"
    if row.step == "apply":
        return ("waiting", "first in line, applies elsewhere"), "its slot"
    if row.has_task:
        return ("waiting", "back in its line, plans again"), "its work so far" if row.is_begun else "its slot"
    return THEN["waiting"], "its slots"


def summarise(keepers: list[Keeper]) -> str:
    """What holds it: '2 running, 1 waits for a decision'."""
    waiting = sum(keeper.is_waiting for keeper in keepers)
    applying = sum(keeper.css == "applying" for keeper in keepers)
    running = sum(keeper.css == "running" for keeper in keepers)
    rest = len(keepers) - waiting - applying - running
    parts = [
        words.plural(running, "plan runs", "plans run") if running else "",
        words.plural(applying, "apply runs", "applies run") if applying else "",
        words.plural(rest, "claim holds slots", "claims hold slots") if rest else "",
        words.plural(waiting, "plan waits for a decision", "plans wait for a decision") if waiting else "",
    ]
    return words.sentence([part for part in parts if part])


def show_keeper(keeper: Keeper) -> dict[str, Any]:
    return {
        "claim_id": keeper.claim_id,
        "state": keeper.state,
        "step": keeper.step or None,
        "owner": keeper.owner,
        "workspace": keeper.workspace or None,
        "since": keeper.since,
        "then": {"state": keeper.to, "outcome": keeper.outcome or None, "text": keeper.then[1]},
    }
