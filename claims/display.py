"""What a claim is shown as. Derived here, never stored."""

from dataclasses import dataclass

CLAIM_CLASSES = (
    "waiting",
    "bound",
    "running",
    "apply_pending",
    "applying",
    "done",
    "failed",
    "expired",
    "lost",
    "cancelled",
    "rejected",
    "unacknowledged",
)
FINE = ("applied", "planned", "released")  # outcomes that need nobody
LIVE_CLASSES = ("waiting", "bound", "running", "apply_pending", "applying")


def claim_class(state: str, *, outcome: str = "", step: str = "") -> str:
    if state in ("waiting", "blocked"):
        return "waiting"
    if state == "bound":
        return {"plan": "running", "apply": "applying"}.get(step, "bound")
    if state in ("reserved", "parked"):
        return "apply_pending"
    if outcome == "silent":
        return "unacknowledged"  # nobody answered for it either way
    return "done" if outcome in FINE else outcome


def claim_word(state: str, *, outcome: str = "", step: str = "") -> str:
    """The word beside the glyph: the class, unless the stored word says more."""
    name = claim_class(state, outcome=outcome, step=step)
    if state == "blocked":
        return "blocked"
    return outcome if state == "ended" else name


@dataclass(frozen=True, slots=True)
class Match:
    """The stored values behind a class: what a filter on it asks the database for."""

    states: tuple[str, ...]
    steps: tuple[str, ...] | None = None
    outcomes: tuple[str, ...] | None = None


def match_of(name: str) -> Match:
    if name in MATCHES:
        return MATCHES[name]
    return Match(("ended",), outcomes=(name,))


MATCHES = {
    "unacknowledged": Match(("ended",), outcomes=("unacknowledged", "silent")),
    "waiting": Match(("waiting", "blocked")),
    "blocked": Match(("blocked",)),
    "bound": Match(("bound",), steps=("",)),
    "running": Match(("bound",), steps=("plan",)),
    "applying": Match(("bound",), steps=("apply",)),
    "apply_pending": Match(("reserved", "parked")),
    "done": Match(("ended",), outcomes=FINE),
    "live": Match(("waiting", "blocked", "bound", "reserved", "parked")),
    "held": Match(("bound", "reserved")),
    "ended": Match(("ended",)),
}
