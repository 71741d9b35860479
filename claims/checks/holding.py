"""Claims and their slots: I1 one holder, I2 claim and slots agree, I4 generations rise, I6 the
database rules are on, I20 the event log names the holder.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from django.db import transaction

from claims.checks import repairs_sql
from claims.constraints import CLAIM_CONSTRAINT
from claims.lifecycle.end_hold import end_hold, lock_hold
from claims.lifecycle.release import DRAIN, Ending, notify_freed
from project.kernel.actor import current_actor
from project.kernel.db.row_constraint import RowConstraint
from project.kernel.db.sql import run
from project.kernel.doctor.registry import Finding, check
from project.kernel.events.log import record
from slots.rules import SLOT_CONSTRAINT

REASON = "found by the doctor"

# The triggers, by table. They refuse writes of all programs that break a rule. Only
# `slot_counts_use` counts instead (pools/config/placement.py).
RULES: Mapping[str, tuple[str, ...]] = {
    "pools_pool": ("pool_move",),
    "pools_member": ("member_move", "member_leaves_empty"),
    "slots_slot": (
        "slot_move",
        "slot_not_stolen",
        "slot_generation_rises",
        "slot_drains_first",
        "slot_open_to_new",
        "slot_born_free",
        "slot_kept",
        "slot_agrees",
        "slot_counts_use",
    ),
    "claims_claim": (
        "claim_move",
        "claim_generation_rises",
        "claim_kept",
        "claim_agrees",
        "claim_agrees_new",
    ),
    "claims_claimset": ("claim_set_move",),
    "auth_user": ("username_fixed", "user_kept"),
    "kernel_event": ("event_kept", "event_unchanged"),
}

SOUND = (SLOT_CONSTRAINT, CLAIM_CONSTRAINT)  # rules of single rows

WITHOUT_HOLDER = """
SELECT s.claim_id AS claim, coalesce(c.state, 'missing') AS state,
  array_agg(s.id ORDER BY s.id) AS slots
FROM slots_slot s LEFT JOIN claims_claim c ON c.id = s.claim_id
WHERE s.claim_id IS NOT NULL AND (c.id IS NULL OR c.state NOT IN ('bound', 'reserved'))
GROUP BY 1, 2 ORDER BY 1 LIMIT 1000"""

TWICE = """
SELECT claim_id AS claim, ordinal, array_agg(id ORDER BY id) AS slots FROM slots_slot
  WHERE claim_id IS NOT NULL
GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY 1 LIMIT 1000"""

DISAGREEING = """
SELECT c.id, c.state, c.size, c.generation, coalesce(s.n, 0) AS n, s.low, s.high, s.top, s.states
  FROM claims_claim c
LEFT JOIN (
  SELECT claim_id, count(*) AS n, min(generation) AS low, max(generation) AS high,
    max(ordinal) AS top,
    array_agg(DISTINCT state::text) AS states
  FROM slots_slot WHERE claim_id IS NOT NULL GROUP BY 1) s ON s.claim_id = c.id
WHERE c.state IN ('bound', 'reserved')
  AND (s.n IS DISTINCT FROM c.size::bigint OR s.top <> c.size - 1 OR s.low <> c.generation
    OR s.high <> c.generation
       OR s.states <> ARRAY[CASE c.state WHEN 'bound' THEN 'held' ELSE 'reserved' END])
ORDER BY c.id LIMIT 1000"""

GENERATIONS = """
SELECT (SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END
  FROM generation) AS drawn,
  greatest((SELECT max(generation) FROM slots_slot), (SELECT max(generation) FROM claims_claim),
    0) AS highest"""

TRIGGERS = """
SELECT t.tgname::text AS name, t.tgrelid::regclass::text AS on_table, t.tgenabled::text AS enabled
FROM pg_trigger t WHERE NOT t.tgisinternal"""

CHECKS = """
SELECT c.conname::text AS name, c.convalidated AS is_valid, p.prosrc AS body
FROM pg_constraint c LEFT JOIN pg_proc p ON p.proname = 'is_' || c.conname
  WHERE c.contype = 'c' AND c.conname = ANY (%(names)s::text[])"""

# Old events are deleted, so the log may lack a bind that is older than its first event.
UNNOTIFIED = """
SELECT s.id, s.state, s.claim_id, e.claim_id AS logged_claim, e.after FROM slots_slot s
LEFT JOIN LATERAL (
  SELECT claim_id, after FROM kernel_event WHERE slot_id = s.id AND after <> '' ORDER BY id DESC
    LIMIT 1) e ON true
WHERE (CASE WHEN e.after IN ('bound', 'held', 'reserved')
  THEN e.claim_id END) IS DISTINCT FROM s.claim_id
  AND (e.after IS NOT NULL OR s.changed_at >= (SELECT at FROM kernel_event ORDER BY id LIMIT 1))
