"""Tokens of programs. The secret is shown once, at its creation; only its hash is stored."""

import hashlib
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from django.contrib.auth.models import User
from django.db import IntegrityError, InterfaceError, OperationalError, connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from pools.access import permissions_sql
from pools.access.permissions import (
    ROLES,
    Identity,
    TokenFacts,
    read_scope,
    read_token_identity,
)
from pools.config.parsing import Faults
from pools.models import Pool, Token
from project.kernel.errors import BerthError, Conflict, NotFound
from project.kernel.events.log import record

PREFIX = "berth_"
# Characters of the secret that are stored, so that people can tell tokens apart. The rest has
# 208 bits.
SHOWN = len(PREFIX) + 8
LONGEST_SECRET = 200
LONGEST_NAME = 40  # the actor of events is the user's name followed by the token's


class BadToken(BerthError):
    """The token is unknown or no longer valid."""

    code = "bad_token"
    is_unknown = False


class UnknownToken(BadToken):
    """The database has no such token."""

    is_unknown = True


def hash_secret(secret: str) -> str:
    """SHA-256 suffices: a slow hash protects only secrets that can be guessed."""
    return hashlib.sha256(secret.encode()).hexdigest()


class TokenScopes(TypedDict):
    """The limits of a token as stored. None: no limit beyond the user's roles."""

    roles: list[str] | None
    pools: list[int] | None


@dataclass(frozen=True, slots=True)
class CachedToken:
    """The facts of a token as last read. A statement that acts on them compares them with the
    present facts (`token_told`).
    """

    hash: str
    facts: str


# By hash: the facts as text, the identity made from them, and the time of the look.
_seen: OrderedDict[str, tuple[str, Identity, float]] = OrderedDict()
MOST_SEEN = 1000
REMEMBERED = 30.0  # seconds; a later look also records the use of the token


def identify_token(secret: str) -> Identity:
    """The caller with this secret. Runs one prepared statement, and one write a minute. Raises
    BadToken.
    """
    if not secret.startswith(PREFIX) or len(secret) > LONGEST_SECRET:
        raise BadToken(
            "The token is unknown.",
            way_out=f"Tokens begin with {PREFIX}. Create one on the page Tokens.",
        )
    hashed = hash_secret(secret)
    row = _query(hashed)
    if row is None:
        raise UnknownToken("The token is unknown.", way_out="Create one on the page Tokens.")
    seen = _seen.get(hashed)
    identity = (  # equal facts give an equal identity
        seen[1] if seen is not None and seen[0] == row.facts else _conclude(json.loads(row.facts))
    )
    _seen[hashed] = (row.facts, identity, time.monotonic())
    if len(_seen) > MOST_SEEN:
        _seen.popitem(last=False)
    if row.note_use_of:
        permissions_sql.note_use(token=row.note_use_of)
    return identity


def find_cached_token(secret: str) -> tuple[Identity, CachedToken] | None:
    """The caller as of the last look. The token may have been revoked since, so only a statement
    that compares the facts with the present ones may rely on it.
    """
    hashed = hash_secret(secret)
    seen = _seen.get(hashed)
    if seen is None or time.monotonic() - seen[2] > REMEMBERED:
        return None
    return seen[1], CachedToken(hashed, seen[0])


def _query(hashed: str) -> permissions_sql.TokenIdentityRow | None:
    """Look the token up. As the first statement of a request it replaces a connection that died
    while idle.
    """
    try:
        return permissions_sql.token_identity(hash=hashed)
    except (OperationalError, InterfaceError):
        if connection.in_atomic_block or connection.is_usable():
            raise
        connection.close()
        return permissions_sql.token_identity(hash=hashed)


def _conclude(facts: TokenFacts) -> Identity:
    if facts["is_revoked"] or facts["is_expired"] or not facts["is_active"]:
        what = (
            "was revoked"
            if facts["is_revoked"]
            else "has expired"
            if facts["is_expired"]
            else "belongs to a deactivated user"
        )
        raise BadToken(f"This token {what}.", way_out="Create a new token on the page Tokens.")
    return read_token_identity(facts)


