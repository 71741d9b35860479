"""Read the event log for pages. Events store ids; these functions add the names."""

from collections.abc import Iterable, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from claims.timeline.messages import (
    AGENT,
    CONTROLLERS,
    DisplayNames,
    EventLine,
    SlotPlace,
    group,
    phrase,
)
from project.kernel.db.sql import run
from project.kernel.events.log import EventRow, first_id_at, row_of
from project.kernel.events.verbs import private_verbs, verbs_with

# In the order of EventRow. `tx` has another name in the output, because ORDER BY prefers names of
# the output to columns of the table.
COLUMNS = """tx::text::bigint AS position, id, at, verb, pool_id, member_id, slot_id, claim_id,
  generation, before, after, actor, reason, data::text AS data"""


Ids = Iterable[int | None]


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects events. `pools`: the pools that the reader may see; None: all."""

    pools: Set[int] | None = None
    reader: str = ""
    is_admin: bool = False
    pool_id: int | None = None
    member_id: int | None = None
    slot_id: int | None = None
    claim_id: int | None = None
    actor: str = ""
    verb: str = ""
    without_routine: bool = False
    by: str = ""  # people | controllers | errors
    since: datetime | None = None
    until: datetime | None = None


def where_of(wanted: Filter) -> tuple[str, dict[str, object]]:
    """The conditions of a WHERE clause and their parameters."""
    tests, values = ["true"], dict[str, object]()

    def test(text: str, **named: object) -> None:
        tests.append(text)
        values.update(named)

    if wanted.pools is not None:
        test(
            "(pool_id = ANY (%(pools)s::bigint[]) OR actor = %(reader)s)",
            pools=sorted(wanted.pools),
            reader=wanted.reader,
        )
    if not wanted.is_admin:
        test(
            "(verb <> ALL (%(access)s::text[]) OR actor = %(reader)s)",
            access=list(private_verbs()),
            reader=wanted.reader,
        )
    for name in ("pool_id", "member_id", "slot_id", "claim_id"):
        if (number := getattr(wanted, name)) is not None:
            test(f"{name} = %({name})s", **{name: number})
    if wanted.actor:
        test("(actor = %(actor)s OR starts_with(actor, %(actor)s || '/'))", actor=wanted.actor)
    if wanted.verb:
        test("verb = %(verb)s", verb=wanted.verb)
    if wanted.without_routine:
        test("verb <> ALL (%(routine)s::text[])", routine=list(verbs_with("is_routine")))
    if wanted.by == "errors":
        test(
            "(verb = ANY (%(problems)s::text[]) OR after IN ('lost', 'retired', 'failed'))",
            problems=list(verbs_with("is_problem")),
        )
    elif wanted.by:
        machine = (
            "(split_part(actor, '/', 1) = ANY (%(controllers)s::text[]) OR "
            "starts_with(actor, %(agent)s))"
        )
        test(
            f"NOT {machine}" if wanted.by == "people" else machine,
            controllers=sorted(CONTROLLERS),
            agent=AGENT,
        )
    if wanted.since:
        test("id >= %(first)s", first=first_id_at(wanted.since))
    if wanted.until:
        test("id < %(last)s", last=first_id_at(wanted.until))
    return " AND ".join(tests), values


def list_lines(
    wanted: Filter, *, limit: int = 50, before_id: int | None = None
) -> tuple[list[EventLine], int | None]:
    """Lines, newest first, and the `before_id` of the next page; None: the last page."""
    found = read_events(wanted, before_id, limit + 1)
    rows = found[:limit]
    more = rows[-1].id if len(found) > limit else None
    grouped = group(rows)
    names = names_for(row for row, _ in grouped)
    return [phrase(row, names, count) for row, count in grouped], more


def read_events(wanted: Filter, before_id: int | None, limit: int) -> list[EventRow]:
    """Events, newest first."""
    tests, values = where_of(wanted)
    if before_id is not None:
        tests, values = f"{tests} AND id < %(before_id)s", values | {"before_id": before_id}
    return read_rows(f"WHERE {tests} ORDER BY id DESC LIMIT {limit}", values)


def read_rows(rest: str, values: dict[str, object]) -> list[EventRow]:
    """`rest`: the statement from WHERE on, in which every value is a parameter."""
    text = f"SELECT {COLUMNS} FROM kernel_event {rest}"  # noqa: S608
    return [row_of(row) for row in run(text, values, prepare=False)]


def names_for(rows: Iterable[EventRow]) -> DisplayNames:
    found = list(rows)
    places = {
        row.id: SlotPlace(row.member_id, row.lane, row.number)
        for row in _by_ids(
            "SELECT id, member_id, lane, number FROM slots_slot WHERE id = ANY (%(ids)s::bigint[])",
            (row.slot_id for row in found),
        )
    }
    of_member = {
        row.id: (row.name, row.pool_id)
        for row in _by_ids(
            "SELECT id, name, pool_id FROM pools_member WHERE id = ANY (%(ids)s::bigint[])",
            [*(row.member_id for row in found), *(place.member_id for place in places.values())],
        )
    }
    of_pool = {
        row.id: row.name
        for row in _by_ids(
            "SELECT id, name FROM pools_pool WHERE id = ANY (%(ids)s::bigint[])",
            [*(row.pool_id for row in found), *(pool for _, pool in of_member.values())],
        )
    }
    return DisplayNames(of_pool, of_member, places, owners_of(row.claim_id for row in found))


def owners_of(claims: Ids) -> dict[int, str]:
    """The name shown beside a claim's id: workspace, owner or requester."""
    text = """
    SELECT c.id, c.owner, c.requested_by, w.name AS workspace FROM claims_claim c
      LEFT JOIN claims_workspace w ON w.id = c.workspace_id
    WHERE c.id = ANY (%(ids)s::bigint[])"""
    return {row.id: row.workspace or row.owner or row.requested_by for row in _by_ids(text, claims)}


def _by_ids(text: str, ids: Ids) -> list[Any]:
    known = sorted({number for number in ids if number is not None})
    return run(text, {"ids": known}) if known else []
