"""The two sides of a race, in the product's own statements. Each takes a connection and the
prepared setup.
"""

from typing import Any

from tests.database.helpers import Connection, run, value

State = Any


def hand(c: Connection, claim: int = 0, slots: tuple[int, ...] = (0,)) -> int:
    """Bound to exactly these slots; answers the generation."""
    return int(
        run(c, "hand_over", claim=claim, slots=list(slots), actor="t", reason="")[0].generation
    )


def give_back(
    c: Connection,
    generation: int,
    claim: int = 0,
    *,
    to: str = "ended",
    outcome: str | None = None,
    lost: int | None = None,
    wait: str = "1 h",
    verb: str = "release",
    is_clean: bool = False,
    rank: int | None = None,
    step: str | None = None,
    by_holder: bool = False,
) -> list[Any]:
    ends = "released" if to == "ended" else ""
    return run(
        c, "give_back", claim=claim, generation=generation, to=to,
        outcome=ends if outcome is None else outcome, lost_member=lost, drain="1 h", wait=wait,
        verb=verb, actor="t", reason="", data=None, is_clean=is_clean, rank=rank, step=step,
        by_holder=by_holder, is_seeking=False,
    )  # fmt: skip


def release(c: Connection, generation: State) -> bool:
    return bool(give_back(c, generation))


def lose(c: Connection, generation: State) -> bool:
    return bool(give_back(c, generation, to="waiting", lost=0, verb="lose"))


def release_many(c: Connection, generation: State) -> bool:
    return bool(
        run(
            c,
            "release_batch",
            claims=[0],
            generations=[generation],
            outcome="released",
            drain="1 h",
            actor="t",
        )
    )


def bind_batch(c: Connection, _: State, n: int = 5) -> list[Any]:
    """Five heads of the first pool's line; pack: member 0 first."""
    return run(c, "bind_batch", n, shapes=[0], pool=0, lane="any", queue="", actor="t")


def bind_first(c: Connection, _: State) -> bool:
    """The first claim of the line that no other transaction holds."""
    return bool(bind_batch(c, None, 1))


def cancel(c: Connection, _: State, claim: int = 0, outcome: str = "cancelled") -> bool:
    return bool(
        run(c, "end_unheld", claim=claim, outcome=outcome, verb="cancel", actor="t", reason="")
    )


def create(c: Connection, _: State, key: str | None = "same", state: str = "waiting") -> list[Any]:
    return run(
        c, "create_and_bind", shape=0, line=b"shape 0", pool=0, pool_name="p0", revision=1,
        lanes=["any"], state=state, owner="x", requested_by="ana", key=key, digest=b"1", rank=100,
        spec="{}", workspace=None, is_serial=False, step="", queue="", actor="ana", reason="",
        token=None, told=None,
    )  # fmt: skip


def close_member(c: Connection, _: State, member: int = 0) -> int:
    return len(run(c, "close_member", member=member))


def remove_if_empty(c: Connection, _: State, member: int = 0) -> str:
    """Scale-in: pool, member, slots; closed first, then looked at, in one transaction."""
    c.execute("SELECT FROM pools_pool WHERE id = 0 FOR NO KEY UPDATE")
    close_member(c, None, member)
    if not run(c, "is_member_empty", member=member)[0][0]:
        c.execute("ROLLBACK")
        return "spared"
    c.execute("UPDATE pools_member SET state = 'deleting' WHERE id = %s", [member])
    return "removed"


def retire(c: Connection, _: State, slots: tuple[int, ...] = (0,)) -> int:
    return len(run(c, "retire_slots", slots=list(slots), actor="t", reason=""))


def move(
    c: Connection,
    generation: int,
    claim: int = 0,
    *,
    target: int = 10,
    ordinals: tuple[int, ...] = (0,),
    lost: int | None = None,
) -> int:
    return len(
        run(
            c, "move", claim=claim, generation=generation, ordinals=list(ordinals),
            targets=[target], lost_member=lost, drain="1 h", actor="t", reason="",
        )
    )  # fmt: skip


