"""Lifted freezes. A lift applies to one freeze window, open or future, and names its start."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.db.models.functions import Now

from claims.models import Lift
from pools.config.scaling_spec import Scaling
from pools.scaling import Occurrence, list_occurrences

AHEAD = timedelta(days=366)
NAMED = 5  # starts listed in an error


def list_lifts(pool_ids: Iterable[int]) -> dict[int, list[Lift]]:
    """The lifts of windows that have not ended, by pool, ordered by start."""
    found: dict[int, list[Lift]] = defaultdict(list)
    for lift in Lift.objects.filter(pool_id__in=list(pool_ids), ends_at__gt=Now()).order_by(
        "starts_at"
    ):
        found[lift.pool_id].append(lift)
    return found


def list_freezes(scaling: Scaling | None, now: datetime) -> list[Occurrence]:
    """The freeze windows that are open or begin within a year."""
    if scaling is None:
        return []
    return [each for each in list_occurrences(scaling.freeze, now, now + AHEAD) if each.end > now]


def name_starts(starts: Iterable[datetime]) -> str:
    """The first starts, for the error about a window that does not exist."""
    first = list(dict.fromkeys(starts))[:NAMED]
    return ", ".join(f"{start:%Y-%m-%dT%H:%M:%SZ}" for start in first)


def lift_of(lifts: Mapping[int, list[Lift]], pool_id: int, starts_at: datetime) -> Lift | None:
    return next((lift for lift in lifts.get(pool_id, ()) if lift.starts_at == starts_at), None)
