"""REST about who may do what: me, tokens, grants."""

from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import Group, User
from django.db.models import Q
from rest_framework.request import Request
from rest_framework.response import Response

from pools.access.permissions import ADMIN, Scope, require
from pools.access.tokens import create_token, revoke_token
from pools.http.endpoint import (
    PAGES,
    REASON,
    Endpoint,
    cut,
    describe,
    in_query,
    page,
    pages_of,
    read_body,
    read_flag,
    read_page,
    read_text,
)
from pools.lifecycle.selectors import LIVE, get_pool
from pools.models import Grant, Pool, Token
from pools.roles.schemas import GrantAnswer, GrantBody, Me, NewTokenAnswer, TokenAnswer, TokenBody
from pools.roles.services import create_grant, revoke_grant
from project.kernel.errors import FieldError, Forbidden, Invalid, NotFound


class MyView(Endpoint):
    @describe("Who I am and what I may", {200: Me}, name="get_me", tag="access")
    def get(self, request: Request) -> Response:
        """The roles that count at this moment: what the user has, less what the token is
        limited to.
        """
        me = self.identity
        names = {pool: name for name, pool in me.names.items()}
        by_pool = {
            names[pool]: sorted(roles)
            for pool, roles in me.by_pool.items()
            if pool in names and roles
        }
        return Response(
            {
                "user_id": me.user_id,
                "username": me.username,
                "is_superuser": me.is_superuser,
                "token": {"id": me.token_id, "name": me.token_name}
                if me.token_id is not None
                else None,
                "roles": {"everywhere": sorted(me.everywhere), "pools": by_pool},
            }
        )


class TokenList(Endpoint):
    @describe(
        "Tokens",
        {200: pages_of(TokenAnswer)},
        query=[
            *PAGES,
            in_query("user", "Of somebody else, for admins of all pools."),
            in_query("live", "Not revoked.", bool),
        ],
        name="list_tokens",
        tag="access",
    )
    def get(self, request: Request) -> Response:
        """One's own, the newest first."""
        limit, before = read_page(request)
        name = read_text(request, "user")
        if name and name != self.identity.username:
            require(self.identity, "grant", None)
            found = Token.objects.filter(user__username=name)
        else:
            found = Token.objects.filter(user_id=self.identity.user_id)
        if (is_live := read_flag(request, "live")) is not None:
            found = found.filter(revoked_at__isnull=is_live)
        if before is not None:
            found = found.filter(pk__lt=before)
        rows, cursor = cut(list(found.select_related("user").order_by("-id")[: limit + 1]), limit)
        return page(request, show_tokens(rows), cursor)

    @describe(
        "Make a token",
        {201: NewTokenAnswer},
        body=TokenBody,
        problems=(409,),
        name="create_token",
        tag="access",
    )
    def post(self, request: Request) -> Response:
        """For oneself. The secret is in this answer and never again. A token makes only tokens
        that may no more and last no longer.
        """
        body = read_body(request, TokenBody)
        pools = None if body["pools"] is None else find_pools(body["pools"])
        user = User.objects.get(pk=self.identity.user_id)
        token, secret = create_token(
            user=user,
            name=body["name"],
            roles=body["roles"],
            pools=pools,
            expires_at=body["expires_at"],
            within=self.identity,
        )
        return Response(
            show_tokens([token])[0] | {"secret": secret},
            status=201,
            headers={"Cache-Control": "no-store"},
        )


class TokenDetail(Endpoint):
    def find(self, token_id: int) -> Token:
        """One's own; of others only for admins of all pools. What one may not see is not there."""
        token = Token.objects.select_related("user").filter(pk=token_id).first()
        if token is None or (
            token.user_id != self.identity.user_id and not self.identity.may("grant", None)
        ):
            raise NotFound("There is no such token.", way_out="Look at the list of tokens.")
        return token

    @describe("A token", {200: TokenAnswer}, name="get_token", tag="access")
    def get(self, request: Request, token_id: int) -> Response:
        """Without its secret, which is kept nowhere."""
        return Response(show_tokens([self.find(token_id)])[0])

    @describe("Revoke a token", {204: None}, query=[REASON], name="revoke_token", tag="access")
    def delete(self, request: Request, token_id: int) -> Response:
        """It opens nothing from now on, and the sockets that it has opened close. A limited
        token revokes itself alone.
        """
        token, me = self.find(token_id), self.identity
        if me.scope != Scope() and token.pk != me.token_id:
            raise Forbidden(
                f"The token {me.token_name} is limited: it revokes itself alone.",
                way_out="Use a token without limits.",
            )
        revoke_token(token.pk, reason=read_text(request, "reason", 500))
        return Response(status=204)


