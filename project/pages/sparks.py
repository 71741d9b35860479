"""How full a pool was lately: a small picture from the samples that are taken every minute."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from pools.models import Sample

WIDTH, HEIGHT, TOP = 80.0, 20.0, 2.0


@dataclass(frozen=True, slots=True)
class Spark:
    line: str
    area: str


def list_sparks(pool_ids: Iterable[int], since: datetime, now: datetime | None = None) -> dict[int, Spark]:
    found: dict[int, list[tuple[datetime, float]]] = defaultdict(list)
    rows = Sample.objects.filter(pool_id__in=list(pool_ids), is_hourly=False, at__gte=since).order_by("at")
    for pool_id, at, slots, held, reserved in rows.values_list("pool_id", "at", "slots", "held", "reserved"):
        found[pool_id].append((at, (held + reserved) / slots if slots else 0.0))
    return {pool: draw(points) for pool, points in found.items() if len(points) > 1}


def draw(points: list[tuple[datetime, float]]) -> Spark:
    """Over the time that is known, so that a new pool has a picture soon."""
    first, last = points[0][0], points[-1][0]
    length = max(1.0, (last - first).total_seconds())
    step = max(1, len(points) // 60)
    chosen = [*points[::step], points[-1]]
    drawn = [(WIDTH * (at - first).total_seconds() / length, HEIGHT - (HEIGHT - TOP) * min(1.0, share)) for at, share in chosen]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
    return Spark(line, f"0,{HEIGHT:.0f} {line} {WIDTH:.0f},{HEIGHT:.0f}")
