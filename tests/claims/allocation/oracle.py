"""Predicts which claim holds which slots, from the rules of docs/queues.md alone.

The oracle imports no code of the product and reads no database. A test tells it what callers and
operators do, and compares its answer with the rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

# Lanes that serve a kind. Lanes that accept few kinds come first.
LANES = {"plan": ("plan", "any"), "plan_and_apply": ("any",)}


@dataclass(frozen=True)
class Request:
    """Claims with the same request wait in one queue."""

    pool: str
    kind: str = "plan"
    size: int = 1

    def accepts(self, place: "Place") -> bool:
        return place.pool == self.pool and place.lane in LANES[self.kind]


@dataclass(eq=False)
class Place:
    """One slot."""

    pool: str
    member: str
    lane: str
    is_open: bool = True
    is_held: bool = False

    @property
    def is_free(self) -> bool:
        return self.is_open and not self.is_held


@dataclass(eq=False)
class Wish:
    """A claim."""

    id: int
    request: Request
    rank: int
    state: str = "waiting"  # waiting, bound, released or cancelled
    held: list[Place] = field(default_factory=list)
    passed: int = 0  # slots that smaller claims have taken before this claim

    @property
    def turn(self) -> tuple[int, int]:
        return self.rank, self.id


class Oracle:
    """`places`: the slots in the order in which a pool hands them out."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = list(places)
        self.pools = list(dict.fromkeys(place.pool for place in places))
        self.wishes: dict[int, Wish] = {}

    def in_state(self, state: str) -> list[Wish]:
        return sorted((w for w in self.wishes.values() if w.state == state), key=lambda w: w.turn)

    # -- what callers and operators do -------------------------------------------------------------

    def create(self, claim: int, request: Request, rank: int) -> None:
        """A new claim passes no claim."""
        wish = self.wishes[claim] = Wish(claim, request, rank)
        found = self._fit(wish)
        if found and not any(self._wanted_before(wish, found)):
            self._bind(wish, found)

    def release(self, claim: int) -> None:
        self._end(self.wishes[claim], "released")

    def cancel(self, claim: int) -> None:
        self._end(self.wishes[claim], "cancelled")

    def prioritise(self, claim: int, rank: int) -> None:
        self.wishes[claim].rank = rank

    def shrink(self, claim: int, size: int) -> None:
        """The last slots become free."""
        wish = self.wishes[claim]
        wish.request = Request(wish.request.pool, wish.request.kind, size)
        for place in wish.held[size:]:
            place.is_held = False
        del wish.held[size:]

    def open_member(self, pool: str, member: str, *, is_open: bool) -> None:
        for place in self.places:
            if (place.pool, place.member) == (pool, member):
                place.is_open = is_open

    # -- the allocator -----------------------------------------------------------------------------

    def serve(self) -> None:
        """The allocator works until it can bind no claim. Claims of one slot fill the lanes, up to
        the next larger claim; then that claim is tried.
        """
        for pool in self.pools:
            tried = set[Request]()  # queues whose first claim still waits
            for wish in self.in_state("waiting"):
                request = wish.request
                if request.pool == pool and request.size > 1 and request not in tried:
                    self._serve_single(pool, wish)
                    self._try(wish)
                    if wish.state == "waiting":
                        tried.add(request)
            self._serve_single(pool, None)

    def _serve_single(self, pool: str, until: Wish | None) -> None:
        for lane in LANES["plan"]:
            for wish in self.in_state("waiting"):
                is_served = wish.request.pool == pool and wish.request.size == 1
                if is_served and (until is None or wish.turn < until.turn):
                    self._try(wish, lane)

    def _try(self, wish: Wish, lane: str = "") -> None:
        """Binds the claim if enough slots are free, and every earlier claim that could use them is
        larger and has been passed by fewer slots than it needs.
        """
        found = self._fit(wish, lane)
        if not found:
            return
        ahead = list(self._wanted_before(wish, found))
        if all(
            wish.request.size < other.request.size and other.passed + taken <= other.request.size
            for other, taken in ahead
        ):
            for other, taken in ahead:
                other.passed += taken
            self._bind(wish, found)

    def _fit(self, wish: Wish, lane: str = "") -> list[Place]:
        """The free slots that the claim would get; none if they are not enough."""
        request = wish.request
        free = [
            place
            for accepted in LANES[request.kind]
            for place in self.places
            if (place.pool, place.lane) == (request.pool, accepted) and place.is_free
            if lane in ("", accepted)
        ]
        return free[: request.size] if len(free) >= request.size else []

    def _wanted_before(self, wish: Wish, places: Sequence[Place]) -> Iterator[tuple[Wish, int]]:
        """The first claim of each queue that waits ahead of this claim and could use some of these
        slots, with the number of those slots.
        """
        heads: dict[Request, Wish] = {}
        for other in self.in_state("waiting"):
            if other.turn < wish.turn:
                heads.setdefault(other.request, other)
        for other in heads.values():
            if taken := sum(other.request.accepts(place) for place in places):
                yield other, taken

    def _bind(self, wish: Wish, places: list[Place]) -> None:
        wish.state, wish.held, wish.passed = "bound", places, 0
        for place in places:
            place.is_held = True

    def _end(self, wish: Wish, state: str) -> None:
        wish.state = state
        for place in wish.held:
            place.is_held = False
        wish.held = []
