"""`roll:` of a pool's configuration: what becomes of members that were made from another
configuration than the present one. Pure.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pools.config.durations import format_duration
from pools.config.parsing import Faults, read_choice, read_duration, read_mapping

POLICIES = ("idle", "manual")
SECOND, MINUTE, DAY = 1.0, 60.0, 86400.0


@dataclass(frozen=True, slots=True)
class RollSpec:
    policy: str = "idle"  # idle: as soon as they are; manual: once a person says so
    ready_within: float = 15 * MINUTE  # a new member that is not ready by then stops the roll

    def as_config(self) -> dict[str, Any]:
        return {"policy": self.policy, "ready_within": format_duration(self.ready_within)}


DEFAULT = RollSpec()


def read_roll(value: Any, where: str, faults: Faults) -> RollSpec:
    if value is None:
        return DEFAULT
    given = read_mapping(
        {"policy": value} if isinstance(value, str) else value,
        where,
        ("policy", "ready_within"),
        faults,
    )
    policy = read_choice(given, where, "policy", faults, POLICIES, DEFAULT.policy)
    seconds = read_duration(given, where, "ready_within", faults, SECOND, DAY, DEFAULT.ready_within)
    return RollSpec(policy, seconds or DEFAULT.ready_within)


def fingerprint(
    kind: str, options: Mapping[str, Any], rolled: Collection[str], labels: Mapping[str, str]
) -> str:
    """Of what a member is made from: those options of its provider that may change, and the
    labels it is given.
    """
    made_from = {
        "kind": kind,
        "options": {name: options[name] for name in rolled if name in options},
        "labels": dict(labels),
    }
    return hashlib.sha256(
        json.dumps(made_from, sort_keys=True, ensure_ascii=False).encode()
    ).hexdigest()
