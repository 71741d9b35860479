"""Permissions of callers. API, pages, sockets and admin check permissions here; of the services
only those that count approvals do.

A role holds in one pool or in all pools, for a user or a group. An action without an existing pool
(a claim on an unknown pool, a new pool) needs the role in all pools. A token never permits more
than its user: each use intersects its scopes with the present roles of the user.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypedDict

from pools.access import permissions_sql
from project.kernel.actor import MAX_ACTOR_LENGTH
from project.kernel.errors import Forbidden, NotFound

VIEWER, CLAIMANT, OPERATOR, APPROVER, ADMIN = "viewer", "claimant", "operator", "approver", "admin"
ROLES = {
    VIEWER: "reads",
    CLAIMANT: "creates claims; cancels, releases and prioritises its own, up to the pool's limit",
    OPERATOR: "changes any claim; cordons, drains, pauses, overrides",
    APPROVER: "reads, and approves or rejects plans",
    ADMIN: "as operator, and changes configuration and grants",
}
INCLUDES: dict[str, frozenset[str]] = {
    VIEWER: frozenset({VIEWER}),
    CLAIMANT: frozenset({CLAIMANT, VIEWER}),
    OPERATOR: frozenset({OPERATOR, CLAIMANT, VIEWER}),
    APPROVER: frozenset({APPROVER, VIEWER}),
    ADMIN: frozenset({ADMIN, OPERATOR, CLAIMANT, VIEWER}),  # approves plans only if also approver
}
# Each action, and the role it needs.
ACTIONS = {
    "read": VIEWER,
    # Create claims; cancel, release, resize, prioritise, acknowledge and keep the caller's own.
    "claim": CLAIMANT,
    "claim_slot": OPERATOR,  # claim a named slot, past the queue
    "claim_any": OPERATOR,  # the same actions on claims of other users
    "force_release": OPERATOR,
    "cordon": OPERATOR,
    "drain": OPERATOR,
    "beat": OPERATOR,  # send heartbeats for a member
    "remove_member": OPERATOR,
    "repair": OPERATOR,  # make a member equal to its rows, or look at a pool, now
    "pause": OPERATOR,
    "scale": OPERATOR,  # pin, pause the scaler, add a member now, lift a freeze
    "lock_workspace": OPERATOR,
    "share_workspace": OPERATOR,  # in both pools
    "decide": APPROVER,  # approve, reject or extend a plan; download it
    "replan": OPERATOR,  # repeat or move a plan that waits
    "settle": OPERATOR,  # state the result of a lost apply; "decide" suffices, too
    "add_member": ADMIN,
    "edit_member": ADMIN,
    "configure": ADMIN,
    "grant": ADMIN,
}

# Each: the id of a pool or None for all pools, its name while it exists, the role.
Grants = tuple[tuple[int | None, str | None, str], ...]


class PoolRef(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Scope:
    """The limits of a token. None: no limit beyond the user's roles."""

    roles: frozenset[str] | None = None
    pools: Mapping[int, str] | None = None  # id -> name, which is empty once the pool is gone


class IdentityFacts(TypedDict):
    """The JSON that the database returns for a user."""

    user: int
    username: str
    is_active: bool
    is_superuser: bool
    grants: list[tuple[int | None, str | None, str]] | None


