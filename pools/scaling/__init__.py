"""How many members a pool should have: pure policies over frozen snapshots, limits and guards that are the same for all of them."""

from .decide import decide, force
from .model import Check, Decision, Gauge, Judged, Limits, Line, Member, Pace, Pin, Roll, Snapshot, Wish
from .policies import Fixed, OnDemand, Policy, Utilisation, Warm
from .roll import decide_roll
from .schedule import Occurrence, Window, find_open, list_occurrences
from .victims import list_next, order

__all__ = [
    "Check",
    "Decision",
    "Fixed",
    "Gauge",
    "Judged",
    "Limits",
    "Line",
    "Member",
    "Occurrence",
    "OnDemand",
    "Pace",
    "Pin",
    "Policy",
    "Roll",
    "Snapshot",
    "Utilisation",
    "Warm",
    "Window",
    "Wish",
    "decide",
    "decide_roll",
    "find_open",
    "force",
    "list_next",
    "list_occurrences",
    "order",
]  # fmt: skip
