"""Authentication with a member's own token, which only sends heartbeats in this API."""

from functools import partial

from django.contrib.auth.models import AnonymousUser
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from pools.access.authentication import AuthenticationScheme, count, read_bearer
from pools.access.rate_limit import count_unknown, limit_caller
from pools.access.tokens import hash_secret
from slots.members.tokens import (
    PREFIX,
    AgentIdentity,
    BadMemberToken,
    identify_member,
    record_refusal,
)


class MemberUnauthenticated(AuthenticationFailed):
    """401 with the reason and the way out for the operator of the agent."""

    def __init__(self, error: BadMemberToken) -> None:
        super().__init__(error.detail)
        self.default_code, self.way_out = error.code, error.way_out
        self.auth_header = 'Bearer error="invalid_token"'


class MemberAuthentication(BaseAuthentication):
    """Accepts tokens of members; all other callers are left to the next class. A caller over its
    rate limit is refused before a query of the database.
    """

    def authenticate(self, request: Request) -> tuple[AnonymousUser, AgentIdentity] | None:
        secret = read_bearer(request._request.META.get("HTTP_AUTHORIZATION", ""))
        if secret is None or not secret.startswith(PREFIX) or len(secret) > 200:
            return None
        caller, address = hash_secret(secret), request._request.META.get("REMOTE_ADDR", "")
        with limit_caller(caller, address, partial(count, request._request)):
            try:
                return AnonymousUser(), identify_member(secret)
            except BadMemberToken as error:
                record_refusal(
                    "an invalid token",
                    pool_id=error.pool_id,
                    member_id=error.member_id,
                    address=address,
                )
                count_unknown(address, caller)
                raise MemberUnauthenticated(error)

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class MemberScheme(AuthenticationScheme):  # type: ignore[no-untyped-call]
    target_class = MemberAuthentication
    name = "member"
    description = "A member's own token (berthm_...), for its heartbeat."