ORDER BY s.id LIMIT 1000"""


@check(
    "I1",
    "A held slot names a claim that is bound or reserved",
    "Such a slot is lost: no claim uses it and no claim releases it.",
)
def find_slots_without_holder() -> Iterator[Finding]:
    for row in run(WITHOUT_HOLDER, prepare=False):
        what = (
            f"claim {row.claim}, which is {row.state}"
            if row.state != "missing"
            else f"claim {row.claim}, which does not exist"
        )
        yield Finding(
            _name(row.slots),
            f"held by {what}",
            "--repair frees them.",
            partial(_drop_holder, row.claim),
        )
    for row in run(TWICE, prepare=False):
        yield Finding(
            _name(row.slots),
            f"all have number {row.ordinal} of claim {row.claim}",
            f"Force the release of claim {row.claim}.",
        )


@check(
    "I2",
    "A bound or reserved claim has all its slots, with its generation",
    "Its holder expects slots that it does not hold, and may use slots of another claim.",
)
def find_disagreeing_claims() -> Iterator[Finding]:
    for row in run(DISAGREEING, prepare=False):
        detail = f"{row.state}, and has {row.n} of {row.size} slots"
        if row.n:
            generations = str(row.low) if row.low == row.high else f"{row.low} to {row.high}"
            detail += (
                f"; they are {' and '.join(row.states)}, of generation {generations}; the claim's "
                f"is {row.generation}"
            )
        repair = "Stop its holder first. --repair then ends the claim as lost and frees its slots."
        yield Finding(f"claim {row.id}", detail, repair, partial(_end_broken, row.id))


@check(
    "I4",
    "Generations rise",
    (
        "The next hand-over would draw a number in use and be refused. A partial restore leaves "
        "this state."
    ),
)
def find_low_generation() -> Iterator[Finding]:
    row = run(GENERATIONS, prepare=False)[0]
    if row.drawn < row.highest:
        detail = f"is at {row.drawn}, the highest in use is {row.highest}"
        yield Finding("sequence generation", detail, "--repair raises it.", _raise_generation)


@check(
    "I6",
    "The rules of the database are on",
    (
        "They refuse writes that a bug would make. They were switched off, or a restore left them "
        "out."
    ),
)
def find_missing_rules() -> Iterator[Finding]:
    there = {
        (row.on_table.removeprefix("public."), row.name): row.enabled
        for row in run(TRIGGERS, prepare=False)
    }
    for table, names in RULES.items():
        for name in names:
            enabled = there.get((table, name))
            if enabled is None:
                yield Finding(
                    f"trigger {name} on {table}",
                    "is missing",
                    "Restore a whole dump, or create the rule again from its migration.",
                )
            elif enabled not in ("O", "A"):
                yield Finding(
                    f"trigger {name} on {table}",
                    "is switched off",
                    "--repair switches it on.",
                    partial(_switch_on, table, name),
                )
    checks = {
        row.name: row
        for row in run(CHECKS, {"names": [sound.name for sound in SOUND]}, prepare=False)
    }
    for sound in SOUND:
        found, where = checks.get(sound.name), f"constraint {sound.name} on {sound.table}"
        if found is None or not found.is_valid:
            yield Finding(
                where,
                "is missing",
                "Restore a whole dump, or create the rule again from its migration.",
            )
        elif found.body != sound.body():
            yield Finding(
                where,
                "has another condition than Berth declares",
                "--repair creates its function again.",
                partial(_restore_rules, sound),
            )


@check(
    "I20",
    "The last event of a slot names its holder",
    "The event log answers which claim held a slot at a time.",
)
def find_unnotified_holders() -> Iterator[Finding]:
    for row in run(UNNOTIFIED, prepare=False):
        now = f"held by claim {row.claim_id}" if row.claim_id is not None else row.state
        logged = (
            "names no claim" if row.after is None else f"says claim {row.logged_claim}, {row.after}"
        )
        yield Finding(
            f"slot {row.id}",
            f"is {now}; the log {logged}",
            "--repair writes the holder to the log.",
            partial(_record_holder, row.id),
        )


def _name(slots: list[int]) -> str:
    return (
        f"slot{'s' if len(slots) > 1 else ''} {', '.join(map(str, slots[:20]))}"
        f"{', ...' if len(slots) > 20 else ''}"
    )


def _drop_holder(claim: int) -> None:
    with transaction.atomic():
        rows = repairs_sql.drop_holder(
            claim=claim, drain=DRAIN, actor=current_actor(), reason=REASON
        )
        notify_freed(rows)


def _end_broken(claim_id: int) -> None:
    with transaction.atomic():
        held = lock_hold(claim_id)
        record(
            "repair",
            claim_id=claim_id,
            generation=held.claim.generation,
            before=held.claim.state,
            after="ended",
            reason=REASON,
        )
        end_hold(
            held,
            Ending(outcome="lost", verb="repair", reason=REASON),
            words="was lost while it applied",
        )


def _raise_generation() -> None:
    with transaction.atomic():
        repairs_sql.raise_generation()
        record("repair", reason=f"{REASON}: the sequence of generations was behind")


def _switch_on(table: str, name: str) -> None:
    with transaction.atomic():
        run(f"ALTER TABLE {table} ENABLE TRIGGER {name}", prepare=False)
        record("repair", reason=f"{REASON}: the rule {name} was off")


def _restore_rules(sound: RowConstraint) -> None:
    with transaction.atomic():
        run(sound.function(), prepare=False)
        record("repair", reason=f"{REASON}: the rules of {sound.name} were different")


def _record_holder(slot: int) -> None:
    repairs_sql.record_holder(slot=slot, actor=current_actor(), reason=REASON)
