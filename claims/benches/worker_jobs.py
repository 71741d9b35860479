"""Work of the processes of a bench. A factory takes (k of n, options) and returns a function that
does one piece of work and returns its amount.
"""

import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from uuid import uuid4

from claims.allocation.bulk import create_claims
from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.benches.rows.seed import WHO
from claims.controllers import Allocator
from claims.lifecycle.release import release_claim, release_claims
from project.kernel.actor import acting_as
from project.kernel.bench.registry import NothingMeasured

Once = Callable[[], int]


def make_allocator(k: int, n: int) -> Once:
    """Steps of the allocator. The bench reads the number of bound claims from the database."""
    allocator = Allocator()

    def once() -> int:
        with acting_as(allocator.name):
            return int(allocator.step())

    return once


def make_claimer(k: int, n: int, names: Sequence[str]) -> Once:
    """One synchronous claim."""
    numbers, draw = itertools.count(), random.Random(k)

    def once() -> int:
        request = ClaimRequest(
            pools=(draw.choice(names),),
            owner=f"pod:{k}:{next(numbers)}",
            requested_by=WHO,
            key=str(uuid4()),
        )
        if create_claim(request).state != "bound":
            raise NothingMeasured(f"pool {request.pools[0]} is full: the slice ran out of slots.")
        return 1

    return once


class ClaimReleaseWorker:
    """Claims and releases in turn, so that the pools of the slice stay equally full."""

    def __init__(self, k: int, n: int, kept: int = 4, names: Sequence[str] = ()) -> None:
        self.k, self.names, self.kept = k, list(names), kept
        self.numbers, self.draw = itertools.count(), random.Random(k)
        self.mine: dict[str, deque[tuple[int, int]]] = {}

    def begin(self, names: Sequence[str] = ()) -> None:
        self.names = list(names) or self.names

    def request(self, name: str) -> ClaimRequest:
        return ClaimRequest(
            pools=(name,),
            owner=f"pod:{self.k}:{next(self.numbers)}",
            requested_by=WHO,
            key=str(uuid4()),
        )

    def __call__(self) -> int:
        name = self.draw.choice(self.names)
        mine = self.mine.setdefault(name, deque())
        if len(mine) < self.kept:
            claim = create_claim(self.request(name))
            if claim.state == "bound":
                mine.append((claim.id, claim.generation))
                return 1
        claim_id, generation = mine.popleft()
        release_claim(claim_id=claim_id, generation=generation)
        return 1


class BatchClaimReleaseWorker(ClaimReleaseWorker):
    """Claims and releases with bulk calls."""

    def __init__(
        self, k: int, n: int, kept: int = 100, names: Sequence[str] = (), batch: int = 50
    ) -> None:
        super().__init__(k, n, kept, names)
        self.batch = batch
        self.at = itertools.count(k)

    def __call__(self) -> int:
        name = self.names[next(self.at) % len(self.names)]
        mine = self.mine.setdefault(name, deque())
        made = create_claims([self.request(name) for _ in range(self.batch)])
        mine.extend(
            (claim.id, claim.generation)
            for claim in made
            if isinstance(claim, ClaimView) and claim.state == "bound"
        )
        if len(mine) > self.kept:
            release_claims([mine.popleft() for _ in range(min(self.batch, len(mine)))])
        return self.batch


class LifeWorker:
    """Claims and releases whole batches, each in the next pool, which has a free slot for each
    claim. One call does `batches` batches.
    """

    def __init__(self, k: int, n: int, names: Sequence[str], batch: int, batches: int) -> None:
        self.k, self.names, self.batch, self.batches = k, names, batch, batches
        self.at = itertools.count(k, n)

    def __call__(self) -> int:
        return sum(self.live(next(self.at)) for _ in range(self.batches))

    def live(self, at: int) -> int:
        name = self.names[at % len(self.names)]
        made = create_claims(
            [
                ClaimRequest(
                    pools=(name,), owner=f"pod:{at}:{i}", requested_by=WHO, key=str(uuid4())
                )
                for i in range(self.batch)
            ]
        )
        bound = [
            (claim.id, claim.generation)
            for claim in made
            if isinstance(claim, ClaimView) and claim.state == "bound"
        ]
        ended = release_claims(bound)
        done = sum(isinstance(claim, ClaimView) and claim.state == "ended" for claim in ended)
        if done != self.batch:
            raise NothingMeasured(f"{done} of {self.batch} claims of pool {name} were completed.")
        return done
