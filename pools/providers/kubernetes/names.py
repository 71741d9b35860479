"""Names and labels of pods. The name is for people, the labels identify the member. Pure.

Berth only touches objects with the label of its installation. The name consists of pool, member and
incarnation, so a repeated create finds the pod of an attempt that lost its answer. A short hash
separates member c of pool a-b from member b-c of pool a, and installations from each other.
"""

import hashlib
import re

from pools.providers.base import MemberSnapshot, PoolSnapshot
from project.kernel.kubernetes.objects import Object, name_of, uid_of

LABEL_PREFIX = "berth.dev/"
MANAGED_BY, BERTH = "app.kubernetes.io/managed-by", "berth"
INSTALLATION, POOL, MEMBER, INCARNATION = (
    f"{LABEL_PREFIX}installation",
    f"{LABEL_PREFIX}pool",
    f"{LABEL_PREFIX}member",
    f"{LABEL_PREFIX}incarnation",
)
# Annotations for people.
POOL_NAME, MEMBER_NAME = f"{LABEL_PREFIX}pool-name", f"{LABEL_PREFIX}member-name"
UNNAMED = "berth"  # an installation without a name
LONGEST = 63
HASH = 6


def is_reserved(label: str) -> bool:
    return label.startswith(LABEL_PREFIX) or label == MANAGED_BY


def installation_of(pool: PoolSnapshot) -> str:
    return pool.installation or UNNAMED


def pod_name(pool: PoolSnapshot, member: MemberSnapshot, incarnation: int | None = None) -> str:
    number = member.incarnation if incarnation is None else incarnation
    identity = f"{installation_of(pool)}/{pool.id}/{member.id}"
    tail = f"-{hashlib.sha256(identity.encode()).hexdigest()[:HASH]}" + (
        f"-{number}" if number > 1 else ""
    )
    words = re.sub(r"[^a-z0-9]+", "-", f"{pool.name}-{member.name}".lower()).strip("-")
    return f"{words[: LONGEST - len(tail)].rstrip('-')}{tail}".lstrip("-")


def labels_of(pool: PoolSnapshot, member: MemberSnapshot) -> dict[str, str]:
    return {
        MANAGED_BY: BERTH,
        INSTALLATION: installation_of(pool),
        POOL: str(pool.id),
        MEMBER: str(member.id),
        INCARNATION: str(member.incarnation),
    }


def select_all(installation: str) -> str:
    return f"{MANAGED_BY}={BERTH},{INSTALLATION}={installation}"


def select_pool(pool: PoolSnapshot) -> str:
    return f"{select_all(installation_of(pool))},{POOL}={pool.id}"


def select_member(pool: PoolSnapshot, member: MemberSnapshot) -> str:
    return f"{select_pool(pool)},{MEMBER}={member.id}"


def is_ours(found: Object, pool: PoolSnapshot, member: MemberSnapshot) -> bool:
    """Whether the labels name this member; any incarnation counts."""
    labels = found.get("metadata", {}).get("labels") or {}
    wanted = labels_of(pool, member)
    return all(
        labels.get(name) == wanted[name] for name in (MANAGED_BY, INSTALLATION, POOL, MEMBER)
    )


def number_in(found: Object, label: str) -> int:
    """The number in a label; 0: the label is missing or no number."""
    text = str((found.get("metadata", {}).get("labels") or {}).get(label, ""))
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def external_id_of(found: Object) -> str:
    return f"{name_of(found)}/{uid_of(found)}"
