"""Simultaneous creates share a statement, and each gets the result that it would get alone."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction

from claims import claims_sql
from claims.allocation import batching
from claims.allocation.batching import PendingCreate
from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.allocation.requests.resolve import find_route
from claims.models import Claim
from pools.lifecycle.services import update_pool
from project.kernel.models import Event
from tests.claims.helpers import ask, held, is_sound, let_go, make_pool, sql, verbs, wish
from tests.database import helpers as model

pytestmark = pytest.mark.usefixtures("committed_tables")

LONG = 30.0
THREADS = 4


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that make claims, by name."""
    called: list[str] = []
    text = claims_sql.statements.text

    def noted(name: str, n: int | None = None) -> str:
        if name.startswith("create"):
            called.append(name)
        return text(name, n)

    monkeypatch.setattr(claims_sql.statements, "text", noted)
    return called


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement at a time: a claim that is not in the first batch waits for its end."""
    monkeypatch.setattr(batching, "PATIENCES", (0.0, LONG, LONG, LONG))


def create_together(
    *requests: ClaimRequest,
    during: Callable[[Sequence[asyncio.Task[ClaimView]]], Any] | None = None,
) -> list[Any]:
    """Creates the claims in one turn of an event loop, as the web server does, and returns the
    claims or errors. A claim that the batch leaves out is created by `create_claim` in a thread.
    `during` is awaited after all of them have joined.
    """
    pending = [PendingCreate(request, find_route(request)) for request in requests]

    async def create(threads: ThreadPoolExecutor, each: PendingCreate) -> ClaimView:
        claim = await each.make(threads)
        if claim is not None:
            return claim
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, create_claim, each.request)

    async def create_all(threads: ThreadPoolExecutor) -> list[Any]:
        tasks = [asyncio.create_task(create(threads, each)) for each in pending]
        if during is not None:
            await during(tasks)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await end_connections(threads)
        return found

    with ThreadPoolExecutor(THREADS) as threads:
        return asyncio.run(create_all(threads))


async def end_connections(threads: ThreadPoolExecutor) -> None:
    everybody = threading.Barrier(THREADS)

    def leave() -> None:
        everybody.wait(LONG)
        connection.close()

    loop = asyncio.get_running_loop()
    await asyncio.gather(*[loop.run_in_executor(threads, leave) for _ in range(THREADS)])


def test_creates_that_arrive_together_share_one_statement(statements: list[str]) -> None:
    make_pool("a", slots=3)
    make_pool("b", slots=2)
    claims = create_together(
        *[wish("a", owner=f"o{i}", key=f"a{i}") for i in range(4)],
        *[wish("b", owner=f"p{i}") for i in range(2)],
    )
    assert statements == ["create_gathered"]
    assert [claim.state for claim in claims] == [
        "bound",
        "bound",
        "bound",
        "waiting",
        "bound",
        "bound",
    ]
    assert [(slot.member, slot.number) for claim in claims for slot in claim.slots] == [
        ("m0", 0),
        ("m0", 1),
        ("m0", 2),
        ("m0", 0),
        ("m0", 1),
    ]
    assert [claim.owner for claim in claims] == ["o0", "o1", "o2", "o3", "p0", "p1"]
    assert claims[3].wait is not None
    assert claims[3].wait.code == "full"
    assert all(verbs(claim) == ["create"] for claim in claims)
    assert Event.objects.get(claim_id=claims[0].id).slot_id == claims[0].slots[0].id
    assert len({claim.generation for claim in claims if claim.state == "bound"}) == 5
    assert held() == 5
    assert is_sound()


def test_each_claim_of_a_batch_keeps_its_own_fields() -> None:
    make_pool("a", slots=5, lease={"hold": "1h"})
    odd = 'quo"te \\ Bücher 漢'
    first, second, third = create_together(
        wish("a", owner=odd, by="ana"),
        wish("a", by="ben", hold_for="2h", key="k"),
        wish("a", by="cy"),
    )
    assert (first.owner, first.requested_by, first.spec["hold"]) == (odd, "ana", 3600)
    assert (second.requested_by, second.key, second.spec["hold"]) == ("ben", "k", 7200)
    assert ask("a", by="ben", hold_for="2h", key="k").is_replay
    assert third.requested_by == "cy"
    row = Claim.objects.get(pk=second.id)
    assert (row.due_at - row.bound_at).total_seconds() == 7200  # type: ignore[operator]


def test_creates_with_one_key_in_a_batch_make_one_claim() -> None:
    make_pool(slots=5)
    *equal, other = create_together(
        *[wish(key="same", owner="x") for _ in range(3)], wish(key="same", owner="another")
    )
    assert len({claim.id for claim in equal}) == 1
    assert sorted(claim.is_replay for claim in equal) == [False, True, True]
    assert other.code == "key_reused"
    assert (Claim.objects.count(), held()) == (1, 1)
    assert is_sound()


def test_two_queues_of_one_pool_are_not_in_one_statement(
    patient: None, statements: list[str]
) -> None:
    """Two queues of a pool look for the same slots."""
    make_pool(slots=2)
    claims = create_together(wish(), wish(priority=5), wish())
    assert [claim.state for claim in claims] == ["bound", "waiting", "bound"]
    assert statements == ["create_gathered", "create_and_bind_here"]
    assert is_sound()


def test_a_batch_does_not_pass_a_waiting_claim() -> None:
    make_pool("a")
    make_pool("b")
    holder = ask("a")
    waits = ask("a")
    let_go(holder)
    found = create_together(wish("a"), wish("b"), wish("a"))
    assert [claim.state for claim in found] == ["waiting", "bound", "waiting"]
    assert waits.state == "waiting"


def test_a_changed_pool_config_applies_to_the_next_batch() -> None:
    make_pool("a")
    make_pool("b")
    let_go(ask("a")), let_go(ask("b"))  # both routes are remembered
    update_pool("a", {"name": "a", "slots": 1, "members": {"max": 1}, "lease": {"hold": "1h"}})
    a, b = create_together(wish("a"), wish("b"))
    assert (a.state, a.spec.get("hold"), b.state) == ("bound", 3600, "bound")


def test_claims_of_a_failed_batch_are_created_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    make_pool(slots=3)

    def fail(batch: Sequence[PendingCreate]) -> list[Any]:
        raise DatabaseError("a rule refused one of them")

    monkeypatch.setattr(batching, "_create_gathered", fail)
    found = create_together(wish(), wish(), wish())
    assert [claim.state for claim in found] == ["bound"] * 3
    assert is_sound()


def breaks_after(
    work: Callable[[Sequence[PendingCreate]], list[Any]],
) -> Callable[[Sequence[PendingCreate]], list[Any]]:
    """The statement ends and its commit with it, and the connection before its answer has come."""

    def run(batch: Sequence[PendingCreate]) -> list[Any]:
        work(batch)
        raise OperationalError("the connection is lost")

    return run


def test_a_connection_lost_after_the_commit_makes_no_claim_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a key the caller gets the error, because the claim may exist. With a key the call is
    repeated and finds the claim.
    """
    make_pool(slots=6)
    monkeypatch.setattr(batching, "_create_gathered", breaks_after(batching._create_gathered))
    first, keyed, other = create_together(
        wish(owner="plain"), wish(owner="keyed", key="k"), wish(owner="other")
    )
    assert isinstance(first, OperationalError) and isinstance(other, OperationalError)
    assert (keyed.owner, keyed.is_replay) == ("keyed", True)
    assert sorted(Claim.objects.values_list("owner", flat=True)) == ["keyed", "other", "plain"], (
        "each of them once"
    )
    assert held() == 3
    assert is_sound()


