"""A queue without claims is deleted, and a later claim of its shape makes a new queue."""

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from claims import claims_sql
from claims.allocation.bulk import create_claims
from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.queues import unused_queues
from claims.allocation.queues.unused_queues import UnusedQueueCursor
from claims.allocation.requests.claim_request import ClaimRequest
from claims.allocation.requests.resolve import find_route
from claims.lifecycle.cancel import cancel_claim
from claims.lifecycle.update import resize_claim
from claims.models import Claim, Shape
from claims.statements import repeat
from project.kernel.errors import Unavailable
from tests.claims.helpers import ask, is_sound, let_go, make_pool, sql, wish
from tests.claims.parallel_processes import together

pytestmark = pytest.mark.usefixtures("tables")


def walk() -> int:
    """Walks over all queues once; the number of deleted queues."""
    mine, gone = UnusedQueueCursor(), 0
    for _ in range(10_000):
        gone += mine.step()
        if mine.newest is None and not mine.unused:
            return gone
    raise AssertionError("the walk goes on for ever")


def forget_claims(*claims: Any) -> None:
    """As after ninety days."""
    sql("DELETE FROM claims_claim WHERE id = ANY (%s)", [claim.id for claim in claims])


def test_only_queues_without_claims_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unused_queues, "CLAIMS_AT_ONCE", 2)
    make_pool(slots=6)
    bound, ended, waits = ask(), ask(size=2), ask("nowhere")
    let_go(ended)
    old = [ask(selector={"n": str(n)}) for n in range(5)]
    for claim in old:
        cancel_claim(claim_id=claim.id, reason="")
    assert walk() == 0, "claims are kept for ninety days, and their lines with them"
    forget_claims(*old)
    assert walk() == 5
    assert {shape.pk for shape in Shape.objects.all()} == {
        bound.shape_id,
        ended.shape_id,
        waits.shape_id,
    }


def test_a_recently_tried_queue_is_kept() -> None:
    claim = ask("nowhere")
    cancel_claim(claim_id=claim.id, reason="")
    forget_claims(claim)
    sql("UPDATE claims_shape SET tried_at = now()")
    assert walk() == 0
    sql("UPDATE claims_shape SET tried_at = now() - interval '2 days'")
    assert walk() == 1


BODIES: dict[str, dict[str, Any]] = {
    "simple": {},
    "several": {"size": 2},
    "with labels": {"selector": {"disk": "ssd"}},
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_create_with_a_cached_deleted_queue_makes_a_new_queue(body: dict[str, Any]) -> None:
    """Red without `hold_queue`: the claim named a queue that does not exist."""
    make_pool(slots=3, members=[{"name": "m0", "labels": {"disk": "ssd"}}])
    first = ask(**body)
    let_go(first)
    forget_claims(first)
    assert walk() == 1
    again = create_claim(wish(**body))
    assert (again.state, again.shape_id > first.shape_id) == ("bound", True)


def test_a_bulk_create_with_a_cached_deleted_queue_succeeds() -> None:
    make_pool(slots=3)
    first = ask()
    let_go(first)
    forget_claims(first)
    assert walk() == 1
    assert [claim.state for claim in create_claims([wish(), wish()])] == ["bound", "bound"]  # type: ignore[union-attr]


@pytest.mark.usefixtures("committed_tables")
def test_a_claim_created_between_walk_and_delete_keeps_its_queue() -> None:
    make_pool(slots=3)
    first = ask()
    let_go(first)
    forget_claims(first)
    mine = UnusedQueueCursor()
    while not mine.unused:
        mine.step()
    claim = ask()
    assert mine.step() == 0
    assert Claim.objects.get(pk=claim.id).shape_id == claim.shape_id
    assert is_sound()


def test_resizing_the_last_claim_of_a_queue_leaves_it_unused() -> None:
    make_pool(slots=3)
    claim = ask(size=3)
    assert resize_claim(claim_id=claim.id, generation=claim.generation, size=2).size == 2
    assert walk() == 1, "nobody stands in that of three any more"


def come(request: ClaimRequest) -> ClaimView:
    while True:
        try:
            return create_claim(request)
        except Unavailable:
            continue


@pytest.mark.usefixtures("committed_tables")
def test_creates_beside_deletes_of_queues_always_succeed() -> None:
    """No claim loses its queue, and a refused client gets a documented error. Each claim is
    released and forgotten at once, so that its queue is about to be deleted a thousand times as
    often as in production."""
    make_pool(slots=50)

    def come_and_go(k: int) -> int:
        for i in range(40):
            claim = come(wish(size=1 + i % 2))
            assert claim.state == "bound"
            let_go(claim)
            forget_claims(claim)
        return 40

    def sweep(k: int) -> int:
        return sum(
            len(sweep_one(shape))
            for _ in range(60)
            for shape in Shape.objects.values_list("pk", flat=True)
        )

    def sweep_one(shape: int) -> list[Any]:
        mine = UnusedQueueCursor(unused=[shape])
        return [1] * mine.step()

    first, second, gone = together(come_and_go, come_and_go, sweep)
    assert (first, second) == (40, 40)
    assert gone > 0
    assert is_sound()


def test_a_queue_is_locked_only_under_its_own_digest() -> None:
    make_pool(slots=3)
    route = find_route(wish(size=2))
    assert claims_sql.hold_queue(queue=route.shape, digest=route.digest) is not None
    assert claims_sql.hold_queue(queue=route.shape, digest=b"another") is None


@pytest.mark.parametrize(("column", "times"), [("shape_id", 4), ("pool_id", 1)])
@pytest.mark.usefixtures("committed_tables")
def test_a_create_is_repeated_for_a_missing_queue_only(column: str, times: int) -> None:
    make_pool(slots=1)
    claim = ask()
    tried: list[int] = []

    def name_what_is_missing() -> None:
        tried.append(1)
        with transaction.atomic():
            sql(f"UPDATE claims_claim SET {column} = -1 WHERE id = %s", claim.id)

    with pytest.raises(Unavailable if times > 1 else IntegrityError):
        repeat(name_what_is_missing)
    assert len(tried) == times
