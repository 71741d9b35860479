"""Random sequences of operations on claims: an oracle says which claims hold which slots.

Several pools, sizes and lanes. The oracle (oracle.py) predicts the holders from the rules alone,
so a claim that is bound too early, too late or in the wrong slot fails the test. Claims over
several pools are left out: pools are served in a random order, which decides what passes them.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from claims.allocation.bulk import create_claims
from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.allocation.requests.resolve import forget_routes
from claims.lifecycle.cancel import cancel_claim
from claims.lifecycle.release import release_claim
from claims.lifecycle.update import prioritise_claim, resize_claim
from claims.models import Claim
from project.kernel.errors import BerthError
from slots.members.services import cordon_member, uncordon_member
from slots.models import Slot
from tests.claims.allocation.oracle import Oracle, Place, Request, Wish
from tests.claims.helpers import is_sound, make_pool, member, serve, wish
from tests.database import helpers
from tests.random_steps import run_steps

T = TypeVar("T")
# The lanes of each member of each pool. Members are filled in this order, one after the other.
LAYOUT = {
    "one": {"a": ["any", "any", "any", "plan"]},
    "two": {"b": ["any", "any", "plan"], "c": ["any", "any", "plan"]},
    "three": {"d": ["any", "any", "any", "any"]},
}
# Requests that an empty pool can serve.
REQUESTS = [
    *[Request(pool, kind) for pool in LAYOUT for kind in ("plan", "plan_and_apply")],
    *[Request(pool, "plan", size) for pool in ("one", "two") for size in (2, 3)],
    *[Request(pool, "plan_and_apply", 2) for pool in LAYOUT],
    Request("two", "plan", 4),
]
SINGLE = [request for request in REQUESTS if request.size == 1]
PRIORITIES = st.sampled_from([0, 0, 0, 5])


def places() -> list[Place]:
    return [
        Place(pool, name, lane)
        for pool, members in LAYOUT.items()
        for name, lanes in members.items()
        for lane in lanes
    ]


class Claims(RuleBasedStateMachine):
    @initialize(requests=st.lists(st.sampled_from(REQUESTS), min_size=8, max_size=16))
    def begin(self, requests: list[Request]) -> None:
        """Claims wait from the beginning, several of them in one queue."""
        helpers.empty()
        forget_routes()
        for pool, members in LAYOUT.items():
            make_pool(pool, slots=next(iter(members.values())), members=list(members))
        self.oracle = Oracle(places())
        self.generations: dict[int, list[int]] = {}  # of each claim, the newest last
        self.keys: dict[str, tuple[int, Request, int]] = {}
        for request in requests:
            self.claim(request, 0, None)

    # -- what callers do ---------------------------------------------------------------------------

    @rule(
        request=st.sampled_from(REQUESTS),
        priority=PRIORITIES,
        key=st.sampled_from([None, None, None, "a", "b"]),
    )
    def claim(self, request: Request, priority: int, key: str | None) -> None:
        if key in self.keys:
            claim, *same = self.keys[key]
            expected = claim if same == [request, priority] else "key_reused"
            asked = asked_for(request, priority, key)
            assert answer(lambda: create_claim(asked).id) == expected
            return
        self.made(create_claim(asked_for(request, priority, key)), request, priority)
        if key is not None:
            self.keys[key] = (max(self.oracle.wishes), request, priority)

    @rule(request=st.sampled_from(SINGLE), priority=PRIORITIES, count=st.integers(2, 5))
    def claim_in_bulk(self, request: Request, priority: int, count: int) -> None:
        for claim in create_claims([asked_for(request, priority) for _ in range(count)]):
            assert isinstance(claim, ClaimView)
            self.made(claim, request, priority)

    @rule(
        requests=st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=3),
        count=st.integers(1, 3),
    )
    def claim_several(self, requests: list[Request], count: int) -> None:
        for request in requests:
            for _ in range(count):
                self.claim(request, 0, None)

    def made(self, claim: ClaimView, request: Request, priority: int) -> None:
        self.oracle.create(claim.id, request, 100 - priority)
        assert claim.state == self.oracle.wishes[claim.id].state, request

    @rule(data=st.data(), most=st.integers(1, 6))
    @precondition(lambda self: self.oracle.in_state("bound"))
    def release(self, data: st.DataObject, most: int) -> None:
        for _ in range(min(most, len(self.oracle.in_state("bound")))):
            claim = self.any_of(data, "bound")
            generation = self.generations[claim.id][-1]
            assert release_claim(claim_id=claim.id, generation=generation).outcome == "released"
            self.oracle.release(claim.id)

    @rule()
    @precondition(lambda self: self.oracle.in_state("waiting"))
    def release_all(self) -> None:
        for claim in self.oracle.in_state("bound"):
            release_claim(claim_id=claim.id, generation=self.generations[claim.id][-1])
            self.oracle.release(claim.id)
        self.allocate()

    @rule(data=st.data())
    @precondition(lambda self: any(len(known) > 1 for known in self.generations.values()))
    def release_late(self, data: st.DataObject) -> None:
        late = [claim for claim, known in self.generations.items() if len(known) > 1]
        claim = data.draw(st.sampled_from(late))
        generation = self.generations[claim][-2]
        assert (
            answer(lambda: release_claim(claim_id=claim, generation=generation).id)
            == "stale_generation"
        )

    @rule(data=st.data())
    @precondition(lambda self: self.oracle.wishes)
    def cancel(self, data: st.DataObject) -> None:
        claim = self.any_of(data)
        said = answer(lambda: cancel_claim(claim_id=claim.id).outcome)
        assert said == CANCELLED[claim.state]
        if claim.state == "waiting":
            self.oracle.cancel(claim.id)

    @rule(data=st.data(), priority=st.sampled_from([-5, 0, 5, 50]))
    @precondition(lambda self: self.oracle.wishes)
    def prioritise(self, data: st.DataObject, priority: int) -> None:
        claim = self.any_of(data)
        said = answer(lambda: prioritise_claim(claim_id=claim.id, priority=priority).priority)
        assert said == (priority if claim.state == "waiting" else "not_waiting")
        if claim.state == "waiting":
            self.oracle.prioritise(claim.id, 100 - priority)

    @rule(data=st.data(), size=st.integers(1, 4))
    @precondition(lambda self: self.oracle.in_state("bound"))
    def resize(self, data: st.DataObject, size: int) -> None:
        claim = self.any_of(data, "bound")
        known = self.generations[claim.id]
        said = answer(lambda: resize_claim(claim_id=claim.id, generation=known[-1], size=size).size)
        assert said == (size if size <= claim.request.size else "cannot_grow")
        if size < claim.request.size:
            self.oracle.shrink(claim.id, size)

    # -- what operators do -------------------------------------------------------------------------

    @rule(is_open=st.booleans())
    def cordon_or_uncordon(self, is_open: bool) -> None:
        """One of two members, so the pool still has a member for each claim."""
        if is_open:
            uncordon_member(member_id=member("c").pk)
        else:
            cordon_member(member_id=member("c").pk, reason="test")
        self.oracle.open_member("two", "c", is_open=is_open)

    @rule()
    def allocate(self) -> None:
        serve()
        self.oracle.serve()

    # -- what is true at every moment --------------------------------------------------------------

    @invariant()
    def rows_agree_with_the_oracle(self) -> None:
        if not hasattr(self, "oracle"):
            return
        rows = {row.pk: row for row in Claim.objects.all()}
        wishes = self.oracle.wishes
        assert {claim: (row.state, row.outcome, row.rank) for claim, row in rows.items()} == {
            claim: (*STATES[wish.state], wish.rank) for claim, wish in wishes.items()
        }
        held: dict[int, Counter[tuple[str, str, str]]] = {}
        for slot in Slot.objects.filter(state="held").select_related("member__pool"):
            place = (slot.member.pool.name, slot.member.name, slot.lane)
            held.setdefault(slot.claim_id or 0, Counter())[place] += 1
        assert held == {
            wish.id: Counter((place.pool, place.member, place.lane) for place in wish.held)
            for wish in self.oracle.in_state("bound")
        }
        self.note_generations(rows.values())
        assert is_sound()

    def note_generations(self, rows: Iterable[Claim]) -> None:
        """A claim that gets or loses slots gets a generation that no claim had before."""
        highest = max((n for known in self.generations.values() for n in known), default=0)
        for row in rows:
            known = self.generations.setdefault(row.pk, [])
            if row.state == "bound" and row.generation not in known[-1:]:
                assert row.generation > highest
                known.append(row.generation)

    def any_of(self, data: st.DataObject, state: str = "") -> Wish:
        wishes = self.oracle.in_state(state) if state else list(self.oracle.wishes.values())
        return data.draw(st.sampled_from(wishes))


STATES = {
    "waiting": ("waiting", ""),
    "bound": ("bound", ""),
    "released": ("ended", "released"),
    "cancelled": ("ended", "cancelled"),
}
# The answer to a cancel.
CANCELLED = {
    "waiting": "cancelled",
    "bound": "holds_slots",
    "released": "ended",
    "cancelled": "cancelled",
}


def asked_for(request: Request, priority: int, key: str | None = None) -> ClaimRequest:
    body = {"kind": request.kind, "size": request.size, "priority": priority}
    return wish(request.pool, key=key, **body)


def answer(call: Callable[[], T]) -> T | str:
    """What the call returns, or the code of its error."""
    try:
        return call()
    except BerthError as error:
        return error.code


@pytest.mark.usefixtures("committed_tables")
def test_random_steps_bind_the_claims_that_the_oracle_names() -> None:
    """Seen red with the order turned round in bind_batch, and with an allocator that served small
    claims before the second claim of a queue.
    """
    run_steps(Claims, short=15, steps=30)
