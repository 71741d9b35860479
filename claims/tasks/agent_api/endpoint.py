"""Authentication of agents by the token of their member. A rejected caller gets the reason;
repeated rejections are recorded only now and then.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import NotAuthenticated, ParseError, UnsupportedMediaType

from pools.access.authentication import AuthenticationScheme, count, read_bearer
from pools.access.rate_limit import count_unknown, limit_caller
from pools.access.tokens import hash_secret
from pools.config.parsing import Faults, ValueType
from pools.http.fast_view import JSON, FastRequest, LeanEndpoint
from pools.models import Member
from project.kernel.http.bodies import BodyCaller
from slots.api.authentication import MemberUnauthenticated
from slots.members.tokens import AgentIdentity, BadMemberToken, identify_member, record_refusal

T = TypeVar("T")
TAG = "agents"
REFUSED = {
    "unknown": "an unknown token of an agent",
    "wrong": "a token that is not, or no longer, its own",
    "gone": "the token of a member that is gone",
}


class NoAgent(NotAuthenticated):
    way_out = "Send the header 'Authorization: Bearer berthm_...', the token of a member."


class AgentAuthentication(BaseAuthentication):
    """Names the scheme in OpenAPI; `AgentEndpoint.make_call` authenticates."""


class AgentScheme(AuthenticationScheme):  # type: ignore[no-untyped-call]
    target_class = AgentAuthentication
    name = "agent"
    description = "The token of a member: from its page, or `manage.py member_token`."


class AgentCall(FastRequest):
    __slots__ = ("agent",)

    def __init__(self, request: HttpRequest, agent: AgentIdentity) -> None:
        self.request = request
        self.agent = agent

    @property
    def actor(self) -> str:
        return self.agent.actor

    @property
    def member(self) -> Member:
        """The member with the fields that services need, without a query."""
        agent = self.agent
        return Member(
            pk=agent.member_id,
            name=agent.member,
            pool_id=agent.pool_id,
            incarnation=agent.incarnation,
        )

    def parse(self, kind: ValueType[T]) -> T:
        """The body. Raises all its faults together."""
        faults = Faults()
        found = kind.read(self.read(), "", faults)
        faults.raise_if_any()
        assert found is not None  # without a fault
        return found

    def read_object(self) -> dict[str, object]:
        """A JSON object whose texts may hold any characters, because programs print them."""
        if self.request.content_type != JSON:
            raise UnsupportedMediaType(self.request.content_type or "")
        try:
            found = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise ParseError(f"The body is not JSON: {error}")
        if not isinstance(found, dict):
            raise ParseError("The body is not an object.")
        return found


class AgentEndpoint(LeanEndpoint):
    authentication_classes = (AgentAuthentication,)  # type: ignore[assignment]

    def make_call(self, request: HttpRequest) -> AgentCall:
        return AgentCall(request, identify_agent(request))


def identify_agent(request: HttpRequest) -> AgentIdentity:
    return identify_header(
        request.META.get("HTTP_AUTHORIZATION", ""),
        request.META.get("REMOTE_ADDR", ""),
        partial(count, request),
    )


def guard_agent(request: HttpRequest) -> BodyCaller:
    """Authenticates before a large body is read. The agents of a pool share the turns for large
    bodies.
    """
    agent = identify_agent(request)
    return BodyCaller(f"member:{agent.member_id}", f"pool:{agent.pool_id}")


def identify_header(header: str, address: str, count_call: Callable[[str], None]) -> AgentIdentity:
    """The agent of a header Authorization. A caller above its rate limit is rejected without a
    query. `count_call` counts a call of a known agent.
    """
    if not header:
        raise NoAgent
    secret = read_bearer(header)
    if secret is None or len(secret) > 200:
        raise MemberUnauthenticated(
            BadMemberToken("The header Authorization does not hold a token.", why="malformed")
        )
    caller = hash_secret(secret)
    with limit_caller(caller, address, count_call):
        try:
            return identify_member(secret)
        except BadMemberToken as error:
            if error.why != "malformed":
                record_refusal(
                    REFUSED[error.why],
                    pool_id=error.pool_id,
                    member_id=error.member_id,
                    address=address,
                )
                count_unknown(address, caller)
            raise MemberUnauthenticated(error)
