"""How pods are called and known: a name that says whose it is, labels that decide whose
it is. Pure.

Only what carries our installation's label is ever touched. The name is made of pool, member and
incarnation, so a create whose answer was lost finds its own pod in the way; the few characters of a
hash tell a-b of c from a of b-c, and one installation from another.
"""

import hashlib
import re

from pools.providers.base import MemberSnapshot, PoolSnapshot
from project.kernel.kubernetes.objects import Object, name_of, uid_of

OURS = "berth.dev/"
MANAGED_BY, BERTH = "app.kubernetes.io/managed-by", "berth"
INSTALLATION, POOL, MEMBER, INCARNATION = (
    f"{OURS}installation",
    f"{OURS}pool",
    f"{OURS}member",
    f"{OURS}incarnation",
)
POOL_NAME, MEMBER_NAME = f"{OURS}pool-name", f"{OURS}member-name"  # annotations: for people
UNNAMED = "berth"  # an installation that does not say its name
LONGEST = 63
HASH = 6


def is_reserved(label: str) -> bool:
    return label.startswith(OURS) or label == MANAGED_BY


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
    """By its labels: made for this member, whatever its incarnation."""
    labels = found.get("metadata", {}).get("labels") or {}
    wanted = labels_of(pool, member)
    return all(
        labels.get(name) == wanted[name] for name in (MANAGED_BY, INSTALLATION, POOL, MEMBER)
    )


def number_in(found: Object, label: str) -> int:
    """0: it does not say."""
    text = str((found.get("metadata", {}).get("labels") or {}).get(label, ""))
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def external_id_of(found: Object) -> str:
    return f"{name_of(found)}/{uid_of(found)}"
