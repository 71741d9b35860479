"""Simultaneous creates share a statement, and each gets the result that it would get alone."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction

from claims import claims_sql
from claims.allocation import batching, thread_batching
from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim, route_at_once
from claims.allocation.thread_batching import QueuedCreate, ThreadBatcher
from claims.models import Claim
from pools.lifecycle.services import update_pool
from project.kernel.errors import BerthError
from project.kernel.models import Event
from tests.claims.helpers import ask, held, is_sound, let_go, make_pool, sql, verbs, wish
from tests.database import helpers as model

pytestmark = pytest.mark.usefixtures("tables")

LONG = 30.0


class Watched(ThreadBatcher):
    """Tells how many wait, so that a test need not guess."""

    def __init__(self) -> None:
        super().__init__(at_once=1)
        self.came = threading.Semaphore(0)
        self.is_over = False

    def end(self, first: list[QueuedCreate]) -> None:
        """What was under way before everybody came."""
        self.is_over = True
        self.leave(first)

    def enter(self, wish: QueuedCreate) -> list[QueuedCreate]:
        self.came.release()
        return super().enter(wish)

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.came.acquire(timeout=LONG)
        while True:
            with self._change:
                if len(self._waiting) >= count:
                    return


@pytest.fixture
def gatherer(monkeypatch: pytest.MonkeyPatch) -> Watched:
    found = Watched()
    monkeypatch.setattr(thread_batching, "_gatherer", found)
    monkeypatch.setattr(thread_batching, "PATIENCE", LONG)
    return found


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


@contextmanager
def crowd(gatherer: Watched, *works: Callable[[], Any]) -> Iterator[list[Future[Any]]]:
    """All of them wait behind a statement that is under way; it ends when the block does. Their
    answers: the futures, after the block.
    """

    def run(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except BerthError as error:
            return error
        finally:
            connection.close()

    first = gatherer.enter(QueuedCreate(None, {}))  # type: ignore[arg-type]
    assert gatherer.came.acquire(timeout=LONG)
    with ThreadPoolExecutor(len(works)) as threads:
        futures = []
        for n, work in enumerate(works, 1):  # one after the other, so that their order is known
            futures.append(threads.submit(run, work))
            gatherer.wait_for(1)
            while len(gatherer._waiting) < n:
                pass
        yield futures
        if not gatherer.is_over:
            gatherer.end(first)


def make(pool: str = "lab", **body: Any) -> Callable[[], ClaimView]:
    return lambda: create_claim(wish(pool, **body))


def test_creates_that_arrive_meanwhile_share_one_statement(
    gatherer: Watched, statements: list[str]
) -> None:
    make_pool("a", slots=3)
    make_pool("b", slots=2)
    with crowd(
        gatherer,
        *[make("a", owner=f"o{i}", key=f"a{i}") for i in range(4)],
        *[make("b", owner=f"p{i}") for i in range(2)],
    ) as futures:
        pass
    claims = [future.result() for future in futures]
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


def test_each_claim_of_a_batch_keeps_its_own_fields(gatherer: Watched) -> None:
    make_pool("a", slots=5, lease={"hold": "1h"})
    odd = 'quo"te \\ Bücher 漢'
    with crowd(
        gatherer,
        make("a", owner=odd, by="ana"),
        make("a", by="ben", hold_for="2h", key="k"),
        make("a", by="cy"),
    ) as futures:
        pass
    first, second, third = (future.result() for future in futures)
    assert (first.owner, first.requested_by, first.spec["hold"]) == (odd, "ana", 3600)
    assert (second.requested_by, second.key, second.spec["hold"]) == ("ben", "k", 7200)
    assert ask("a", by="ben", hold_for="2h", key="k").is_replay
    assert third.requested_by == "cy"
    row = Claim.objects.get(pk=second.id)
    assert (row.due_at - row.bound_at).total_seconds() == 7200  # type: ignore[operator]


def test_creates_with_one_key_in_a_batch_make_one_claim(gatherer: Watched) -> None:
    make_pool(slots=5)
    with crowd(
        gatherer,
        *[make(key="same", owner="x") for _ in range(3)],
        make(key="same", owner="another"),
    ) as futures:
        pass
    *equal, other = (future.result() for future in futures)
    assert len({claim.id for claim in equal}) == 1
    assert sorted(claim.is_replay for claim in equal) == [False, True, True]
    assert other.code == "key_reused"
    assert (Claim.objects.count(), held()) == (1, 1)
    assert is_sound()


def test_two_queues_of_one_pool_are_not_in_one_statement(
    gatherer: Watched, statements: list[str]
) -> None:
    """Two lines of a pool look for the same slots, so they are not in one statement."""
    make_pool(slots=2)
    with crowd(gatherer, make(), make(priority=5), make()) as futures:
        pass
    claims = [future.result() for future in futures]
    assert [claim.state for claim in claims] == ["bound", "waiting", "bound"]
    assert statements == ["create_gathered", "create_and_bind_here"]
    assert is_sound()


def test_a_batch_does_not_pass_a_waiting_claim(gatherer: Watched) -> None:
    make_pool("a")
    make_pool("b")
    holder = ask("a")
    waits = ask("a")
    let_go(holder)
    with crowd(gatherer, make("a"), make("b"), make("a")) as futures:
        pass
    assert [future.result().state for future in futures] == ["waiting", "bound", "waiting"]
    assert waits.state == "waiting"


def test_a_changed_pool_config_applies_to_the_next_batch(gatherer: Watched) -> None:
    make_pool("a")
    make_pool("b")
    let_go(ask("a")), let_go(ask("b"))  # both routes are remembered
    update_pool("a", {"name": "a", "slots": 1, "members": {"max": 1}, "lease": {"hold": "1h"}})
    with crowd(gatherer, make("a"), make("b")) as futures:
        pass
    a, b = (future.result() for future in futures)
    assert (a.state, a.spec.get("hold"), b.state) == ("bound", 3600, "bound")


def test_claims_of_a_failed_batch_are_created_one_by_one(
    gatherer: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pool(slots=3)

    def fail(batch: list[QueuedCreate]) -> list[Any]:
        raise DatabaseError("a rule refused one of them")

    monkeypatch.setattr(thread_batching, "_make_all", fail)
    with crowd(gatherer, make(), make(), make()) as futures:
        pass
    assert [future.result().state for future in futures] == ["bound"] * 3
    assert is_sound()


def breaks_after(
    work: Callable[[list[QueuedCreate]], list[Any]],
) -> Callable[[list[QueuedCreate]], list[Any]]:
    """The statement ends and its commit with it, and the connection before its answer has come."""

    def run(batch: list[QueuedCreate]) -> list[Any]:
        work(batch)
        raise OperationalError("the connection is lost")

    return run


def test_a_connection_lost_after_the_commit_makes_no_claim_twice(
    gatherer: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key nobody knows whether it was made: that is told. With one it is asked for
    again, and is the claim that is there.
    """
    make_pool(slots=6)
    monkeypatch.setattr(thread_batching, "_make_all", breaks_after(thread_batching._make_all))
    with crowd(
        gatherer, make(owner="plain"), make(owner="keyed", key="k"), make(owner="other")
    ) as futures:
        pass
    first, keyed, other = futures
    for future in (first, other):
        with pytest.raises(OperationalError):
            future.result()
    assert (keyed.result().owner, keyed.result().is_replay) == ("keyed", True)
    assert sorted(Claim.objects.values_list("owner", flat=True)) == ["keyed", "other", "plain"], (
        "each of them once"
    )
    assert held() == 3
    assert is_sound()


