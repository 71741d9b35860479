"""REST API for the caller's own rights, tokens and grants."""

from collections.abc import Iterable
from typing import TypeVar

from django.contrib.auth.models import Group, User
from django.db.models import Q, QuerySet
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
from project.kernel.errors import Forbidden, NotFound, wrong_field

Row = TypeVar("Row", User, Group)


class MyView(Endpoint):
    @describe("The caller and its roles", {200: Me}, name="get_me", tag="access")
    def get(self, request: Request) -> Response:
        """The present roles: those of the user, within the limits of the token."""
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
            in_query("user", "Tokens of another user, for admins of all pools."),
            in_query("live", "Not revoked.", bool),
        ],
        name="list_tokens",
        tag="access",
    )
    def get(self, request: Request) -> Response:
        """The caller's tokens, newest first."""
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
        "Create a token",
        {201: NewTokenAnswer},
        body=TokenBody,
        problems=(409,),
        name="create_token",
        tag="access",
    )
    def post(self, request: Request) -> Response:
        """Creates a token for the caller. Only this answer contains the secret. A caller with a
        token can create only tokens that permit no more and last no longer.
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
        """A token of the caller, or any token for admins of all pools. Raises NotFound for other
        tokens.
        """
        token = Token.objects.select_related("user").filter(pk=token_id).first()
        if token is None or (
            token.user_id != self.identity.user_id and not self.identity.may("grant", None)
        ):
            raise NotFound("There is no such token.", way_out="Look at the list of tokens.")
        return token

    @describe("A token", {200: TokenAnswer}, name="get_token", tag="access")
    def get(self, request: Request, token_id: int) -> Response:
        """The secret is not part of the answer, because it is not stored."""
        return Response(show_tokens([self.find(token_id)])[0])

    @describe("Revoke a token", {204: None}, query=[REASON], name="revoke_token", tag="access")
    def delete(self, request: Request, token_id: int) -> Response:
        """The token is rejected from now on, and sockets that it opened close. A token with limits
        can revoke only itself.
        """
        token, me = self.find(token_id), self.identity
        if me.scope != Scope() and token.pk != me.token_id:
            raise Forbidden(
                f"The token {me.token_name} is limited: it can revoke only itself.",
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
            in_query("pool", "Only grants in this pool."),
            in_query("user", "Only grants of this user."),
            in_query("group", "Only grants of this group."),
        ],
        name="list_grants",
        tag="access",
    )
    def get(self, request: Request) -> Response:
        """Grants in pools of which the caller is admin, and the caller's own grants."""
        limit, before = read_page(request)
        found = Grant.objects.select_related("user", "group", "pool")
        if (pools := self.identity.pools_with(ADMIN)) is not None:
            found = found.filter(Q(pool_id__in=pools) | Q(user_id=self.identity.user_id))
        for lookup in ("pool__name", "user__username", "group__name"):
            if text := read_text(request, lookup.partition("__")[0]):
                found = found.filter(**{lookup: text})
        if before is not None:
            found = found.filter(pk__gt=before)
        rows, cursor = cut(list(found.order_by("id")[: limit + 1]), limit)
        return page(request, list(GrantAnswer(rows, many=True).data), cursor)

    @describe(
        "Grant a role",
        {201: GrantAnswer},
        body=GrantBody,
        problems=(404, 409),
        name="create_grant",
        tag="access",
    )
    def post(self, request: Request) -> Response:
        """Grants a role to a user or a group, in one pool or in all pools. For admins of that pool,
        or of all pools.
        """
        body = read_body(request, GrantBody)
        pool = get_pool(body["pool"]) if body["pool"] else None
        require(self.identity, "grant", pool)
        user = find_named(User.objects.filter(username=body["user"]), "user", body["user"])
        group = find_named(Group.objects.filter(name=body["group"]), "group", body["group"])
        grant = create_grant(
            role=body["role"], user=user, group=group, pool=pool, reason=body["reason"]
        )
        return Response(GrantAnswer(grant).data, status=201)


class GrantDetail(Endpoint):
    @describe("Withdraw a grant", {204: None}, query=[REASON], name="delete_grant", tag="access")
    def delete(self, request: Request, grant_id: int) -> Response:
        """The role ends with the next request. Sockets that show more than the remaining roles
        permit are closed.
        """
        grant = Grant.objects.select_related("pool").filter(pk=grant_id).first()
        missing = NotFound("There is no such grant.", way_out="Look at the list of grants.")
        if grant is None:
            raise missing
        require(self.identity, "grant", grant.pool, hidden=missing)
        revoke_grant(grant.pk, reason=read_text(request, "reason", 500))
        return Response(status=204)


def find_named(found: QuerySet[Row], field: str, name: str | None) -> Row | None:
    if name is None:
        return None
    row = found.first()
    if row is None:
        raise wrong_field(field, f"There is no {field} {name}.", f"Name an existing {field}.")
    return row


def find_pools(names: Iterable[str]) -> list[Pool]:
    wanted = list(dict.fromkeys(names))
    there = {pool.name: pool for pool in Pool.objects.filter(LIVE, name__in=wanted)}
    if missing := [name for name in wanted if name not in there]:
        raise wrong_field(
            "pools", f"There is no pool {', '.join(missing)}.", "Name existing pools."
        )
    return [there[name] for name in wanted]


def show_tokens(tokens: Iterable[Token]) -> list[dict[str, object]]:
    rows = list(tokens)
    ids = {pool for token in rows for pool in token.scopes.get("pools") or ()}
    names = dict(Pool.objects.filter(pk__in=ids).values_list("id", "name")) if ids else {}
    return list(TokenAnswer(rows, many=True, context={"names": names}).data)
