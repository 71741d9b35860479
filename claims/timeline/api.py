"""REST for the event log: newest first, or following the log in the order of transactions."""

from collections.abc import Iterable

from django.http import HttpResponse

from claims.timeline import schemas
from claims.timeline.queries import Filter, names_for, read_events, read_rows, where_of
from pools.access.permissions import require
from pools.http.endpoint import (
    LIMIT,
    MAX_PAGE_SIZE,
    describe,
    in_query,
    next_url,
    read_choices,
    read_integer,
    read_moment,
    read_position,
    read_text,
    show,
)
from pools.http.fast_view import FastRequest, LeanEndpoint, answer
from pools.lifecycle.selectors import get_pool
from project.kernel.db.guards import reporting
from project.kernel.errors import wrong_field
from project.kernel.events.log import EventRow, Position, now_position

BY = ("people", "controllers", "errors")
ID = {"type": "integer", "minimum": 1}
MOMENT = {"type": "string", "format": "date-time"}


class EventList(LeanEndpoint):
    @describe(
        "Events",
        {200: schemas.EventPage},
        query=[
            in_query(
                "limit",
                f"Events per page, up to {MAX_PAGE_SIZE}.",
                {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": LIMIT},
            ),
            in_query("cursor", "Only events older than this id, from `next`."),
            in_query(
                "after", "Follow the log: events committed after this position, oldest first."
            ),
            in_query("as_of", "The log as it was at this moment, with an offset.", MOMENT),
            in_query("since", "Only events since this moment, with an offset.", MOMENT),
            in_query("pool", "Name of the pool."),
            in_query("member", "Id of the member.", ID),
            in_query(
                "slot", "Id of the slot. With `as_of`, the first event names its holder then.", ID
            ),
            in_query("claim", "Id of the claim.", ID),
            in_query("actor", "User or controller, with any of the user's tokens."),
            in_query("verb", "Verb: bind, release, cordon, ..."),
            in_query("by", "Events of people, of controllers, or about problems.", choices=BY),
        ],
        problems=(404,),
        name="list_events",
        tag="events",
    )
    def get(self, call: FastRequest) -> HttpResponse:
        """Newest first. With `after`: oldest first, in the order of transactions, each event
        exactly once.

        The transaction that began to write first comes first, so a bind may precede the release
        that freed its slot. Order the events of one slot by `generation`: each bind raises it, and
        a release names the generation that it ends.
        """
        limit = read_integer(call, "limit", high=MAX_PAGE_SIZE) or LIMIT
        after, cursor = read_position(call, "after"), read_integer(call, "cursor")
        if after is not None and cursor is not None:
            raise wrong_field(
                "cursor", "cursor and after read in opposite directions.", "Send only one."
            )
        wanted = read_filter(call)
        with reporting():
            here = now_position()
            rows = (
                read_on(wanted, after, limit + 1)
                if after is not None
                else read_events(wanted, cursor, limit + 1)
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
    pool = get_pool(name) if (name := read_text(call, "pool")) else None
    if pool is not None:
        require(me, "read", pool)
    by = read_choices(call, "by", BY)
    return Filter(
        pools=me.visible_pools(),
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


def read_on(wanted: Filter, after: Position, limit: int) -> list[EventRow]:
    """Events after a position, oldest first, below the xmin of the snapshot: a transaction that is
    still open may commit events with lower positions.
    """
    tests, values = where_of(wanted)
    rest = f"""
        WHERE (tx, id) > (%(tx)s::text::xid8, %(id)s::bigint)
          AND tx < pg_snapshot_xmin(pg_current_snapshot()) AND {tests}
        ORDER BY kernel_event.tx, kernel_event.id LIMIT {limit}"""
    return read_rows(rest, values | {"tx": str(after.tx), "id": after.id})


def show_events(rows: Iterable[EventRow]) -> list[dict[str, object]]:
    found = list(rows)
    names = names_for(found)
    return [
        show(
            schemas.EventAnswer,
            row,
            position=str(row.position),
            pool=names.pools.get(row.pool_id or 0),
            member=names.members.get(row.member_id or 0, (None, 0))[0],
        )
        for row in found
    ]