def shrink(c: Connection, generation: int, size: int = 1, claim: int = 0) -> list[Any]:
    return run(
        c,
        "shrink",
        claim=claim,
        generation=generation,
        size=size,
        shape=None,
        drain="1 h",
        actor="t",
        reason="",
    )


def prioritise(c: Connection, _: State, claim: int = 0) -> bool:
    return bool(run(c, "prioritise", claim=claim, rank=50, actor="t", reason=""))


def acknowledge(c: Connection, generation: State) -> bool:
    return bool(run(c, "acknowledge", claim=0, generation=generation, next=None))


def keep(c: Connection, generation: State) -> bool:
    return bool(run(c, "keep", claim=0, generation=generation))


# -- plan, approval, apply -------------------------------------------------------------------------
def planned(c: Connection) -> int:
    """Bound, with a plan that may be put before a person."""
    generation = hand(c)
    c.execute("UPDATE claims_claim SET step = 'plan' WHERE id = 0")
    c.execute(
        "INSERT INTO claims_plan (id, claim_id, generation, digest) VALUES (1, 0, %s, 'x')",
        [generation],
    )
    return generation


def reserve(c: Connection, generation: State, ttl: str = "1 day") -> int:
    """The new generation; 0: refused."""
    rows = run(c, "reserve", claim=0, generation=generation, ttl=ttl, actor="agent")
    return int(rows[0].generation) if rows else 0


def reserved(c: Connection) -> int:
    return reserve(c, planned(c))


def overdue(c: Connection) -> int:
    generation = reserved(c)
    c.execute("UPDATE claims_claim SET expires_at = now() WHERE id = 0")
    return generation


def approve(c: Connection, generation: State) -> bool:
    return bool(
        run(c, "resume", claim=0, generation=generation, plan=1, actor="ann", reason="fine")
    )


def expire(c: Connection, _: State) -> bool:
    return bool(run(c, "expire", claim=0))


def park(c: Connection, generation: State, wait: str = "1 day") -> bool:
    return bool(give_back(c, generation, to="parked", wait=wait, verb="park"))


def parked(c: Connection) -> int:
    generation = reserved(c)
    park(c, generation)
    return generation


def parked_overdue(c: Connection) -> int:
    generation = parked(c)
    c.execute("UPDATE claims_claim SET expires_at = now() WHERE id = 0")
    return generation


def unpark(c: Connection, generation: State) -> bool:
    return bool(run(c, "unpark", claim=0, generation=generation, plan=1, actor="ann", reason=""))


def reserve_again(c: Connection, generation: State) -> bool:
    return bool(
        run(
            c,
            "reserve_again",
            claim=0,
            generation=generation,
            pool=0,
            lane="any",
            but=None,
            actor="t",
        )
    )


# -- looking ---------------------------------------------------------------------------------------
def claim_row(c: Connection, claim: int = 0) -> tuple[str, str, str]:
    row = c.execute(
        "SELECT state, step, outcome FROM claims_claim WHERE id = %s", [claim]
    ).fetchone()
    assert row is not None
    return row


def slot_row(c: Connection, slot: int = 0) -> tuple[str, int | None]:
    row = c.execute("SELECT state, claim_id FROM slots_slot WHERE id = %s", [slot]).fetchone()
    assert row is not None
    return row


def generation_of(c: Connection, claim: int = 0) -> int:
    return int(value(c, "SELECT generation FROM claims_claim WHERE id = %s", claim))


def held(c: Connection) -> int:
    return int(value(c, "SELECT count(*) FROM slots_slot WHERE claim_id IS NOT NULL"))


def on_leaving_member(c: Connection) -> int:
    return int(
        value(
            c,
            """SELECT count(*) FROM slots_slot s JOIN pools_member m ON m.id = s.member_id
               WHERE s.state IN ('held', 'reserved', 'draining')
                 AND m.state IN ('deleting', 'gone')""",
        )
    )
