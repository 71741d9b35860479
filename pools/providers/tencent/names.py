"""Tags of load balancers and names of listeners, which prove what Berth created. Pure.

A load balancer is this pool's if it has both tags, `berth-installation` and `berth-pool`. Listeners
have no tags: a listener is this pool's if its name is the one that Berth writes for its place. The
name contains a digest of installation and pool, so that two pools on one load balancer leave each
other's listeners alone.
"""

import hashlib
import re
from collections.abc import Mapping

from pools.providers.base import MemberSnapshot, PoolSnapshot

PREFIX = "berth-"
INSTALLATION, POOL, MEMBER = f"{PREFIX}installation", f"{PREFIX}pool", f"{PREFIX}member"
UNNAMED = "berth"  # an installation without a name
LONGEST = 80  # characters of a name
DIGEST = 12
LISTENER_NAME = re.compile(
    rf"berth-([0-9a-f]{{{DIGEST}}})-m([0-9]{{1,18}})-(tcp|udp)-([0-9]{{1,5}})"
)


def installation_of(pool: PoolSnapshot) -> str:
    return pool.installation or UNNAMED


def pool_tags(pool: PoolSnapshot) -> dict[str, str]:
    return {INSTALLATION: installation_of(pool), POOL: pool.name}


def member_tags(pool: PoolSnapshot, member: MemberSnapshot) -> dict[str, str]:
    return pool_tags(pool) | {MEMBER: str(member.id)}


def has_tags(tags: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(tags.get(name) == value for name, value in wanted.items())


def number_of(text: str) -> int:
    """The number of a tag; 0: the tag is missing or no number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def client_token(pool: PoolSnapshot, member: MemberSnapshot) -> str:
    """Calls with an equal token create one load balancer. A recorded load balancer that is gone has
    used up its token: the next creation has another token until its own id is recorded.
    """
    parts = [_identity(pool, member)] + ([member.external_id] if member.external_id else [])
    return hashlib.sha256("/".join(parts).encode()).hexdigest()


def creation_of(pool: PoolSnapshot, member: MemberSnapshot) -> str:
    """A short name of all creations of a member's load balancer."""
    return hashlib.sha256(_identity(pool, member).encode()).hexdigest()[:DIGEST]


def _identity(pool: PoolSnapshot, member: MemberSnapshot) -> str:
    return f"{installation_of(pool)}/{pool.id}/{member.id}/{member.incarnation}"


def load_balancer_name(pool: PoolSnapshot, member: MemberSnapshot, prefix: str) -> str:
    """The name for people. Characters that CLB refuses become hyphens."""
    words = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{prefix or PREFIX + pool.name}-{member.name}")
    return words[:LONGEST].strip("-") or "berth"


def listener_name(pool: PoolSnapshot, member_id: int, lane: str, number: int) -> str:
    return f"{PREFIX}{_digest(pool)}-m{member_id}-{lane}-{number}"


def owner_of(pool: PoolSnapshot, name: str, lane: str, number: int) -> int:
    """The id of the member for which this pool created the listener. 0: the listener is foreign,
    also if its name was copied to another place.
    """
    match = LISTENER_NAME.fullmatch(name)
    if match is None or match[1] != _digest(pool) or (match[3], int(match[4])) != (lane, number):
        return 0
    return int(match[2])


def _digest(pool: PoolSnapshot) -> str:
    identity = f"{installation_of(pool)}/{pool.name}"
    return hashlib.sha256(identity.encode()).hexdigest()[:DIGEST]
