"""How many members a pool should have: pure policies over frozen snapshots, limits and guards that are the same for all of them."""

from .decide import decide, force
from .model import Check, Decision, Gauge, Judged, Limits, Line, Member, Pace, Pin, Snapshot, Wish
from .policies import Fixed, OnDemand, Policy, Utilisation, Warm
from .schedule import Window, find_open
from .victims import list_next, order

__all__ = [
    "Check", "Decision", "Fixed", "Gauge", "Judged", "Limits", "Line", "Member", "OnDemand", "Pace", "Pin", "Policy", "Snapshot",
    "Utilisation", "Warm", "Window", "Wish", "decide", "find_open", "force", "list_next", "order",
]  # fmt: skip
