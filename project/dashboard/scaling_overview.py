"""The page Scaling: all pools with their last decisions and orders, and the calendar of freezes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone

from claims.models import Lift
from claims.scaling.overview import (
    FILTERS,
    Filter,
    PoolScalingRow,
    PoolWindows,
    list_scaling_rows,
    list_windows,
    zones_of,
)
from pools.access.permissions import ACTIONS, Identity
from pools.models import Pool
from pools.pages.base import PageRequest, explain_missing_role, page, signed_in
from pools.scaling import Occurrence
from project.dashboard.actions import Action, describe_full, scaling_orders
from project.dashboard.regions import Context, pools_region, visible_pools
from project.kernel.ui.formatting import plural

VIEWS = {"pools": "Pools", "freezes": "Freezes"}
# What one pool, and what several pools of each filter have in common.
COUNTED: dict[Filter, tuple[str, str]] = {
    "attention": ("needs attention", "need attention"),
    "blocked": ("is blocked", "are blocked"),
    "orders": ("is pinned or paused", "are pinned or paused"),
    "frozen": ("is frozen", "are frozen"),
    "outdated": ("has outdated members", "have outdated members"),
}
WEEKS = 3  # weeks on the page
FARTHEST = 52  # weeks ahead
DAY, WEEK = timedelta(days=1), timedelta(days=7)
SOUGHT = re.compile(r"[a-z0-9._-]{0,63}")
SHOWN = 300  # lines; a search finds further pools
NEXT = 30
LABELLED = 5.0  # per cent of the week
MOMENT = "%a %-d %b %H:%M"


@signed_in
def show_scaling(request: PageRequest) -> HttpResponse:
    query: Mapping[str, str] = request.GET
    view = query.get("view", "pools") if query.get("view") in VIEWS else "pools"
    context: dict[str, Any] = {"view": view, "views": VIEWS.items()}
    if view == "pools":
        show = query.get("show", "all") if query.get("show") in FILTERS else "all"
        sought = query.get("q", "").strip().lower()
        sought = sought if SOUGHT.fullmatch(sought) else ""
        context |= {"show": show, "q": sought, "which": f"{show},{sought}"}
    else:
        zones = zones_of(visible_pools(request.identity))
        zone = query.get("zone", "UTC") if query.get("zone") in zones else "UTC"
        first = read_week(query.get("week", ""))
        context |= {
            "zone": zone,
            "zones": zones,
            "week": first,
            "which": f"{first},{zone}",
            "earlier": first - WEEKS,
            "later": first + WEEKS,
        }
        context["is_far"] = first + WEEKS > FARTHEST
    return page(request, "dashboard/scaling_overview_page.html", "scaling", **context)


def read_week(text: str) -> int:
    """The first week, as a number of weeks from now."""
    return min(FARTHEST, int(text)) if text.isdecimal() and text.isascii() and len(text) < 4 else 0


# -- pools -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScaledPoolRow:
    line: PoolScalingRow
    actions: list[Action]


def scaled_pools(identity: Identity) -> list[int] | None:
    """Ids of the pools that the viewer may scale; None: all pools."""
    ids = identity.pools_with(ACTIONS["scale"])
    return None if ids is None else sorted(ids)


def facts(identity: Identity, argument: str) -> Context:
    lines = list_scaling_rows(visible_pools(identity), timezone.now())
    return {
        "pools": sum(bool(line.policy) for line in lines),
        "grown": sum(line.grown for line in lines),
        "shrunk": sum(line.shrunk for line in lines),
        "counts": [
            f"{plural(n, 'pool')} {one if n == 1 else several}"
            for name, (one, several) in COUNTED.items()
            if (n := sum(line.fits(name) for line in lines))
        ],
    }


def is_selection(identity: Identity, argument: str) -> bool:
    show, _, sought = argument.partition(",")
    return show in FILTERS and SOUGHT.fullmatch(sought) is not None


def pools(identity: Identity, argument: str) -> Context:
    """Argument: the filter, comma, a part of the names of pools."""
    show, _, sought = argument.partition(",")
    assert show in FILTERS  # `is_selection` checks it
    lines = list_scaling_rows(visible_pools(identity), timezone.now())
    chips = [(name, word, sum(line.fits(name) for line in lines)) for name, word in FILTERS.items()]
    found = [line for line in lines if line.fits(show) and sought in line.pool.name]
    return {
        "rows": [ScaledPoolRow(line, quick_actions(identity, line)) for line in found[:SHOWN]],
        "more": max(0, len(found) - SHOWN),
        "chips": chips,
        "show": show,
        "q": sought,
        "now": timezone.now(),
        "is_any": bool(lines),
    }


def quick_actions(identity: Identity, line: PoolScalingRow) -> list[Action]:
    """Orders of operators for a pool. An action that is off gives the reason."""
    pool, role = line.pool, explain_missing_role(identity, "scale", line.pool.pk)
    found: dict[str, str] = {}
    if line.policy:
        frozen = "The pool is frozen. Lift the freeze first." if line.is_frozen else ""
        is_paused = pool.scaling_paused_until is not None and pool.scaling_paused_until > line.now
        found = {
            "grow": role or frozen or describe_full(line.members.there, line.high),
            "unpin" if line.is_pinned else "pin": role,
            "resume" if is_paused else "pause": role,
        }
    if line.is_frozen:
        found["unfreeze"] = role
    if line.outdated or pool.surge_id is not None or pool.roll_stopped_at is not None:
        found["roll"] = role
        found["resume-roll" if line.is_roll_paused else "pause-roll"] = role
    return scaling_orders(pool, found, is_brief=True)


# -- freezes ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bar:
    """A window in the calendar; `x` and `width` are per cent of the week."""

    occurrence: Occurrence
    css: str  # frozen, limits
    x: float
    width: float
    is_open: bool
    is_lifted: bool

    @property
    def has_room(self) -> bool:
        """Whether the bar shows its label, not only the title."""
        return self.width >= LABELLED

    @property
    def limits(self) -> tuple[int | str, int | str]:
        low, high = self.occurrence.window.low, self.occurrence.window.high
        return "–" if low is None else low, "–" if high is None else high

    @property
    def label(self) -> str:
        return (
            self.occurrence.window.name or "frozen"
            if self.css == "frozen"
            else "{}–{}".format(*self.limits)
        )

    @property
    def title(self) -> str:
        limits = ": {} to {} members".format(*self.limits) if self.css == "limits" else ""
        return f"{self.occurrence.window.words}{limits}{', lifted' if self.is_lifted else ''}"


@dataclass(frozen=True, slots=True)
class CalendarRow:
    pool: Pool
    bars: list[Bar]


@dataclass(frozen=True, slots=True)
class Week:
    title: str
    days: list[date]
    today: int | None
    mark: float | None  # the present moment, in per cent of the week
    rows: list[CalendarRow]


@dataclass(frozen=True, slots=True)
class UpcomingFreeze:
    """A freeze that is open or comes."""

    pool: Pool
    occurrence: Occurrence
    starts: str  # in the time zone of the window
    ends: str
    is_open: bool
    is_lifted: bool
    lift: Lift | None  # the order that lifted this occurrence
    action: Action | None


def is_calendar(identity: Identity, argument: str) -> bool:
    number, _, name = argument.partition(",")
    return (
        number.isdecimal() and int(number) <= FARTHEST and name in zones_of(visible_pools(identity))
    )


def freezes_context(identity: Identity, argument: str) -> Context:
    """Argument: weeks from now, comma, the time zone of the calendar."""
    number, _, name = argument.partition(",")
    found = visible_pools(identity)
    zone, now = ZoneInfo(name), timezone.now()
    today = now.astimezone(zone).date()
    monday = today - timedelta(days=today.weekday()) + int(number) * WEEK
    starts = [datetime.combine(monday + i * WEEK, time(), zone) for i in range(WEEKS + 1)]
    windows = list_windows(found, starts[0], starts[-1])
    weeks = [draw_week(start, end, zone, windows, now) for start, end in pairwise(starts)]
    return {
        "weeks": weeks,
        "coming": list(list_upcoming_freezes(identity, windows, now))[:NEXT],
        "zone": name,
        "now": now,
    }


def draw_week(
    start: datetime, end: datetime, zone: ZoneInfo, windows: list[PoolWindows], now: datetime
) -> Week:
    """A week in local time. All days have equal widths, also those with 23 or 25 hours."""

    def place(moment: datetime) -> float:
        wall = moment.astimezone(zone).replace(tzinfo=None) - start.replace(tzinfo=None)
        return min(100.0, max(0.0, round(100 * (wall / WEEK), 3)))

    rows = []
    for each in windows:
        bars = []
        for css, occurrences in (("limits", each.limits), ("frozen", each.freezes)):
            for occurrence in occurrences:
                if occurrence.start < end and occurrence.end > start:
                    x = place(occurrence.start)
                    is_open = occurrence.start <= now < occurrence.end
                    is_lifted = css == "frozen" and each.is_lifted(occurrence, now)
                    bars.append(
                        Bar(
                            occurrence,
                            css,
                            x,
                            round(place(occurrence.end) - x, 3),
                            is_open,
                            is_lifted,
                        )
                    )
        rows.append(CalendarRow(each.pool, bars))
    first = start.date()
    days = [first + i * DAY for i in range(7)]
    is_now = start <= now < end
    title = f"{first:%-d %b} to {days[-1]:%-d %b %Y}"
    return Week(
        title,
        days,
        now.astimezone(zone).weekday() if is_now else None,
        place(now) if is_now else None,
        rows,
    )


def list_upcoming_freezes(
    identity: Identity, windows: list[PoolWindows], now: datetime
) -> Iterator[UpcomingFreeze]:
    found = [
        (each, occurrence)
        for each in windows
        for occurrence in each.freezes
        if occurrence.end > now
    ]
    for each, occurrence in sorted(found, key=lambda pair: (pair[1].start, pair[0].pool.name)):
        pool, is_lifted = each.pool, each.is_lifted(occurrence, now)
        own, is_open = ZoneInfo(occurrence.window.zone), occurrence.start <= now
        is_frozen = is_open and pool.frozen_until is not None
        named = (
            ""
            if is_frozen and not is_lifted
            else "?" + urlencode({"starts": occurrence.start.isoformat()})
        )
        href = (
            reverse("scaling-refreeze" if is_lifted else "scaling-unfreeze", args=[pool.name])
            + named
        )
        why = explain_missing_role(identity, "scale", pool.pk)
        action: Action | None = Action("Restore freeze…", href, why=why)
        if not is_lifted:  # no action while the scaler has not applied an open freeze yet
            is_to_act = (
                not is_open
                or is_frozen
                or (pool.unfrozen_until is not None and pool.unfrozen_until > now)
            )
            action = Action("Lift freeze…", href, why=why, is_dangerous=True) if is_to_act else None
        yield UpcomingFreeze(
            pool,
            occurrence,
            f"{occurrence.start.astimezone(own):{MOMENT}}",
            f"{occurrence.end.astimezone(own):{MOMENT}}",
            is_open,
            is_lifted,
            each.lifts.get(occurrence.start),
            action,
        )


pools_region(
    "scaling.facts", "dashboard/scaling_overview_facts.html", facts, 2.0, scope=scaled_pools
)
pools_region(
    "scaling.pools",
    "dashboard/scaling_overview_pools.html",
    pools,
    1.0,
    scope=scaled_pools,
    is_valid=is_selection,
)
pools_region(
    "scaling.freezes",
    "dashboard/scaling_overview_freezes.html",
    freezes_context,
    2.0,
    scope=scaled_pools,
    is_valid=is_calendar,
)
