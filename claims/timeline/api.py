"""The log of events: what happened, in the order of commits or back from now."""

from collections.abc import Iterable
from typing import Any

from django.http import HttpResponse

from claims.timeline import schemas
from claims.timeline.queries import Filter, names_for, where_of
from pools.access.permissions import require
from pools.http.endpoint import (
    LIMIT,
    MOST,
    describe,
    in_query,
    next_url,
    read_choices,
    read_integer,
    read_moment,
    read_position,
    read_text,
)
from pools.http.fast_view import FastRequest, LeanEndpoint, answer
from pools.lifecycle.selectors import get_pool
from project.kernel.db.guards import reporting
from project.kernel.db.sql import run
from project.kernel.errors import FieldError, Invalid
from project.kernel.events.log import EventRow, Position, now_position, row_of

# As EventRow has them. Not called like the columns: ORDER BY would take the names of the output for
# those of the table.
COLUMNS = """tx::text::bigint AS position, id, at, verb, pool_id, member_id, slot_id, claim_id, generation, before, after, actor, reason,
  data::text AS data"""  # noqa: E501
BY = ("people", "controllers", "errors")
ID: dict[str, Any] = {"type": "integer", "minimum": 1}
MOMENT: dict[str, Any] = {"type": "string", "format": "date-time"}


class EventList(LeanEndpoint):
    @describe(
        "Events",
        {200: schemas.EventPage},
        query=[
            in_query(
                "limit",
                f"How many at a time, up to {MOST}.",
                {"type": "integer", "minimum": 1, "maximum": MOST, "default": LIMIT},
            ),
            in_query("cursor", "Older than this id, as `next` says it."),
            in_query(
                "after", "Follow the log: what was committed after this position, oldest first."
            ),
            in_query("as_of", "As the log stood at this moment, with an offset.", MOMENT),
            in_query("since", "Not before this moment, with an offset.", MOMENT),
            in_query("pool", "About this pool."),
            in_query("member", "About this member.", ID),
            in_query("slot", "About this slot: with as_of the first one says who held it.", ID),
            in_query("claim", "About this claim.", ID),
            in_query("actor", "By this user or controller, with whatever token."),
            in_query("verb", "Of this kind: bind, release, cordon, ..."),
            in_query("by", "By people, by controllers, or what went wrong.", choices=BY),
        ],
        problems=(404,),
        name="list_events",
        tag="events",
    )
    def get(self, call: FastRequest) -> HttpResponse:
        """The newest first. With `after` the other way round, in the order of transactions: nothing
        is missed and nothing comes twice.

        A transaction that began to write earlier comes first, so a bind may come before the release
        that freed its slot. Events of one slot are in order by `generation`: each hand-over raises
        it, and the release names the generation that it ends.
        """
        limit = read_integer(call, "limit", high=MOST) or LIMIT
        after, cursor = read_position(call, "after"), read_integer(call, "cursor")
        if after is not None and cursor is not None:
            raise Invalid(
                fields=[FieldError("cursor", "It goes back, after goes on.", "Give one of them.")]
            )
        wanted = read_filter(call)
        with reporting():
            here = now_position()
            rows = (
                read_on(wanted, after, limit + 1)
                if after is not None
                else read_back(wanted, cursor, limit + 1)
            )
            shown = show_events(rows[:limit])
        is_more = len(rows) > limit
        if after is not None:
            position = rows[:limit][-1].position if rows else after
            following = next_url(call, str(position), "after") if is_more else None
        else:
            position = here
            following = next_url(call, rows[limit - 1].id) if is_more else None
        return answer({"results": shown, "next": following, "position": str(position)})


def read_filter(call: FastRequest) -> Filter:
    me = call.identity
    visible = me.visible_pools()
    pool = get_pool(name) if (name := read_text(call, "pool")) else None
    if pool is not None:
        require(me, "read", pool)
    by = read_choices(call, "by", BY)
    return Filter(
        pools=None if visible is None else frozenset(visible),
        reader=me.actor,
        is_admin=me.may("grant", None),
        pool_id=None if pool is None else pool.pk,
        member_id=read_integer(call, "member"),
        slot_id=read_integer(call, "slot"),
        claim_id=read_integer(call, "claim"),
        actor=read_text(call, "actor"),
        verb=read_text(call, "verb"),
        by=by[0] if by else "",
        since=read_moment(call, "since"),
        until=read_moment(call, "as_of"),
    )


def read_back(wanted: Filter, before: int | None, limit: int) -> list[EventRow]:
    tests, values = where_of(wanted)
    if before is not None:
        tests, values = f"{tests} AND id < %(before)s", values | {"before": before}
    # Our own texts.
    return read_rows(
        f"SELECT {COLUMNS} FROM kernel_event WHERE {tests} ORDER BY id DESC LIMIT {limit}",  # noqa: S608
        values,
    )


def read_on(wanted: Filter, after: Position, limit: int) -> list[EventRow]:
    """Only what is below the snapshot's xmin: ids are not in the order of commits."""
    tests, values = where_of(wanted)
    text = f"""SELECT {COLUMNS} FROM kernel_event
        WHERE (tx, id) > (%(tx)s::text::xid8, %(id)s::bigint)
          AND tx < pg_snapshot_xmin(pg_current_snapshot()) AND {tests}
        ORDER BY kernel_event.tx, kernel_event.id LIMIT {limit}"""  # noqa: S608
    return read_rows(text, values | {"tx": str(after.tx), "id": after.id})


def read_rows(text: str, values: dict[str, Any]) -> list[EventRow]:
    return [row_of(tuple(row)) for row in run(text, values, prepare=False)]


def show_events(rows: Iterable[EventRow]) -> list[dict[str, Any]]:
    found = list(rows)
    names = names_for(found)
    return [
        {
            "position": str(row.position),
            "id": row.id,
            "at": row.at,
            "verb": row.verb,
            "actor": row.actor,
            "before": row.before,
            "after": row.after,
            "reason": row.reason,
            "pool": names.pools.get(row.pool_id or 0),
            "pool_id": row.pool_id,
            "member": names.members.get(row.member_id or 0, (None, 0))[0],
            "member_id": row.member_id,
            "slot_id": row.slot_id,
            "claim_id": row.claim_id,
            "generation": row.generation,
            "data": row.data,
        }
        for row in found
    ]
