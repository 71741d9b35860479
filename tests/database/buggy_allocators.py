"""Nine deliberately buggy allocators; each is a round that eight threads play together.

The threads meet at a barrier wherever the bug needs concurrency, so the collision happens every
time. Every buggy writer changes claim and slot in one statement, so that the database refuses the
effect and not the form; stale saves are the ORM's own `save()`. Correct code works beside them on
the same slots and must not notice.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import DatabaseError, connection, connections, transaction

from claims import claims_sql
from claims.models import Claim
from slots.members import members_sql
from slots.models import Slot
from tests.database import helpers

THREADS = 8
ROUNDS = 12
CLAIMS = THREADS * ROUNDS * 4
REFUSALS = ("BR", "23", "40", "55")  # anything else is a mistake in these tests
PATIENCE = 60.0


class Wronged(Exception):
    """A correct call finds that its claim is no longer its own."""


@dataclass
class Table:
    """What the threads of one trial share."""

    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(THREADS))
    refused: Counter[str] = field(default_factory=Counter)
    # The correct code was refused: it never should be.
    disturbed: Counter[str] = field(default_factory=Counter)
    wrongly_ended: set[int] = field(default_factory=set)
    # Thread -> the claim its neighbour shall look at.
    told: dict[int, int] = field(default_factory=dict)
    faults: list[BaseException] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)


@dataclass
class Desk:
    """The state of one thread."""

    table: Table
    k: int
    turn: int = 0
    used: int = 0

    def meet(self) -> None:
        self.table.barrier.wait(PATIENCE)

    def claim(self) -> int:
        """A claim that no other thread uses."""
        self.used += 1
        return self.k + THREADS * (self.used - 1)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """What may be refused."""
        try:
            with transaction.atomic():
                yield
        except DatabaseError as error:
            code = helpers.sqlstate(error)
            if code[:2] not in REFUSALS:
                raise
            self.table.refused[code] += 1
        except Wronged:
            self.table.disturbed["wronged"] += 1


# -- writing without any guard ---------------------------------------------------------------------
def execute(text: str, **values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text, values)


def hand(claim: int, slots: list[int], generation: int) -> None:
    execute(
        """WITH c AS (UPDATE claims_claim SET state = 'bound', generation = %(g)s
           WHERE id = %(claim)s)
           UPDATE slots_slot SET state = 'held', claim_id = %(claim)s, ordinal = x.n - 1,
             generation = %(g)s
           FROM unnest(%(slots)s::bigint[]) WITH ORDINALITY x (id, n) WHERE slots_slot.id = x.id""",
        claim=claim,
        slots=slots,
        g=generation,
    )


def take_back(claim: int, slots: list[int], named: int | None = None) -> None:
    execute(
        """WITH c AS (
             UPDATE claims_claim SET state = 'ended', outcome = 'released',
               named_generation = coalesce(%(named)s, named_generation)
             WHERE id = %(claim)s)
           UPDATE slots_slot SET state = 'idle', claim_id = NULL, ordinal = NULL
             WHERE id = ANY (%(slots)s::bigint[])""",
        claim=claim,
        slots=slots,
        named=named,
    )


def free_slot(slot: int) -> None:
    execute(
        "UPDATE slots_slot SET state = 'idle', claim_id = NULL, ordinal = NULL WHERE id = %(slot)s",
        slot=slot,
    )


def move(claim: int, old: int, new: int, generation: int) -> None:
    execute(
        """WITH c AS (UPDATE claims_claim SET generation = %(g)s WHERE id = %(claim)s),
           o AS (
             UPDATE slots_slot SET state = 'draining', drain_until = now(), claim_id = NULL,
               ordinal = NULL
             WHERE id = %(old)s RETURNING id)
           UPDATE slots_slot SET state = 'held', claim_id = %(claim)s, ordinal = 0,
             generation = %(g)s
           FROM o WHERE slots_slot.id = %(new)s""",
        claim=claim,
        old=old,
        new=new,
        g=generation,
    )


def draw() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('generation')")
        return int(cursor.fetchone()[0])


def idle_slots(n: int = 1, lock: str = "") -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT id FROM slots_slot WHERE pool_id = 0 AND lane = 'any' AND state = 'idle'
                AND is_open
                ORDER BY rank, number LIMIT {n} {lock}"""
        )
        return [row[0] for row in cursor.fetchall()]