def test_a_connection_lost_before_the_insert_repeats_only_creates_with_keys(
    gatherer: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks the same from here: only what has a key is asked for again."""
    make_pool(slots=6)
    monkeypatch.setattr(thread_batching, "_make_all", breaks_after(lambda batch: []))
    with crowd(gatherer, make(owner="plain"), make(owner="keyed", key="k")) as futures:
        pass
    with pytest.raises(OperationalError):
        futures[0].result()
    assert (futures[1].result().state, futures[1].result().is_replay) == ("bound", False)
    assert list(Claim.objects.values_list("owner", flat=True)) == ["keyed"]
    assert is_sound()


def test_on_an_event_loop_a_lost_connection_makes_no_claim_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The way of the web server: what may be repeated comes back as not made, and is made in the
    usual way; the others hear of it.
    """
    make_pool(slots=6)
    let_go(ask())  # the route is remembered
    wishes = [wish(owner="plain"), wish(owner="keyed", key="k"), wish(owner="other")]
    batch = [batching.PendingCreate(request, known(request), None) for request in wishes]  # type: ignore[arg-type]
    monkeypatch.setattr(thread_batching, "_make_all", breaks_after(thread_batching._make_all))
    batching.make_all(batch)
    plain, keyed, other = batch
    assert isinstance(plain.error, OperationalError) and isinstance(other.error, OperationalError)
    assert (keyed.error, keyed.claim) == (None, None), "to be made in the usual way"
    again = create_claim(wishes[1])
    assert again.is_replay
    assert sorted(Claim.objects.exclude(state="ended").values_list("owner", flat=True)) == [
        "keyed",
        "other",
        "plain",
    ]
    assert held() == 3


def known(request: Any) -> Any:
    route = route_at_once(request)
    assert route is not None
    return route


def test_a_locked_pool_delays_only_its_own_batch(gatherer: Watched) -> None:
    locked = make_pool("a")
    make_pool("b")
    let_go(ask("a"))
    with model.connect() as c, c.transaction():
        c.execute("SELECT FROM pools_pool WHERE id = %s FOR UPDATE", (locked.id,))
        with crowd(gatherer, make("b"), make("a")) as futures:
            gatherer.end([QueuedCreate(None, {})])  # type: ignore[arg-type]
            assert futures[0].result(LONG).state == "bound"
            assert not futures[1].done()
            c.execute("ROLLBACK")
            assert futures[1].result(LONG).state == "bound"


def test_a_create_does_not_wait_for_a_stuck_batch(
    gatherer: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_batching, "PATIENCE", 0.05)
    make_pool(slots=3)
    with crowd(gatherer, make(), make()) as futures:
        assert [future.result(LONG).state for future in futures] == ["bound"] * 2, (
            "though the one before has not ended"
        )


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