class GrantList(Endpoint):
    @describe(
        "Grants",
        {200: pages_of(GrantAnswer)},
        query=[
            *PAGES,
            in_query("pool", "In this pool."),
            in_query("user", "Of this user."),
            in_query("group", "Of this group."),
        ],
        name="list_grants",
        tag="access",
    )
    def get(self, request: Request) -> Response:
        """Those in pools that one is admin of, and one's own."""
        limit, before = read_page(request)
        found = Grant.objects.select_related("user", "group", "pool")
        if (pools := self.identity.pools_with(ADMIN)) is not None:
            found = found.filter(Q(pool_id__in=pools) | Q(user_id=self.identity.user_id))
        for field, lookup in (
            ("pool", "pool__name"),
            ("user", "user__username"),
            ("group", "group__name"),
        ):
            if text := read_text(request, field):
                found = found.filter(**{lookup: text})
        if before is not None:
            found = found.filter(pk__gt=before)
        rows, cursor = cut(list(found.order_by("id")[: limit + 1]), limit)
        return page(request, [show_grant(grant) for grant in rows], cursor)

    @describe(
        "Grant a role",
        {201: GrantAnswer},
        body=GrantBody,
        problems=(404, 409),
        name="create_grant",
        tag="access",
    )
    def post(self, request: Request) -> Response:
        """To a user or a group, in one pool or in all. For admins of that pool, or of all pools."""
        body = read_body(request, GrantBody)
        pool = get_pool(body["pool"]) if body["pool"] else None
        require(self.identity, "grant", pool)
        user = find_named(User.objects.filter(username=body["user"]), "user", body["user"])
        group = find_named(Group.objects.filter(name=body["group"]), "group", body["group"])
        return Response(
            show_grant(
                create_grant(
                    role=body["role"], user=user, group=group, pool=pool, reason=body["reason"]
                )
            ),
            status=201,
        )


class GrantDetail(Endpoint):
    @describe("Withdraw a grant", {204: None}, query=[REASON], name="delete_grant", tag="access")
    def delete(self, request: Request, grant_id: int) -> Response:
        """It counts from the next request on; sockets that showed more than is allowed
        now close.
        """
        grant = Grant.objects.select_related("pool").filter(pk=grant_id).first()
        missing = NotFound("There is no such grant.", way_out="Look at the list of grants.")
        if grant is None:
            raise missing
        require(self.identity, "grant", grant.pool, hidden=missing)
        revoke_grant(grant.pk, reason=read_text(request, "reason", 500))
        return Response(status=204)


def find_named(found: Any, field: str, name: str | None) -> Any:
    if name is None:
        return None
    row = found.first()
    if row is None:
        raise Invalid(
            fields=[FieldError(field, f"There is no {field} {name}.", "Name one that is there.")]
        )
    return row


def find_pools(names: Iterable[str]) -> list[Pool]:
    wanted = list(dict.fromkeys(names))
    there = {pool.name: pool for pool in Pool.objects.filter(LIVE, name__in=wanted)}
    if missing := [name for name in wanted if name not in there]:
        raise Invalid(
            fields=[
                FieldError(
                    "pools", f"There is no pool {', '.join(missing)}.", "Name pools that are there."
                )
            ]
        )
    return [there[name] for name in wanted]


def show_tokens(tokens: Iterable[Token]) -> list[dict[str, Any]]:
    rows = list(tokens)
    ids = {pool for token in rows for pool in token.scopes.get("pools") or ()}
    names = dict(Pool.objects.filter(pk__in=ids).values_list("id", "name")) if ids else {}
    return [show_token(token, names) for token in rows]


def show_token(token: Token, names: dict[int, str]) -> dict[str, Any]:
    pools = token.scopes.get("pools")
    return {
        "id": token.pk,
        "user": token.user.get_username(),
        "name": token.name,
        "prefix": token.prefix,
        "roles": token.scopes.get("roles"),
        "pools": None if pools is None else [names.get(pool, f"#{pool}") for pool in pools],
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "last_used_at": token.last_used_at,
        "revoked_at": token.revoked_at,
    }


def show_grant(grant: Grant) -> dict[str, Any]:
    return {
        "id": grant.pk,
        "user": None if grant.user is None else grant.user.get_username(),
        "group": None if grant.group is None else grant.group.name,
        "pool": None if grant.pool is None else grant.pool.name,
        "role": grant.role,
        "created_at": grant.created_at,
    }
