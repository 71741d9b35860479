"""What an agent signs in with: a token of its member, for one incarnation. Only a hash is kept.

The hash is of secret and incarnation together, so a member that was made anew knows none of its old
tokens, whoever made it so. Asked for with every call of every agent: one prepared statement.
"""

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import transaction

from pools.lifecycle.selectors import lock_member
from project.kernel.actor import LONGEST
from project.kernel.errors import BerthError, Conflict
from project.kernel.events.log import record
from slots.members import members_sql

PREFIX = "berthm_"
SECRET = re.compile(r"berthm_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})")
# Seconds in which the token before still opens, at least; it does until the new one has been used.
OVERLAP = 3600.0
UNTAKEN = 3600.0  # seconds after which a new token that its agent has not used is made anew
NEVER = 1e9  # seconds; an age that nothing here reaches
QUIET = 60.0  # seconds between two events about the same refusal
MOST_KEPT = 5000
WAY_OUT = (
    "Make a new one on the member's page, or with 'manage.py member_token POOL/MEMBER', and start "
    "the agent with it."
)


class BadMemberToken(BerthError):
    """No such token, or not any more."""

    code = "bad_token"

    def __init__(
        self,
        detail: str,
        *,
        member_id: int | None = None,
        pool_id: int | None = None,
        why: str = "unknown",
    ) -> None:
        super().__init__(detail, way_out=WAY_OUT)
        self.member_id, self.pool_id, self.why = member_id, pool_id, why


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """Which member calls, as it was at this moment."""

    member_id: int
    member: str
    pool_id: int
    pool: str
    revision: int  # of the pool's configuration
    incarnation: int
    state: str
    is_leaving: bool
    # It came with the token before the present one, which opens for a while yet.
    is_replaced: bool = field(default=False, compare=False)

    @property
    def actor(self) -> str:
        name = f"agent:{self.pool}/{self.member}"
        return name if len(name) <= LONGEST else f"agent:{self.member_id}"


def issue_token(*, member_id: int, reason: str = "", keep_previous: bool = True) -> str:
    """A secret that cannot be read again. The one before opens for an hour more and until this
    one is used, unless it is to end at once.
    """
    with transaction.atomic():
        _, member = lock_member(member_id)
        if member.state in ("deleting", "gone"):
            raise Conflict(
                f"Member {member.name} is {member.state}.", way_out="Add it anew once it is gone."
            )
        secret = f"{PREFIX}{member_id}_{secrets.token_urlsafe(32)}"
        hashed = hash_secret(secret, member.incarnation)
        members_sql.issue_token(
            member=member_id,
            hash=hashed,
            incarnation=member.incarnation,
            keep=keep_previous,
        )
        data = {"incarnation": member.incarnation, "ends_previous": not keep_previous}
        record(
            "issue_token",
            pool_id=member.pool_id,
            member_id=member_id,
            reason=reason.strip(),
            data=data,
        )
    return secret


def revoke_tokens(*, member_id: int, reason: str = "") -> bool:
    """From now on none of its tokens opens anything. False: it had none."""
    with transaction.atomic():
        _, member = lock_member(member_id)
        is_changed = bool(members_sql.revoke_tokens(member=member_id))
        if is_changed:
            record(
                "revoke_token", pool_id=member.pool_id, member_id=member_id, reason=reason.strip()
            )
    return is_changed


def token_limits() -> dict[str, Any]:
    """When it is time for another one, as the statements ask."""
    return {"age": token_age() or NEVER, "untaken": UNTAKEN}


def token_age() -> float | None:
    """Seconds that a token may be in use; None: for ever."""
    age: float | None = settings.BERTH_TOKEN_AGE
    return age


def hash_secret(secret: str, incarnation: int) -> str:
    """Plain SHA-256: the secret is random and long, so there is nothing to guess that a slow
    hash would protect.
    """
    return hashlib.sha256(f"{incarnation}:{secret}".encode()).hexdigest()


def read_secret(secret: str) -> int | None:
    """The member it names; None: it is not even put together like a token."""
    match = SECRET.fullmatch(secret)
    return int(match[1]) if match else None


def identify_member(secret: str) -> AgentIdentity:
    """Whose token this is. Raises BadMemberToken."""
    member_id = read_secret(secret)
    if member_id is None:
        raise BadMemberToken(
            f"There is no such token: those of agents begin with {PREFIX}.", why="malformed"
        )
    row = members_sql.identity(member=member_id, overlap=OVERLAP)
    if row is None:
        raise BadMemberToken("There is no such token.")
    hashed = hash_secret(secret, row.incarnation)
    if not any(
        known and hmac.compare_digest(known, hashed) for known in (row.token_hash, row.previous)
    ):
        raise BadMemberToken(
            _explain(secret, row), member_id=row.id, pool_id=row.pool_id, why="wrong"
        )
    if row.state == "gone":
        raise BadMemberToken(
            f"Member {row.name} is gone.", member_id=row.id, pool_id=row.pool_id, why="gone"
        )
    if not row.is_used and row.token_hash == hashed:
        members_sql.mark_token_used(member=row.id, hash=hashed)
    is_replaced = row.token_hash != hashed
    return AgentIdentity(
        row.id,
        row.name,
        row.pool_id,
        row.pool,
        row.revision,
        row.incarnation,
        row.state,
        row.is_leaving,
        is_replaced,
    )


def _explain(secret: str, row: Any) -> str:
    """Who shows a token that was right once is told so; who guesses learns nothing."""
    for older in range(max(1, row.incarnation - 3), row.incarnation):
        if hmac.compare_digest(row.token_hash or "-", hash_secret(secret, older)):
            return (
                f"This token was for incarnation {older} of {row.name}, which is at "
                f"{row.incarnation}."
            )
    return "There is no such token."


_told: OrderedDict[tuple[Any, ...], float] = OrderedDict()
_telling = threading.Lock()


def record_refusal(
    why: str,
    *,
    pool_id: int | None = None,
    member_id: int | None = None,
    claim_id: int | None = None,
    **data: Any,
) -> bool:
    """An agent was refused: an event, but not one for each of a thousand tries. False: it was
    said a moment ago.
    """
    key, now = (why, pool_id, member_id, claim_id, data.get("address")), time.monotonic()
    with _telling:
        if now - _told.get(key, -QUIET) < QUIET:
            return False
        _told[key] = now
        _told.move_to_end(key)
        if len(_told) > MOST_KEPT:
            _told.popitem(last=False)
    record(
        "refused_agent",
        pool_id=pool_id,
        member_id=member_id,
        claim_id=claim_id,
        reason=why,
        data=data or None,
    )
    return True
