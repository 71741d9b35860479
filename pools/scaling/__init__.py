"""How many members a pool should have: pure policies over frozen snapshots, and limits and guards
that all policies share.
"""

from .decide import decide, force
from .model import (
    DemandQueue,
    Gauge,
    MemberLimits,
    Pin,
    RemovalCandidate,
    Roll,
    ScaledMember,
    ScalingCheck,
    ScalingDecision,
    ScalingPace,
    ScalingTarget,
    Snapshot,
)
from .policies import Fixed, OnDemand, Policy, RenamedPolicy, Utilisation, Warm
from .roll import decide_roll
from .schedule import Occurrence, Window, find_open, list_occurrences
from .victims import list_next, order

__all__ = [
    "DemandQueue",
    "Fixed",
    "Gauge",
    "MemberLimits",
    "Occurrence",
    "OnDemand",
    "Pin",
    "Policy",
    "RemovalCandidate",
    "RenamedPolicy",
    "Roll",
    "ScaledMember",
    "ScalingCheck",
    "ScalingDecision",
    "ScalingPace",
    "ScalingTarget",
    "Snapshot",
    "Utilisation",
    "Warm",
    "Window",
    "decide",
    "decide_roll",
    "find_open",
    "force",
    "list_next",
    "list_occurrences",
    "order",
]  # fmt: skip
