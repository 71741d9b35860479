"""The class (colour and glyph) and the word of a claim on pages, derived from its state."""

from dataclasses import dataclass

GOOD_OUTCOMES = ("applied", "planned", "released")


def claim_class(state: str, *, outcome: str = "", step: str = "") -> str:
    if state in ("waiting", "blocked"):
        return "waiting"
    if state == "bound":
        return {"plan": "running", "apply": "applying"}.get(step, "bound")
    if state in ("reserved", "parked"):
        return "apply_pending"
    if outcome == "silent":
        return "unacknowledged"  # the holder of a silent claim did not answer either
    return "done" if outcome in GOOD_OUTCOMES else outcome


def claim_word(state: str, *, outcome: str = "", step: str = "") -> str:
    """The word beside the glyph: the class, unless the stored word says more."""
    if state == "blocked":
        return "blocked"
    if state == "ended":
        return outcome
    return class_word(claim_class(state, outcome=outcome, step=step))


def class_word(name: str) -> str:
    return "awaiting approval" if name == "apply_pending" else name


@dataclass(frozen=True, slots=True)
class StateFilter:
    """The stored values of a class, for filters in the database."""

    states: tuple[str, ...]
    steps: tuple[str, ...] | None = None
    outcomes: tuple[str, ...] | None = None


def filter_of_class(name: str) -> StateFilter:
    if name in MATCHES:
        return MATCHES[name]
    return StateFilter(("ended",), outcomes=(name,))


MATCHES = {
    "unacknowledged": StateFilter(("ended",), outcomes=("unacknowledged", "silent")),
    "waiting": StateFilter(("waiting", "blocked")),
    "blocked": StateFilter(("blocked",)),
    "bound": StateFilter(("bound",), steps=("",)),
    "running": StateFilter(("bound",), steps=("plan",)),
    "applying": StateFilter(("bound",), steps=("apply",)),
    "apply_pending": StateFilter(("reserved", "parked")),
    "done": StateFilter(("ended",), outcomes=GOOD_OUTCOMES),
    "live": StateFilter(("waiting", "blocked", "bound", "reserved", "parked")),
    "held": StateFilter(("bound", "reserved")),
    "ended": StateFilter(("ended",)),
}