def test_a_connection_lost_before_the_insert_repeats_only_creates_with_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The batcher sees the same error as after a commit."""
    make_pool(slots=6)
    monkeypatch.setattr(batching, "_create_gathered", breaks_after(lambda batch: []))
    plain, keyed = create_together(wish(owner="plain"), wish(owner="keyed", key="k"))
    assert isinstance(plain, OperationalError)
    assert (keyed.state, keyed.is_replay) == ("bound", False)
    assert list(Claim.objects.values_list("owner", flat=True)) == ["keyed"]
    assert is_sound()


@pytest.mark.parametrize("key", [None, "k"])
def test_a_single_create_with_a_lost_connection_is_repeated_only_with_a_key(
    monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    make_pool(slots=2)
    single = batching.create_single

    def breaks(*values: Any) -> Any:
        single(*values)
        raise OperationalError("the connection is lost")

    monkeypatch.setattr(batching, "create_single", breaks)
    (found,) = create_together(wish(key=key))
    assert isinstance(found, OperationalError) if key is None else found.is_replay
    assert Claim.objects.count() == 1


def test_a_locked_pool_delays_only_its_own_claims() -> None:
    """The batch skips the locked pool, and the claim of that pool waits for the lock alone."""
    locked = make_pool("a")
    make_pool("b")
    let_go(ask("a"))

    with model.connect() as c:
        c.execute("BEGIN")
        c.execute("SELECT FROM pools_pool WHERE id = %s FOR UPDATE", (locked.id,))

        async def unlock(tasks: Sequence[asyncio.Task[ClaimView]]) -> None:
            done, left = await asyncio.wait(
                tasks, timeout=LONG, return_when=asyncio.FIRST_COMPLETED
            )
            assert [task.result().pool for task in done] == ["b"]
            assert not any(task.done() for task in left)
            await asyncio.to_thread(c.execute, "ROLLBACK")

        found = create_together(wish("b"), wish("a"), during=unlock)
    assert [claim.state for claim in found] == ["bound"] * 2


def test_a_create_does_not_wait_for_stuck_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two statements are held up; the third starts after its patience."""
    make_pool(slots=3)
    make_pool("b")
    stuck, entered = threading.Event(), threading.Semaphore(0)
    single = batching.create_single

    def hold(route: Any, *values: Any) -> Any:
        if route.names == ("lab",):
            entered.release()
            assert stuck.wait(LONG)
        return single(route, *values)

    monkeypatch.setattr(batching, "create_single", hold)

    async def free(tasks: Sequence[asyncio.Task[ClaimView]]) -> None:
        for _ in range(2):
            assert await asyncio.to_thread(partial(entered.acquire, timeout=LONG))
        assert (await asyncio.wait_for(asyncio.shield(tasks[2]), LONG)).state == "bound"
        assert not tasks[0].done() and not tasks[1].done()
        stuck.set()

    monkeypatch.setattr(batching, "MAX_BATCH", 1)
    found = create_together(wish(), wish(), wish("b"), during=free)
    assert [claim.state for claim in found] == ["bound"] * 3


def test_a_create_within_a_transaction_is_not_batched(statements: list[str]) -> None:
    make_pool()
    with transaction.atomic():
        assert ask().state == "bound"
    assert statements == ["create_and_bind_here"]


def test_eight_threads_create_400_claims_without_a_double() -> None:
    """Eight threads, four pools, no order at all: 0 doubles, 0 lost."""
    for name in "abcd":
        make_pool(name, slots=25, members=4)
    barrier = threading.Barrier(8)

    def work(k: int) -> list[tuple[int, list[int]]]:
        barrier.wait(LONG)
        try:
            made = [
                create_claim(wish("abcd"[(k + i) % 4], key=f"{k}:{i}", priority=i % 2))
                for i in range(50)
            ]
            return [(claim.id, [slot.id for slot in claim.slots]) for claim in made]
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as threads:
        found = [row for rows in threads.map(work, range(8)) for row in rows]
    slots = [slot for _, some in found for slot in some]
    assert len({claim for claim, _ in found}) == 400
    assert (len(slots), len(set(slots)), held()) == (400, 400, 400)
    assert sql("SELECT count(*) FROM claims_claim WHERE state = 'bound'") == [(400,)]
    assert is_sound()
