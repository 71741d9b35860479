"""Rotation of agent tokens: after BERTH_TOKEN_AGE, or by order of an operator (P16).

If the provider hands tokens to its agents, the watcher enqueues a `sync`, and the provider writes
the new token where the agent reads it. The old token stays valid until the new token is used. If
operators start the agents, they also replace the tokens, and the doctor warns them in time. Agents
never fetch a new token themselves: otherwise a stolen token could be renewed for ever.
"""

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
from slots.members.tokens import token_age, token_limits

AT_ONCE = 50  # members of a pool in one look; the next looks handle the rest
NOTICE = 7 * 86400.0  # seconds before a token is due, from which the doctor warns


def rotates(spec: PoolSpec) -> bool:
    """Whether Berth hands new tokens to the agents of such a pool."""
    return has_agents(spec) and known_providers()[spec.provider].rotates


def order_token(*, member_id: int, reason: str, ends_previous: bool = False) -> Member:
    """Order a new token for an agent that gets its token from Berth. The current token stays valid
    until the agent uses the new token, and for a while longer without `ends_previous`.
    """
    note = require_reason(reason)
    with transaction.atomic():
        pool, member = lock_member(member_id)
        refuse_unless_there(member)
        if not rotates(spec_of(pool)):
            way_out = (
                "Create a token on the member's page, or with 'manage.py member_token', and store "
                "it where the agent reads it."
            )
            raise Conflict(
                f"Berth does not hand the agent of {member.name} its token.",
                code="not_ours",
                way_out=way_out,
            )
        if member.state != "ready":
            raise Conflict(
                f"{member.name} is {member.state}.",
                code="not_ready",
                way_out="The agent gets a new token with its next start.",
            )
        change_member(
            member,
            "order_token",
            reason=note,
            data={"ends_previous": ends_previous},
            token_due_at=Now(),
            # A repeated order does not weaken the order before.
            is_previous_ending=ends_previous or member.is_previous_ending,
        )
        request_sync(pool, member)
    return member


def rotate_due(pool: Pool) -> int:
    """Enqueue a sync for members that are due for a token; called with each look at a pool.
    Returns the number of due members.
    """
    if not rotates(spec_of(pool)):
        return 0
    rows = members_sql.due_for_token(AT_ONCE, pool=pool.pk, **token_limits())
    for row in rows:
        with transaction.atomic():
            locked, member = lock_member(row.id)
            if member.state == "ready" and not members_sql.has_operation(
                lane=lane_of(member.pk), but=[]
            ):
                request_sync(locked, member)
    return len(rows)


def list_old_tokens() -> list[members_sql.OldTokensRow]:
    """Tokens that an operator should check."""
    specs = {pool.pk: spec_of(pool) for pool in list_pools()}
    ours = [pool_id for pool_id, spec in specs.items() if rotates(spec)]
    theirs = [pool_id for pool_id, spec in specs.items() if has_agents(spec) and not rotates(spec)]
    return members_sql.old_tokens(
        50,
        **token_limits(),
        notice=NOTICE if token_age() else 0.0,
        ours=ours,
        theirs=theirs,
    )
