"""Tokens of agents grow old: another one is due after BERTH_TOKEN_AGE, or when somebody
says so (P16).

Where we hand our agents their token, the watch sees to it: a `sync` asks the provider, which writes
the new one where the agent reads it, and the one before opens until the new one is used. An agent
that somebody else starts is given one by them: it is said in time that one is due. It does not
fetch one by itself, because then whoever has got hold of a token would renew it for ever.
"""

from dataclasses import dataclass

from django.db import transaction
from django.db.models.functions import Now

from pools.config.spec import PoolSpec
from pools.lifecycle.selectors import list_pools, lock_member, spec_of
from pools.models import Member, Pool
from pools.providers.base import has_agents, known_providers
from project.kernel.errors import Conflict
from project.kernel.validation import require_reason
from slots.members import members_sql
from slots.members.store import change_member, lane_of, refuse_unless_there, request_sync
from slots.members.tokens import UNTAKEN, token_age, token_limits

AT_ONCE = 50  # of a pool and a look; the rest follow with the next ones
NOTICE = 7 * 86400.0  # seconds before its time that a person is told of a token


@dataclass(frozen=True, slots=True)
class OldToken:
    member_id: int
    name: str
    pool: str
    is_ours: bool  # we hand it over
    is_untaken: bool
    age: float  # seconds
    left: float  # seconds until it is due; less than 0: it is
    pool_id: int


def rotates(spec: PoolSpec) -> bool:
    """Whether Berth hands new tokens to the agents of such a pool."""
    return has_agents(spec) and known_providers()[spec.provider].rotates


def order_token(*, member_id: int, reason: str, ends_previous: bool = False) -> Member:
    """Another token for one of our agents, now. It goes on working: the present one opens until it
    has taken the new one, and not a moment longer with `ends_previous`."""
    note = require_reason(reason)
    with transaction.atomic():
        pool, member = lock_member(member_id)
        refuse_unless_there(member)
        if not rotates(spec_of(pool)):
            way_out = (
                "Make one on its page, or with 'manage.py member_token', and put it where its "
                "agent reads it."
            )
            raise Conflict(
                f"The agent of {member.name} is not given its token by Berth.",
                code="not_ours",
                way_out=way_out,
            )
        if member.state != "ready":
            raise Conflict(
                f"{member.name} is {member.state}.",
                code="not_ready",
                way_out="It gets a new token with its next start.",
            )
        # What somebody was promised before holds.
        is_ending = ends_previous or member.is_previous_ending
        change_member(
            member,
            "order_token",
            reason=note,
            data={"ends_previous": ends_previous},
            token_due_at=Now(),
            is_previous_ending=is_ending,
        )
        request_sync(pool, member)
    return member


def rotate_due(pool: Pool) -> int:
    """Asked with each look at a pool. Answers how many are under way."""
    if not rotates(spec_of(pool)):
        return 0
    rows = members_sql.due_for_token(AT_ONCE, pool=pool.pk, **token_limits())
    for row in rows:
        with transaction.atomic():
            locked, member = lock_member(row.id)
            if member.state == "ready" and not members_sql.has_operation(
                lane=lane_of(member.pk), but=None
            ):
                request_sync(locked, member)
    return len(rows)


def list_old_tokens(limit: int = 50) -> list[OldToken]:
    """What a person should look at."""
    limits = token_limits()
    specs = {pool.pk: spec_of(pool) for pool in list_pools()}
    ours = [pool_id for pool_id, spec in specs.items() if rotates(spec)]
    theirs = [pool_id for pool_id, spec in specs.items() if has_agents(spec) and not rotates(spec)]
    rows = members_sql.old_tokens(
        limit,
        age=limits["age"],
        untaken=UNTAKEN,
        notice=NOTICE if token_age() else 0.0,
        ours=ours,
        theirs=theirs,
    )
    return [
        OldToken(
            r.id, r.name, r.pool, r.is_ours, r.is_untaken, r.age, limits["age"] - r.age, r.pool_id
        )
        for r in rows
    ]
