"""What has become of a claim so far, and what comes next: the steps at the top of its page. Pure."""

from dataclasses import dataclass
from datetime import datetime

from claims.answers import ClaimView
from claims.display import claim_class, claim_word
from project.kernel import words


@dataclass(frozen=True, slots=True)
class Step:
    css: str
    word: str
    text: str = ""
    at: datetime | None = None
    counts_from: datetime | None = None  # the text is a duration that goes on
    is_current: bool = False
    is_next: bool = False


def steps_of(claim: ClaimView, now: datetime) -> list[Step]:
    found = [_waiting(claim, now)]
    if claim.bound_at is not None and not claim.is_waiting:
        found.append(_bound(claim))
    if claim.state in ("reserved", "parked"):
        found.append(Step("apply_pending", "apply_pending", "", claim.changed_at, claim.changed_at, is_current=True))
    if claim.state == "ended":
        css = claim_class(claim.state, outcome=claim.outcome, step=claim.step)
        held = f"after {words.duration((claim.changed_at - claim.bound_at).total_seconds())}" if claim.changed_at and claim.bound_at else ""
        found.append(Step(css, claim_word(claim.state, outcome=claim.outcome), held, claim.changed_at, is_current=True))
        return found
    return [*found, *_ahead(claim)]


def _waiting(claim: ClaimView, now: datetime) -> Step:
    if claim.is_waiting:
        text = f"place {claim.wait.place}, " if claim.wait and claim.wait.place else ""
        return Step("waiting", claim_word(claim.state), text, claim.created_at, claim.created_at, is_current=True)
    until = claim.bound_at or claim.changed_at or now
    waited = (until - claim.created_at).total_seconds()
    word = "waiting" if waited >= 1 else "asked"
    return Step("done", word, words.duration(waited) if waited >= 1 else "served at once" if claim.bound_at else "", claim.created_at)


def _bound(claim: ClaimView) -> Step:
    places = [f"{slot.member} · {slot.lane} {slot.number}" for slot in claim.slots]
    text = places[0] + (f" and {len(places) - 1} more" if len(places) > 1 else "") if places else ""
    if claim.state != "bound":
        return Step("done", "bound", text, claim.bound_at)
    css = claim_class(claim.state, step=claim.step)
    return Step(css, css, f"{text}, " if text else "", claim.bound_at, claim.bound_at, is_current=True)


def _ahead(claim: ClaimView) -> list[Step]:
    ahead = []
    if claim.is_waiting:
        ahead.append(
            Step("bound", "bound", claim.wait.start_note if claim.wait and claim.wait.start is None else _soon(claim), is_next=True)
        )
    if claim.acknowledge_by is not None:
        ahead.append(Step("bound", "acknowledged", "by then, or the slot goes back", claim.acknowledge_by, is_next=True))
    text = "at the latest then" if claim.expires_at else "when its holder lets go"
    ahead.append(Step("done", "released", text, claim.expires_at, is_next=True))
    return ahead


def _soon(claim: ClaimView) -> str:
    start = claim.wait.start if claim.wait else None
    return "" if start is None else f"in about {words.span(*start)}" if start[1] > 1 else "at once"
