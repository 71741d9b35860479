"""When to try again. Pure: the clock and chance are arguments."""

from dataclasses import dataclass

LONGEST_EXPONENT = 30  # beyond it only the cap counts, and 2**attempts would grow without bound


@dataclass(frozen=True, slots=True)
class Backoff:
    first: float  # seconds
    cap: float


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """What becomes of an operation that failed. Somebody else applies it."""

    delay: float  # seconds until it is due again
    is_permanent: bool  # stays visible, and is due again only by hand
    stops_lane: bool  # the same answer waits for whatever else goes there now
    reason: str


# A due time that no timer reaches; an infinite one does not fit into a datetime.
FOREVER = 3650 * 86400.0

BACKOFF = {
    "throttled": Backoff(1.0, 60.0),
    "quota": Backoff(30.0, 600.0),
    "unauthorised": Backoff(10.0, 60.0),  # a person mends it, and then waits for us to notice
    "misconfigured": Backoff(5.0, 60.0),
    "conflict": Backoff(0.5, 60.0),
    "not_found": Backoff(1.0, 120.0),
    "unavailable": Backoff(1.0, 120.0),
    "unexpected": Backoff(2.0, 300.0),
}
STOPS_LANE = frozenset({"throttled", "quota", "unauthorised", "misconfigured", "unavailable"})


def delay_after(failures: int, backoff: Backoff, draw: float) -> float:
    """Doubling from the first to the cap. `draw` in [0, 1) spreads it over the upper half, so
    that those who failed together part.
    """
    full = min(backoff.cap, backoff.first * 2 ** min(max(failures - 1, 0), LONGEST_EXPONENT))
    return full * (0.5 + draw / 2)


def decide_retry(
    code: str, attempts: int, draw: float, retry_after: float | None = None
) -> RetryDecision:
    """What the provider asked for counts, within reason: never less than it said, never more
    than an hour.
    """
    if code == "permanent":
        return RetryDecision(
            FOREVER,
            True,
            False,
            "It will not succeed as it stands; retry it by hand once the cause is gone.",
        )
    backoff = BACKOFF.get(code, BACKOFF["unexpected"])
    delay = delay_after(attempts, backoff, draw)
    if retry_after is not None:
        delay = min(max(delay, retry_after), 3600.0)
    return RetryDecision(
        delay,
        False,
        code in STOPS_LANE,
        f"Attempt {attempts} failed, the next is in {delay:.0f} s.",
    )
