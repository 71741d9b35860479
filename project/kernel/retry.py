"""When to retry. The functions are pure: clock and random numbers are arguments."""

from dataclasses import dataclass

LONGEST_EXPONENT = 30  # beyond this exponent only the cap counts


@dataclass(frozen=True, slots=True)
class Backoff:
    first: float  # seconds
    cap: float


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """What happens to a failed operation; the caller applies it."""

    delay: float  # seconds until the operation is due again
    is_permanent: bool  # the operation stays visible until a person retries it
    stops_lane: bool  # other operations of the lane would fail in the same way


# A due time that no timer reaches; an infinite time does not fit into a datetime.
FOREVER = 3650 * 86400.0

BACKOFF = {
    "throttled": Backoff(1.0, 60.0),
    "quota": Backoff(30.0, 600.0),
    "unauthorised": Backoff(10.0, 60.0),  # after a fix, a person waits for the next attempt
    "misconfigured": Backoff(5.0, 60.0),
    "conflict": Backoff(0.5, 60.0),
    "not_found": Backoff(1.0, 120.0),
    "unavailable": Backoff(1.0, 120.0),
    "unexpected": Backoff(2.0, 300.0),
}
STOPS_LANE = frozenset({"throttled", "quota", "unauthorised", "misconfigured", "unavailable"})


def delay_after(failures: int, backoff: Backoff, draw: float) -> float:
    """Doubles the delay from the first to the cap. `draw` in [0, 1) spreads it over the upper half,
    so that simultaneous failures retry at different times.
    """
    full = min(backoff.cap, backoff.first * 2 ** min(max(failures - 1, 0), LONGEST_EXPONENT))
    return full * (0.5 + draw / 2)


def decide_retry(
    code: str, attempts: int, draw: float, retry_after: float | None = None
) -> RetryDecision:
    """Waits at least the provider's `retry_after`, and at most an hour."""
    if code == "permanent":
        return RetryDecision(FOREVER, is_permanent=True, stops_lane=False)
    backoff = BACKOFF.get(code, BACKOFF["unexpected"])
    delay = delay_after(attempts, backoff, draw)
    if retry_after is not None:
        delay = min(max(delay, retry_after), 3600.0)
    return RetryDecision(delay, is_permanent=False, stops_lane=code in STOPS_LANE)
