"""Claims in plain SQL, so that the tests of slots need no service of claims."""

from typing import Any

from django.db import connection

from claims import claims_sql
from pools.models import Pool
from slots.members.selectors import count_pools
from slots.models import Slot

WILLING = """
SELECT count(*) FROM slots_slot s JOIN pools_member m ON m.id = s.member_id
  JOIN pools_pool p ON p.id = s.pool_id
WHERE s.is_open <> (p.state = 'active' AND coalesce(p.paused_until, p.frozen_until) IS NULL
  AND m.state = 'ready'
  AND NOT m.is_cordoned AND NOT m.is_leaving AND s.state <> 'retired'
  AND NOT EXISTS (SELECT FROM slots_quarantine q WHERE q.slot_id = s.id))"""


def hold(pool: Pool, *, lane: str = "slot", owner: str = "test") -> tuple[int, int, int]:
    """A claim on the next free slot: claim, slot, generation."""
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO claims_shape (digest, pools, kind, lanes)
               VALUES (%s, ARRAY[%s]::varchar[], %s, ARRAY[%s]::varchar[])
               ON CONFLICT (digest) DO UPDATE SET kind = EXCLUDED.kind RETURNING id""",
            [f"{pool.name} {lane}".encode(), pool.name, lane, lane],
        )
        shape = cursor.fetchone()[0]
        cursor.execute(
            "INSERT INTO claims_claim (shape_id, pool_id, owner, requested_by) "
            "VALUES (%s, %s, %s, 'test') RETURNING id",
            [shape, pool.pk, owner],
        )
        claim = cursor.fetchone()[0]
    rows = claims_sql.bind_batch(
        1, shapes=[shape], pool=pool.pk, lane=lane, queue=pool.queue, actor="test"
    )
    assert [row.claim_id for row in rows] == [claim], "no slot is free"
    return claim, rows[0].slot_id, rows[0].generation


def give_back(claim: int, generation: int, *, lost_member: int | None = None) -> Any:
    return claims_sql.give_back(
        claim=claim,
        generation=generation,
        to="ended",
        outcome="lost" if lost_member else "released",
        lost_member=lost_member,
        verb="release",
        wait=None,
        drain="10 min",
        actor="test",
        reason="",
        data=None,
        is_clean=False,
        rank=None,
        step=None,
        is_seeking=False,
        by_holder=False,
    )


def is_consistent() -> bool:
    """I8: open exactly where pool and member are willing."""
    with connection.cursor() as cursor:
        cursor.execute(WILLING)
        found: int = cursor.fetchone()[0]
    return found == 0


def places(member_id: int, *, with_retired: bool = False) -> list[tuple[str, int]]:
    rows = Slot.objects.filter(member_id=member_id).order_by("number", "lane")
    return [(s.lane, s.number) for s in (rows if with_retired else rows.exclude(state="retired"))]


def open_slots(pool: Pool) -> int:
    return count_pools([pool.pk])[pool.pk].slots.open