def create_token(
    *,
    user: User,
    name: str,
    roles: Iterable[str] | None = None,
    pools: Iterable[Pool] | None = None,
    expires_at: datetime | None = None,
    within: Identity | None = None,
) -> tuple[Token, str]:
    """Create a token. Returns the row and the secret, which cannot be read again. `within`: the
    asking caller; a token cannot create a token with wider scopes.
    """
    scopes: TokenScopes = {
        "roles": None if roles is None else sorted(set(roles)),
        "pools": None if pools is None else sorted({pool.pk for pool in pools}),
    }
    check_fields(name, scopes, expires_at)
    if within is not None:
        refuse_wider(within, scopes, expires_at)
    secret = PREFIX + secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            token = Token.objects.create(
                user=user,
                name=name,
                prefix=secret[:SHOWN],
                hash=hash_secret(secret),
                scopes=scopes,
                expires_at=expires_at,
            )
            data = {**about(token), "scopes": scopes, "expires_at": expires_at}
            record("create_token", data=data)
    except IntegrityError:
        raise Conflict(
            f"A token named {name} already exists.",
            way_out="Choose another name, or revoke the existing token first.",
        )
    token.refresh_from_db()
    return token, secret


def revoke_token(token_id: int, *, reason: str = "") -> Token:
    """Revoke a token; a second call changes nothing. The event closes sockets that the token
    opened.
    """
    with transaction.atomic():
        token = (
            Token.objects.select_for_update(no_key=True)
            .select_related("user")
            .filter(pk=token_id)
            .first()
        )
        if token is None:
            raise NotFound("There is no such token.")
        if token.revoked_at is None:
            token.revoked_at = Now()
            token.save(update_fields=["revoked_at"])
            token.refresh_from_db(fields=["revoked_at"])
            record("revoke_token", reason=reason, data=about(token))
    return token


def list_tokens(user_id: int | None) -> list[Token]:
    """Tokens of one user or of all users, newest first."""
    found = Token.objects.select_related("user").order_by("-id")
    if user_id is not None:
        found = found.filter(user_id=user_id)
    return list(found)


def check_fields(name: str, scopes: TokenScopes, expires_at: datetime | None) -> None:
    """Raises Invalid with every fault."""
    faults = Faults()
    if not name.strip() or not name.isprintable() or "/" in name or name != name.strip():
        faults.add(
            "name",
            (
                "name must be printable and not empty, without a slash and without "
                "spaces at its ends."
            ),
            "For example: ci",
        )
    if len(name) > LONGEST_NAME:
        faults.add(
            "name", f"name is too long, {len(name)} characters.", f"Use at most {LONGEST_NAME}."
        )
    if unknown := [role for role in scopes["roles"] or [] if role not in ROLES]:
        faults.add(
            "roles",
            f"Role {', '.join(unknown)} does not exist.",
            f"Choose from {', '.join(ROLES)}.",
        )
    for field, names in scopes.items():
        if names == []:
            faults.add(
                field,
                f"{field} is empty: the token could do nothing.",
                f"Name at least one {field[:-1]}, or leave the field out.",
            )
    if expires_at is not None and expires_at <= timezone.now():
        faults.add(
            "expires_at",
            "expires_at is in the past.",
            "Choose a time in the future, or leave it out.",
        )
    faults.raise_if_any()


def refuse_wider(within: Identity, scopes: TokenScopes, expires_at: datetime | None) -> None:
    """Raises Invalid if the new token would permit more or last longer than the asking one: a
    stolen token must not outlive its revocation in a wider token.
    """
    if within.token_id is None:
        return
    maker, faults = within.scope, Faults()
    asked = read_scope(scopes["roles"], scopes["pools"], {})
    if maker.roles is not None and (asked.roles is None or asked.roles - maker.roles):
        faults.add(
            "roles",
            "The new token would have roles that the asking token does not have.",
            "Ask for fewer roles.",
        )
    if maker.pools is not None and (asked.pools is None or set(asked.pools) - set(maker.pools)):
        faults.add(
            "pools",
            "The new token would reach pools that the asking token does not reach.",
            "Name fewer pools.",
        )
    end = Token.objects.filter(pk=within.token_id).values_list("expires_at", flat=True).first()
    if end is not None and (expires_at is None or expires_at > end):
        faults.add(
            "expires_at",
            "The new token would expire later than the asking token.",
            f"Choose {end.isoformat()} at the latest.",
        )
    faults.raise_if_any()


def about(token: Token) -> dict[str, object]:
    return {
        "token_id": token.pk,
        "token": token.name,
        "user_id": token.user_id,
        "user": token.user.get_username(),
    }
