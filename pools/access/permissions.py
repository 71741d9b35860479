"""Who may do what. The one place for it: API, pages, sockets and admin ask here; of services only
those that count approvals.

A role holds in one pool or in all of them, for a user or for a group. What has no pool yet (a claim
on a pool that is not there, a new pool) needs the role in all pools. A token may do less than its
user, never more: its scopes are held against the
user's roles of the moment, at each use.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pools.access import permissions_sql
from project.kernel.actor import LONGEST
from project.kernel.errors import Forbidden, NotFound

VIEWER, CLAIMANT, OPERATOR, APPROVER, ADMIN = "viewer", "claimant", "operator", "approver", "admin"
ROLES = {
    VIEWER: "reads",
    CLAIMANT: "creates claims; cancels, releases and prioritises its own, up to the pool's limit",
    OPERATOR: "any claim, cordon, drain, pause, overrides",
    APPROVER: "reads and decides about plans",
    ADMIN: "operator, and configuration and grants",
}
INCLUDES: dict[str, frozenset[str]] = {
    VIEWER: frozenset({VIEWER}),
    CLAIMANT: frozenset({CLAIMANT, VIEWER}),
    OPERATOR: frozenset({OPERATOR, CLAIMANT, VIEWER}),
    APPROVER: frozenset({APPROVER, VIEWER}),
    ADMIN: frozenset({ADMIN, OPERATOR, CLAIMANT, VIEWER}),  # decides only if approver too
}
# What a person or program wants to do, and the role it takes.
ACTIONS = {
    "read": VIEWER,
    # Create; and of its own claims: cancel, release, resize, prioritise, acknowledge, keep.
    "claim": CLAIMANT,
    "claim_slot": OPERATOR,  # this very slot, past the line
    "claim_any": OPERATOR,  # all of that with the claims of others
    "force_release": OPERATOR,
    "cordon": OPERATOR,
    "drain": OPERATOR,
    "beat": OPERATOR,  # for a member, as its owner
    "remove_member": OPERATOR,
    "pause": OPERATOR,
    "scale": OPERATOR,  # pin, pause the scaler, one more now, lift a freeze
    "lock_workspace": OPERATOR,
    "share_workspace": OPERATOR,  # in both pools
    "decide": APPROVER,  # approve, reject, extend; download a plan
    "replan": OPERATOR,  # a plan that waits: made again, moved
    "settle": OPERATOR,  # say what became of an apply that was lost; who decides may, too
    "add_member": ADMIN,
    "edit_member": ADMIN,
    "configure": ADMIN,
    "grant": ADMIN,
}
LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 99

# Pool or all, its name while it is there, role.
Grants = tuple[tuple[int | None, str | None, str], ...]


class PoolRef(Protocol):
    @property
    def id(self) -> Any: ...
    @property
    def name(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Scope:
    """What a token is limited to. None: as its user."""

    roles: frozenset[str] | None = None
    pools: Mapping[int, str] | None = None  # id -> name, empty for one that is gone


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls, and what they may at this moment. Made for one request, or until an
    ACCESS_EVENT for a socket.
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
        """What `claim.requested_by` says of their claims. A name too long for the column must
        not become another's by being cut.
        """
        return self.username if len(self.username) <= LONGEST else f"user:{self.user_id}"

    @property
    def actor(self) -> str:
        return f"{self.requester}/{self.token_name}" if self.token_name else self.requester

    def roles_in(self, pool_id: int | None) -> frozenset[str]:
        """In a pool; None: in all pools, those to come included."""
        return (
            self.everywhere
            if pool_id is None
            else self.everywhere | self.by_pool.get(pool_id, frozenset())
        )

    def roles_in_named(self, name: str) -> frozenset[str]:
        """By the name of a pool, which need not exist."""
        return self.roles_in(self.names.get(name))

    def may(self, action: str, pool_id: int | None) -> bool:
        return ACTIONS[action] in self.roles_in(pool_id)

    def may_anywhere(self, action: str) -> bool:
        role = ACTIONS[action]
        return role in self.everywhere or any(role in roles for roles in self.by_pool.values())

    def pools_with(self, role: str) -> set[int] | None:
        """None: all of them."""
        if role in self.everywhere:
            return None
        return {pool for pool, roles in self.by_pool.items() if role in roles}

    def visible_pools(self) -> set[int] | None:
        return self.pools_with(VIEWER)


def expand_grants(
    grants: Iterable[tuple[int | None, str | None, str]], is_superuser: bool
) -> tuple[frozenset[str], dict[int, frozenset[str]]]:
    """Roles in all pools, and in each one by itself. Roles that this version does not know
    give nothing.
    """
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
    """Of a person who has signed in; None: gone or not active any more."""
    row = permissions_sql.user_identity(user=user_id)
    if row is None:
        return None
    told = json.loads(row.told)
    return read_identity(told) if told["is_active"] else None


def load_identities(user_ids: Iterable[int]) -> dict[int, Identity | None]:
    """By id, without users that no longer exist. None: deactivated."""
    ids = sorted(set(user_ids))
    told = (
        [json.loads(row.told) for row in permissions_sql.user_identities(users=ids)] if ids else []
    )
    return {one["user"]: read_identity(one) if one["is_active"] else None for one in told}


def lock_rights(user_ids: Iterable[int]) -> None:
    """In a transaction: whoever takes a role from these users or deactivates them waits until it
    ends. Read their identities after this.
    """
    if ids := sorted(set(user_ids)):
        permissions_sql.hold_rights(users=ids)


def read_identity(told: dict[str, Any]) -> Identity:
    """From what the database told of a user, or of a token and its user."""
    grants = tuple((pool, name, role) for pool, name, role in told["grants"] or ())
    if "token" not in told:
        return Identity(told["user"], told["username"], told["is_superuser"], grants=grants)
    scope = read_scope(told["roles"], told["pools"], told["names"] or {})
    return Identity(
        told["user"],
        told["username"],
        told["is_superuser"],
        told["token"],
        told["token_name"],
        grants,
        scope,
    )


def read_scope(roles: list[str] | None, pools: list[int] | None, names: dict[str, int]) -> Scope:
    by_id = {pool: name for name, pool in names.items()}
    return Scope(
        None
        if roles is None
        else frozenset().union(*(INCLUDES.get(role, frozenset()) for role in roles)),
        None if pools is None else {pool: by_id.get(pool, "") for pool in pools},
    )


def no_such_pool(name: str) -> NotFound:
    return NotFound(f"There is no pool {name}.", way_out="Look at the list of pools.")


def require(
    identity: Identity, action: str, pool: PoolRef | None, *, hidden: NotFound | None = None
) -> None:
    """In this pool; None: in all pools. Raises Forbidden, which names the role. Without the role
    viewer the pool and what is in it are not there: then it raises `hidden`, which must say what
    the caller would read if it did not exist; left out: that there is no such pool."""
    role = ACTIONS[action]
    if role not in identity.roles_in(None if pool is None else pool.id):
        if pool is not None and not identity.may("read", pool.id):
            raise hidden or no_such_pool(pool.name)
        raise refusal(
            identity, role, None if pool is None else pool.id, "" if pool is None else pool.name
        )


def require_named(identity: Identity, action: str, names: Iterable[str]) -> None:
    """In each of these pools, by name: one that is not there (yet) takes the role in all pools."""
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
