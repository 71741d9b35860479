"""`roll:` of a pool's configuration: the renewal of members that were made from an older
configuration. Pure.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pools.config.durations import DAY, MINUTE
from pools.config.fields import Object, option
from pools.config.parsing import Choice, Duration


@dataclass(frozen=True, slots=True)
class RollSpec:
    policy: str = option(
        Choice(("idle", "manual")),
        "idle",
        "Outdated members are renewed once they are idle, or on an operator's order.",
    )
    ready_within: float = option(
        Duration(1.0, DAY),
        15 * MINUTE,
        "The renewal stops if a new member is not ready in this time.",
    )


DEFAULT = RollSpec()
ROLL = Object(RollSpec, short="policy")


def fingerprint(
    kind: str, options: Mapping[str, object], rolled: Collection[str], labels: Mapping[str, str]
) -> str:
    """Digest of the parts that a member is made from: the labels and those options of the
    provider that may change.
    """
    made_from = {
        "kind": kind,
        "options": {name: options[name] for name in rolled if name in options},
        "labels": dict(labels),
    }
    return hashlib.sha256(
        json.dumps(made_from, sort_keys=True, ensure_ascii=False).encode()
    ).hexdigest()