class TokenFacts(IdentityFacts):
    """The JSON that the database returns for a token and its user (`token_told`)."""

    token: int
    token_name: str
    is_revoked: bool
    is_expired: bool
    roles: list[str] | None
    pools: list[int] | None
    names: dict[str, int] | None


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller with its present roles. An identity serves one request, or a socket until the next
    ACCESS_EVENT.
    """

    user_id: int
    username: str
    is_superuser: bool = False
    token_id: int | None = None
    token_name: str = ""
    grants: Grants = ()
    scope: Scope = Scope()
    everywhere: frozenset[str] = field(init=False)
    by_pool: Mapping[int, frozenset[str]] = field(init=False)
    names: Mapping[str, int] = field(init=False)  # of the pools in by_pool

    def __post_init__(self) -> None:
        everywhere, by_pool = expand_grants(self.grants, self.is_superuser)
        names = {name: pool for pool, name, _ in self.grants if pool is not None and name}
        if self.scope.roles is not None:
            everywhere &= self.scope.roles
            by_pool = {pool: roles & self.scope.roles for pool, roles in by_pool.items()}
        if (pools := self.scope.pools) is not None:
            by_pool = {pool: by_pool.get(pool, frozenset()) | everywhere for pool in pools}
            names = {name: pool for pool, name in pools.items() if name}
            everywhere = frozenset()
        object.__setattr__(self, "everywhere", everywhere)
        object.__setattr__(self, "by_pool", by_pool)
        object.__setattr__(self, "names", names)

    @property
    def requester(self) -> str:
        """The value of `claim.requested_by`. A name too long for the column is replaced, because
        a cut name could be the name of another user.
        """
        return self.username if len(self.username) <= MAX_ACTOR_LENGTH else f"user:{self.user_id}"

    @property
    def actor(self) -> str:
        return f"{self.requester}/{self.token_name}" if self.token_name else self.requester

    def roles_in(self, pool_id: int | None) -> frozenset[str]:
        """Roles in a pool; None: in all pools, including future ones."""
        return (
            self.everywhere
            if pool_id is None
            else self.everywhere | self.by_pool.get(pool_id, frozenset())
        )

    def roles_in_named(self, name: str) -> frozenset[str]:
        """Roles in the pool of this name, which need not exist."""
        return self.roles_in(self.names.get(name))

    def may(self, action: str, pool_id: int | None) -> bool:
        return ACTIONS[action] in self.roles_in(pool_id)

    def may_anywhere(self, action: str) -> bool:
        role = ACTIONS[action]
        return role in self.everywhere or any(role in roles for roles in self.by_pool.values())

    def pools_with(self, role: str) -> set[int] | None:
        """Ids of the pools in which the caller has the role; None: all pools."""
        if role in self.everywhere:
            return None
        return {pool for pool, roles in self.by_pool.items() if role in roles}

    def visible_pools(self) -> set[int] | None:
        return self.pools_with(VIEWER)


def expand_grants(
    grants: Iterable[tuple[int | None, str | None, str]], is_superuser: bool
) -> tuple[frozenset[str], dict[int, frozenset[str]]]:
    """Roles in all pools, and roles by pool. Roles that this version does not know are ignored."""
    everywhere = INCLUDES[ADMIN] if is_superuser else frozenset()
    by_pool: dict[int, frozenset[str]] = {}
    for pool, _, role in grants:
        roles = INCLUDES.get(role, frozenset())
        if pool is None:
            everywhere |= roles
        else:
            by_pool[pool] = by_pool.get(pool, frozenset()) | roles
    return everywhere, by_pool


def load_identity(user_id: int) -> Identity | None:
    """The identity of a user with a session; None: the user is deleted or deactivated."""
    row = permissions_sql.user_identity(user=user_id)
    if row is None:
        return None
    facts: IdentityFacts = json.loads(row.facts)
    return read_identity(facts) if facts["is_active"] else None


def load_identities(user_ids: Iterable[int]) -> dict[int, Identity | None]:
    """Identities by user id, without users that no longer exist. None: deactivated."""
    ids = sorted(set(user_ids))
    rows = permissions_sql.user_identities(users=ids) if ids else []
    found: list[IdentityFacts] = [json.loads(row.facts) for row in rows]
    return {facts["user"]: read_identity(facts) if facts["is_active"] else None for facts in found}


def lock_rights(user_ids: Iterable[int]) -> None:
    """Lock the rights of these users: a transaction that withdraws a role from them or deactivates
    them waits until this transaction ends. Read the identities after this call.
    """
    if ids := sorted(set(user_ids)):
        permissions_sql.hold_rights(users=ids)


def read_identity(facts: IdentityFacts) -> Identity:
    grants = tuple((pool, name, role) for pool, name, role in facts["grants"] or ())
    return Identity(facts["user"], facts["username"], facts["is_superuser"], grants=grants)


def read_token_identity(facts: TokenFacts) -> Identity:
    return replace(
        read_identity(facts),
        token_id=facts["token"],
        token_name=facts["token_name"],
        scope=read_scope(facts["roles"], facts["pools"], facts["names"] or {}),
    )


def read_scope(roles: list[str] | None, pools: list[int] | None, names: dict[str, int]) -> Scope:
    by_id = {pool: name for name, pool in names.items()}
    return Scope(
        None
        if roles is None
        else frozenset().union(*(INCLUDES.get(role, frozenset()) for role in roles)),
        None if pools is None else {pool: by_id.get(pool, "") for pool in pools},
    )


def no_such_pool(name: str | int) -> NotFound:
    return NotFound(f"There is no pool {name}.", way_out="Look at the list of pools.")


def require(
    identity: Identity, action: str, pool: PoolRef | None, *, hidden: NotFound | None = None
) -> None:
    """Raises Forbidden if the caller may not do the action in this pool (None: in all pools).

    For a caller without the role viewer the pool does not exist: then `hidden` is raised, which
    must read as if the object did not exist. Default: "There is no pool ...".
    """
    pool_id, name = (None, "") if pool is None else (pool.id, pool.name)
    if identity.may(action, pool_id):
        return
    if pool_id is not None and not identity.may("read", pool_id):
        raise hidden or no_such_pool(name)
    raise refusal(identity, ACTIONS[action], pool_id, name)


def require_named(identity: Identity, action: str, names: Iterable[str]) -> None:
    """Raises Forbidden if the caller may not do the action in each of the named pools. A pool that
    does not exist needs the role in all pools.
    """
    role = ACTIONS[action]
    if role in identity.everywhere:
        return
    for name in names:
        if role not in identity.roles_in_named(name):
            raise refusal(identity, role, identity.names.get(name), name)


def require_anywhere(identity: Identity, action: str) -> None:
    if not identity.may_anywhere(action):
        raise refusal(identity, ACTIONS[action], None, "")


def refusal(identity: Identity, role: str, pool_id: int | None, name: str) -> Forbidden:
    where = f"in the pool {name}" if name else "in all pools"
    everywhere, by_pool = expand_grants(identity.grants, identity.is_superuser)
    if identity.token_id is not None and role in everywhere | by_pool.get(
        pool_id or 0, frozenset()
    ):
        detail = f"The token {identity.token_name} is limited: this needs the role {role} {where}."
        return Forbidden(
            detail, role=role, pool=name or None, way_out="Use a token with wider scopes."
        )
    way_out = (
        "An admin of the pool can grant it."
        if name
        else "A superuser, or an admin of all pools, can grant it."
    )
    return Forbidden(
        f"This needs the role {role} {where}.", role=role, pool=name or None, way_out=way_out
    )
