"""Tokens of agents. A token belongs to one incarnation of a member; the database stores its hash.

The hash covers secret and incarnation, so a restart of the member invalidates all older tokens.
Each call of an agent checks its token with one prepared statement.
"""

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypedDict

from django.conf import settings
from django.db import transaction

from pools.lifecycle.selectors import lock_member
from project.kernel.actor import MAX_ACTOR_LENGTH
from project.kernel.errors import BerthError
from project.kernel.events.log import record
from slots.members import members_sql
from slots.members.store import refuse_unless_there

PREFIX = "berthm_"
SECRET = re.compile(r"berthm_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})")
# Minimum seconds that a replaced token stays valid. It is also valid until the new token is used.
OVERLAP = 3600.0
UNTAKEN = 3600.0  # seconds after which a token that its agent has not used is replaced
NEVER = 1e9  # seconds; no token gets as old
QUIET = 60.0  # seconds between two events about the same refusal
MOST_KEPT = 5000
WAY_OUT = (
    "Create a new token on the member's page, or with 'manage.py member_token POOL/MEMBER', and "
    "start the agent with it."
)


class BadMemberToken(BerthError):
    """The token is unknown or no longer valid."""

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
    """The calling member, as of the check of its token. The first columns of `identity` have the
    order of these fields.
    """

    member_id: int
    member: str
    pool_id: int
    pool: str
    revision: int  # of the pool's configuration
    incarnation: int
    state: str
    is_leaving: bool
    is_replaced: bool = field(default=False, compare=False)  # a newer token exists

    @property
    def actor(self) -> str:
        name = f"agent:{self.pool}/{self.member}"
        return name if len(name) <= MAX_ACTOR_LENGTH else f"agent:{self.member_id}"


def issue_token(*, member_id: int, reason: str = "", keep_previous: bool = True) -> str:
    """Issue a token and return its secret, which is not stored. With `keep_previous`, the current
    token stays valid for an hour and until the new token is used.
    """
    with transaction.atomic():
        _, member = lock_member(member_id)
        refuse_unless_there(member)
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
    """Invalidate all tokens of a member. False: it had none."""
    with transaction.atomic():
        _, member = lock_member(member_id)
        is_changed = bool(members_sql.revoke_tokens(member=member_id))
        if is_changed:
            record(
                "revoke_token", pool_id=member.pool_id, member_id=member_id, reason=reason.strip()
            )
    return is_changed


class TokenLimits(TypedDict):
    age: float
    untaken: float


def token_limits() -> TokenLimits:
    """Parameters of the statements that find members due for a new token."""
    return {"age": token_age() or NEVER, "untaken": UNTAKEN}


def token_age() -> float | None:
    """Maximum age of a token in seconds; None: unlimited."""
    age: float | None = settings.BERTH_TOKEN_AGE
    return age


def hash_secret(secret: str, incarnation: int) -> str:
    """SHA-256 is enough: a slow hash protects short secrets, and this one has 256 random bits."""
    return hashlib.sha256(f"{incarnation}:{secret}".encode()).hexdigest()


def read_secret(secret: str) -> int | None:
    """The member id in a secret; None: malformed."""
    match = SECRET.fullmatch(secret)
    return int(match[1]) if match else None


def identify_member(secret: str) -> AgentIdentity:
    """The member of a token. Raises BadMemberToken."""
    member_id = read_secret(secret)
    if member_id is None:
        raise BadMemberToken(
            f"The token is malformed: tokens of agents begin with {PREFIX}.", why="malformed"
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
    return AgentIdentity(*row[:8], is_replaced)


def _explain(secret: str, row: members_sql.IdentityRow) -> str:
    """The reason of a refusal. A token of an older incarnation is named as such; a guessed token
    gets no detail.
    """
    for older in range(max(1, row.incarnation - 3), row.incarnation):
        if hmac.compare_digest(row.token_hash or "-", hash_secret(secret, older)):
            return (
                f"This token was for incarnation {older} of {row.name}, which is at "
                f"{row.incarnation}."
            )
    return "There is no such token."


_recorded: OrderedDict[tuple[object, ...], float] = OrderedDict()  # refusal -> time of its event
_record_lock = threading.Lock()


def record_refusal(
    why: str,
    *,
    pool_id: int | None = None,
    member_id: int | None = None,
    claim_id: int | None = None,
    **data: object,
) -> bool:
    """Record that an agent was refused, at most once a minute for the same refusal. False: it was
    recorded a moment ago.
    """
    key, now = (why, pool_id, member_id, claim_id, data.get("address")), time.monotonic()
    with _record_lock:
        if now - _recorded.get(key, -QUIET) < QUIET:
            return False
        _recorded[key] = now
        _recorded.move_to_end(key)
        if len(_recorded) > MOST_KEPT:
            _recorded.popitem(last=False)
    record(
        "refused_agent",
        pool_id=pool_id,
        member_id=member_id,
        claim_id=claim_id,
        reason=why,
        data=data or None,
    )
    return True