def locked_slots(n: int = 1) -> list[int]:
    return idle_slots(n, "FOR NO KEY UPDATE SKIP LOCKED")


def held_by(claim: int) -> list[int]:
    return list(
        Slot.objects.filter(claim_id=claim).order_by("ordinal").values_list("id", flat=True)
    )


# -- the product's own way -------------------------------------------------------------------------
def bind(claim: int) -> tuple[int, int]:
    """Slot and generation. There are more slots than all threads use, so each thread finds one."""
    with transaction.atomic():
        (slot,) = members_sql.find_any(1, pool=0, lane="any")
        (held,) = claims_sql.hand_over(claim=claim, slots=[slot.id], actor="test", reason="")
    return slot.id, held.generation


def let_go(claim: int, generation: int, to: str = "ended") -> None:
    rows = claims_sql.give_back(
        claim=claim,
        generation=generation,
        to=to,
        outcome="released" if to == "ended" else "",
        lost_member=None,
        drain="1 h",
        wait="1 h",
        verb="release",
        actor="test",
        reason="",
        data=None,
        is_clean=False,
        rank=None,
        step=None,
        is_seeking=False,
        by_holder=False,
    )
    if len(rows) != 1:
        raise Wronged


def let_all_go(claims: dict[int, int]) -> None:
    for claim, generation in claims.items():
        let_go(claim, generation)


def work_correctly(table: Table) -> None:
    """Binds and releases in batches, beside the bug, until it is over. Holds few slots
    at a time.
    """
    while not table.is_over.is_set():
        try:
            rows = claims_sql.bind_batch(5, shapes=[1], pool=0, lane="any", queue="", actor="test")
            claims_sql.release_batch(
                claims=[r.claim_id for r in rows],
                generations=[r.generation for r in rows],
                outcome="released",
                drain="1 h",
                actor="test",
            )
            execute(
                "INSERT INTO claims_claim (shape_id, pool_id) SELECT 1, 0 "
                "FROM generate_series(1, %(n)s)",
                n=len(rows),
            )
        except DatabaseError as error:
            table.disturbed[helpers.sqlstate(error)] += 1


# -- the nine --------------------------------------------------------------------------------------
def no_lock(desk: Desk) -> None:
    """Reads a free slot, then takes it."""
    slots = idle_slots()
    desk.meet()
    with desk.attempt():
        hand(desk.claim(), slots, draw())


def stale_slot_save(desk: Desk) -> None:
    """Reads a slot, waits, and saves every column as it was read. Even threads; the
    odd ones work correctly.
    """
    was_held, is_buggy = desk.turn % 2 == 0, desk.k % 2 == 0
    slot, mine = Slot(), dict[int, int]()
    if is_buggy and not was_held:
        slot = Slot.objects.get(pk=idle_slots(desk.k + 1)[-1])
    if was_held and not is_buggy:
        desk.table.told[desk.k] = claim = desk.claim()
        mine[claim] = bind(claim)[1]
    desk.meet()
    if is_buggy and was_held:
        slot = Slot.objects.get(claim_id=desk.table.told[desk.k + 1])
    desk.meet()
    if not is_buggy:
        let_all_go(mine) if was_held else mine.update(
            {(c := desk.claim()): bind(c)[1] for _ in range(6)}
        )  # together: every slot that was read
    desk.meet()
    if is_buggy:
        slot.observed = {"seen": desk.turn}
        with desk.attempt():
            slot.save()
    desk.meet()
    with desk.attempt():
        let_all_go(mine if not was_held else {})


