"""The page Events: the log with its filters, and the holders of slots at a past moment."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from django.http import HttpResponse
from django.template.loader import render_to_string
from django.utils import timezone

from claims.lifecycle.pages.claim_page import scope_of
from claims.timeline.as_of import busy, find_hold_at, pools_at
from claims.timeline.queries import Filter, list_lines
from pools.access.permissions import ADMIN, Identity
from pools.lifecycle.selectors import list_pools
from pools.models import Member, Pool
from pools.pages.base import PageRequest, page, signed_in
from project.kernel.live.regions import OpenedRegion, region
from project.kernel.validation import parse_moment

LINES = 50
DAY = timedelta(days=1)
BY = (("", "All"), ("people", "Users"), ("controllers", "Controllers"), ("errors", "Errors"))
KEYS = ("pool", "member", "claim", "slot", "actor", "verb")
STEPS = (("−1 h", -3600), ("−1 min", -60), ("+1 min", 60), ("+1 h", 3600))


@signed_in
def show_events(request: PageRequest) -> HttpResponse:
    identity = request.identity
    now = timezone.now()
    typed, by = request.GET.get("q", "")[:250], request.GET.get("by", "")
    by = by if by in dict(BY) else ""
    at = read_moment(request.GET.get("at", ""), now)
    before = read_id(request.GET.get("before", ""))
    kept = {key: value for key, value in (("q", typed), ("by", by)) if value}
    held, when = request.GET.get("held", "")[:120], at or now
    context: dict[str, Any] = {
        "query": typed,
        "by": by,
        "kept": kept,
        "kept_query": "".join(f"{key}={quote(value)}&" for key, value in kept.items()),
        "argument": urlencode(kept | ({} if before is None else {"before": before})),
        "at_moment": at,
        "is_live": at is None,
        "bys": links(kept, at),
        "picture": busy(filter_of(identity, typed, by), now - DAY, now),
        "ticks": ticks(now),
        "minute": minute_of(when, now),
        "steps": [(word, (when + timedelta(seconds=s)).isoformat()) for word, s in STEPS],
        "when": when,
        "now": now,
    }
    visible = identity.visible_pools()
    if held:
        found = find_hold_at(held, when, visible)
        answer = {"problem": found} if isinstance(found, str) else found
        context |= {"held": held, "answer": answer}
    if at is not None:
        pools = {pool.pk: pool for pool in list_pools(visible)}
        pictures = pools_at(pools, at)
        lines, more = list_lines(filter_of(identity, typed, by, at), limit=LINES, before_id=before)
        context |= {
            "pictures": [(pools[p.pool_id], p) for p in pictures if p.total]
            if pictures is not None
            else None,
            "held_then": sum(p.held for p in pictures or []),
            "total_then": sum(p.total for p in pictures or []),
            "lines": lines,
            "more": more,
        }
    return page(request, "dashboard/events_page.html", "events", **context)


def read_id(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def read_moment(text: str, now: datetime) -> datetime | None:
    """The moment in `text`, at most the present; UTC without a zone. None: the page is live."""
    if not text:
        return None
    if text == "now":
        return now
    moment = parse_moment(text.replace(" ", "+"))
    if moment is None:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(moment, now)


def minute_of(at: datetime, now: datetime) -> int:
    return max(0, min(1440, 1440 - round((now - at).total_seconds() / 60)))


def ticks(now: datetime) -> list[datetime]:
    return [now - DAY * (1 - i / 6) for i in range(6)]


def links(kept: dict[str, str], at: datetime | None) -> list[tuple[str, str, str, bool]]:
    found = []
    for name, word in BY:
        query = kept | {"by": name} | ({"at": at.isoformat()} if at else {})
        given = urlencode({key: value for key, value in query.items() if value})
        found.append((name, word, given, kept.get("by", "") == name))
    return found


def filter_of(
    identity: Identity, typed: str, by: str = "", until: datetime | None = None
) -> Filter:
    """The filter of a query like "pool:env-test member:env-eu-1 claim:88 actor:ana verb:cordon". An
    unknown pool or member matches no event.
    """
    words = [word.partition(":") for word in typed.split()]
    keys = {key: value for key, _, value in words if key in KEYS}
    text = " ".join("".join(parts) for parts in words if parts[0] not in KEYS)
    visible = identity.visible_pools()
    pool = None
    if "pool" in keys:
        pool = Pool.objects.filter(name=keys["pool"]).order_by("-id").first()
    member_id = None
    if "member" in keys:
        found = Member.objects.filter(name=keys["member"])
        row = (found.filter(pool=pool) if pool else found).order_by("-id").first()
        member_id = row.pk if row else 0
    return Filter(
        pools=visible,
        reader=identity.requester,
        is_admin=ADMIN in identity.everywhere,
        pool_id=(pool.pk if pool else 0) if "pool" in keys else None,
        member_id=member_id,
        slot_id=number(keys.get("slot")),
        claim_id=number(keys.get("claim") or (text if text.isdecimal() else None)),
        actor=keys.get("actor", "") or ("" if text.isdecimal() else text),
        verb=keys.get("verb", ""),
        by=by,
        until=until,
    )


def number(text: str | None) -> int | None:
    if text is None:
        return None
    return int(text) if text.isdecimal() and len(text) < 19 else 0


@region("events")
def open_events(identity: Identity, argument: str) -> OpenedRegion | None:
    query = {key: values[0] for key, values in parse_qs(argument).items()}
    before = read_id(query.get("before", ""))
    subjects, scope = scope_of(identity)

    def render() -> str:
        wanted = filter_of(identity, query.get("q", ""), query.get("by", ""))
        lines, more = list_lines(wanted, limit=LINES, before_id=before)
        kept = {key: value for key, value in query.items() if key in ("q", "by")}
        return render_to_string(
            "dashboard/events.html",
            {
                "lines": lines,
                "query": kept.get("q", ""),
                "older": urlencode(kept | {"before": more}) if more else "",
                "now": timezone.now(),
            },
        )

    return OpenedRegion(f"events:{argument}", f"events:{argument}|{scope}", subjects, render, 0.5)
