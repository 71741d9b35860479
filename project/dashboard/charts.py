"""Sparklines and charts of pools as SVG paths, drawn from the samples of each minute."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pools.models import Sample

P = TypeVar("P", bound=tuple[Any, ...])  # a sample; its first item is the moment

WIDTH, HEIGHT, TOP = 80.0, 20.0, 2.0
HOURS = 6
MOST_POINTS = 180
LABEL_GAP = 12.0  # per cent of the height between two labels, at least
# Two samples farther apart than this are not connected, because the time between is unknown.
GAP = timedelta(minutes=3)


Present = tuple[int, int, int, int]  # slots, held, reserved, waiting


@dataclass(frozen=True, slots=True)
class Sparkline:
    line: str  # SVG paths with a part for each stretch without a gap
    area: str


@dataclass(frozen=True, slots=True)
class Label:
    """A label at the end of a line."""

    text: str
    y: float  # per cent from below


@dataclass(frozen=True, slots=True)
class Charts:
    """The chart of use, and the chart of demand and capacity; 1000 wide, 100 high."""

    reserved: str
    held: str
    edge: str
    use: Label
    wanted_area: str
    wanted_line: str
    capacity: str
    wanted: Label
    slots: Label
    ticks: list[datetime]


def list_sparklines(pool_ids: Iterable[int], since: datetime) -> dict[int, Sparkline]:
    found: dict[int, list[tuple[datetime, float]]] = defaultdict(list)
    rows = Sample.objects.filter(
        pool_id__in=list(pool_ids), is_hourly=False, at__gte=since
    ).order_by("at")
    for pool_id, at, slots, held, reserved in rows.values_list(
        "pool_id", "at", "slots", "held", "reserved"
    ):
        found[pool_id].append((at, (held + reserved) / slots if slots else 0.0))
    return {pool: draw_sparkline(points) for pool, points in found.items() if len(points) > 1}


def draw_sparkline(points: list[tuple[datetime, float]]) -> Sparkline:
    """A sparkline from the first to the last sample, so that a new pool soon has a picture."""
    first, last = points[0][0], points[-1][0]
    length = max(1.0, (last - first).total_seconds())
    lines, areas = list[str](), list[str]()
    for part in thin_parts(points, 60):
        drawn = [
            (
                WIDTH * (at - first).total_seconds() / length,
                HEIGHT - (HEIGHT - TOP) * min(1.0, share),
            )
            for at, share in part
        ]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
        lines.append(path(line))
        areas.append(f"M{drawn[0][0]:.1f},{HEIGHT:.0f} {line} {drawn[-1][0]:.1f},{HEIGHT:.0f}Z")
    return Sparkline("".join(lines), "".join(areas))


def draw_charts(pool_id: int, now: datetime, present: Present | None = None) -> Charts | None:
    """The charts of a pool, or None with fewer than three samples, or without slots and demand.

    `present`: the counts of this moment, because the last sample is up to a minute old.
    """
    fields = ("at", "slots", "held", "reserved", "waiting")
    rows = (
        Sample.objects.filter(
            pool_id=pool_id, is_hourly=False, at__gte=now - timedelta(hours=HOURS)
        )
        .order_by("at")
        .values_list(*fields)
    )
    points = list(rows)
    if present is not None and points:
        points.append((now, *present))
    if len(points) < 3:
        return None
    first, last = points[0][0], points[-1][0]
    length = max(1.0, (last - first).total_seconds())
    parts = thin_parts(points, MOST_POINTS)

    def x(at: datetime) -> float:
        return 1000 * (at - first).total_seconds() / length

    tallest = max(
        max(slots, held + reserved + waiting) for _, slots, held, reserved, waiting in points
    )
    if not tallest:
        return None
    scale = 94 / tallest
    paths: dict[str, str] = dict.fromkeys(
        ("reserved", "held", "edge", "wanted_area", "wanted_line", "capacity"), ""
    )
    for part in parts:
        low, top, wanted, capacity = (list[tuple[float, float]]() for _ in range(4))
        for at, slots, held, reserved, waiting in part:
            place, used = x(at), held + reserved
            low.append((place, 100 * held / slots if slots else 0.0))
            top.append((place, 100 * used / slots if slots else 0.0))
            wanted.append((place, scale * (used + waiting)))
            if capacity:  # a step, because the slots change at once
                capacity.append((place, capacity[-1][1]))
            capacity.append((place, scale * slots))
        ground = f"{low[-1][0]:.0f},100 {low[0][0]:.0f},100Z"
        paths["reserved"] += f"M{outline(top)} {outline(reversed(low))}Z"
        paths["held"] += f"M{outline(low)} {ground}"
        paths["edge"] += path(outline(top))
        paths["wanted_area"] += f"M{outline(wanted)} {ground}"
        paths["wanted_line"] += path(outline(wanted))
        paths["capacity"] += path(outline(capacity))
    end = points[-1]
    used, demand = end[2] + end[3], end[2] + end[3] + end[4]
    share = 100 * used / end[1] if end[1] else 0.0
    steps = 3 if length > 4 * 60 else 1  # ticks show minutes, and no two may be equal
    apart = spread(scale * demand, scale * end[1])
    return Charts(
        **paths,
        use=Label(f"{share:.1f} %", min(96.0, share)),
        wanted=Label(f"{demand:,}", apart[0]),
        slots=Label(f"{end[1]:,}", apart[1]),
        ticks=[first + (last - first) * i / steps for i in range(steps + 1)],
    )


def outline(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.0f},{100 - y:.1f}" for x, y in points)


def path(line: str) -> str:
    """An SVG path. A single point becomes a dash, because it would be invisible."""
    return f"M{line}" if " " in line else f"M{line}h1"


def spread(one: float, other: float) -> tuple[float, float]:
    """Positions of two labels that are at least `LABEL_GAP` apart."""
    if abs(one - other) >= LABEL_GAP:
        return one, other
    half = LABEL_GAP / 2
    middle = min(100 - LABEL_GAP, max(half, (one + other) / 2))
    return (middle + half, middle - half) if one >= other else (middle - half, middle + half)


def thin_parts(points: Sequence[P], most: int) -> list[list[P]]:
    """The stretches of time without a gap, thinned to about `most` points in all. Each keeps its
    first and last point.
    """
    parts: list[list[P]] = []
    for point in points:
        if not parts or point[0] - parts[-1][-1][0] > GAP:
            parts.append([])
        parts[-1].append(point)
    step = max(1, len(points) // most)
    return [[*part[::step], *([part[-1]] if (len(part) - 1) % step else [])] for part in parts]