def stale_claim_save(desk: Desk) -> None:
    """The same with a claim: read while it was bound and saved after its end, or read while it
    waited and saved when it is bound.
    """
    was_bound, is_buggy = desk.turn % 2 == 0, desk.k % 2 == 0
    mine = desk.claim()
    generation = bind(mine)[1] if was_bound and not is_buggy else 0
    desk.meet()
    claim = Claim.objects.get(pk=mine + 1) if is_buggy else Claim()
    desk.meet()
    if not is_buggy:
        let_go(mine, generation) if was_bound else bind(mine)
    desk.meet()
    if is_buggy:
        with desk.attempt():
            claim.save()


def double_release(desk: Desk) -> None:
    """The duplicate of a release arrives late and goes by the slot it remembers."""
    first = desk.claim()
    slot, generation = bind(first)
    desk.meet()
    let_go(first, generation)
    desk.meet()
    bind(desk.claim())  # lowest slots first, so another claim has that slot now
    desk.meet()
    with desk.attempt():
        free_slot(slot)


def claim_not_locked(desk: Desk) -> None:
    """Locks its slot well, but only looks at the claim. All threads bind the same one."""
    claim = desk.turn
    state = Claim.objects.values_list("state", flat=True).get(pk=claim)
    desk.meet()
    with desk.attempt():
        if state == "waiting":
            hand(claim, locked_slots(), draw())


def old_generation(desk: Desk) -> None:
    """Bound, lost, queued, bound again; then the first holder's late call ends it."""
    claim = desk.claim()
    slot, first = bind(claim)
    let_go(claim, first, to="waiting")
    second = bind(claim)[1]
    with desk.attempt():
        match desk.k % 3:
            case 0:
                take_back(claim, [slot])  # by the slot it remembers
            case 1:
                take_back(claim, held_by(claim))  # the present slots of the claim
            case _:
                # Names the first generation, without a comparison.
                take_back(claim, held_by(claim), named=first)
    if Claim.objects.values_list("state", "generation").get(pk=claim) != ("bound", second):
        desk.table.wrongly_ended.add(claim)


def target_taken_twice(desk: Desk) -> None:
    """Migrates to a free slot that it has not locked."""
    claim = desk.claim()
    source, _ = bind(claim)
    desk.meet()
    target = idle_slots()[0]
    desk.meet()
    with desk.attempt():
        move(claim, source, target, draw())


def partial_hold(desk: Desk) -> None:
    """Three slots are asked for; it takes what it finds."""
    claim = desk.claim()
    with transaction.atomic():
        execute("UPDATE claims_claim SET size = 3 WHERE id = %(claim)s", claim=claim)
    with desk.attempt():
        hand(claim, locked_slots(2), draw())


def finished_but_held(desk: Desk) -> None:
    """Ends the claim and forgets its slots."""
    claim = desk.claim()
    generation = bind(claim)[1]
    with desk.attempt():
        take_back(claim, [], named=generation)


def play(bug: Callable[[Desk], None]) -> Table:
    """Eight threads with the bug, two that are correct."""
    table = Table()
    helpers.load(slots=600, pools=1, claims=CLAIMS, per_member=50)
    with helpers.connect() as c:
        helpers.add_shape(c, 1, pool=0, kind="correct")
        c.execute(
            "INSERT INTO claims_claim (shape_id, pool_id) SELECT 1, 0 FROM generate_series(1, 40)"
        )

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except threading.BrokenBarrierError:
            return
        except BaseException as error:
            table.faults.append(error)
            table.barrier.abort()
        finally:
            connections.close_all()

    def rounds(desk: Desk) -> None:
        for desk.turn in range(ROUNDS):
            bug(desk)
            desk.meet()

    buggy = [
        threading.Thread(target=guarded, args=(lambda k=k: rounds(Desk(table, k)),))
        for k in range(THREADS)
    ]
    correct = [
        threading.Thread(target=guarded, args=(lambda: work_correctly(table),)) for _ in range(2)
    ]
    for thread in buggy + correct:
        thread.start()
    for thread in buggy:
        thread.join()
    table.is_over.set()
    for thread in correct:
        thread.join()
    if table.faults:
        raise table.faults[0]
    return table
