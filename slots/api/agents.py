"""REST API of agents: their tokens and restarts."""

from pathlib import PurePosixPath

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from pools.http.endpoint import describe, read_body
from pools.lifecycle.selectors import spec_of
from pools.models import Member
from pools.providers.base import has_agents
from project.kernel.errors import Conflict
from project.kernel.http.api_base import StrictSerializer, TextInput
from slots.api import schemas
from slots.api.members import TAG, MemberEndpoint, describe_member_change
from slots.members.restart import restart_member
from slots.members.token_rotation import order_token, rotates
from slots.members.tokens import issue_token

AGENT_FILE = "agent/berth-agent.pyz"  # served by every web process


class MemberTokenBody(StrictSerializer):
    reason = TextInput(
        max_length=500,
        required=False,
        allow_blank=True,
        default="",
        help_text="Reason, recorded in the event log. The token is not recorded.",
    )
    ends_previous = serializers.BooleanField(
        required=False,
        default=False,
        help_text="The previous token becomes invalid now, instead of one hour later.",
    )


class MemberTokenAnswer(schemas.Shape):
    token = serializers.CharField(help_text="The token, which is shown only here.")
    member_id = serializers.IntegerField()
    member = serializers.CharField()
    pool = serializers.CharField()
    incarnation = serializers.IntegerField(
        help_text="The token is valid for this incarnation, until the member restarts."
    )
    agent_url = serializers.CharField(help_text="The agent as one file; it needs only python3.")
    start = serializers.ListField(
        child=serializers.CharField(), help_text="Shell commands that start the agent."
    )


class MemberToken(MemberEndpoint):
    @describe(
        "Create a token for a member's agent",
        {201: MemberTokenAnswer},
        body=MemberTokenBody,
        problems=(409,),
        name="make_member_token",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """Creates a token for the agent of a member. Only this answer contains it."""
        member = self.find(member_id, "edit_member")
        secret = make_token(member, **read_body(request, MemberTokenBody))
        host = request.build_absolute_uri("/")
        answer = {
            "token": secret,
            "member_id": member.pk,
            "member": member.name,
            "pool": member.pool.name,
            "incarnation": member.incarnation,
            "agent_url": f"{host}{AGENT_FILE}",
            "start": build_start_commands(host, member, secret),
        }
        return Response(answer, status=201)


class RotateBody(schemas.NeededReasonBody):
    ends_previous = serializers.BooleanField(
        required=False,
        default=False,
        help_text=(
            "The previous token becomes invalid with the first use of the new token, instead of "
            "one hour later."
        ),
    )


class MemberRotate(MemberEndpoint):
    @describe_member_change("Rotate a member's token", RotateBody, "rotate_member_token")
    def post(self, request: Request, member_id: int) -> Response:
        """Berth hands the agent a new token while it works. If operators start the agent, this call
        is refused: create a token and store it where the agent reads it.
        """
        return self.change(member_id, "edit_member", order_token, RotateBody)


class MemberRestart(MemberEndpoint):
    @describe_member_change("Restart a member", schemas.NeededReasonBody, "restart_member")
    def post(self, request: Request, member_id: int) -> Response:
        """Ends the agent and starts it again as a new incarnation. Refused while a task may run
        there; reserved slots stay reserved.
        """
        return self.change(member_id, "cordon", restart_member)


def make_token(member: Member, *, reason: str = "", ends_previous: bool = False) -> str:
    """Create a token. Refused for members without agent and heartbeat, and for agents that get
    their token from Berth: these would be left with a token that ends in an hour.
    """
    if not may_sign_in(member):
        raise Conflict(
            f"Members of {member.pool.name} have neither agents nor heartbeats.",
            code="no_agents",
            way_out="For heartbeats, add liveness to the configuration of the pool.",
        )
    if rotates(spec_of(member.pool)):
        raise Conflict(
            f"Berth hands the agent of {member.name} its token.",
            code="ours",
            way_out="Rotate the token: the agent gets a new one while it works.",
        )
    return issue_token(member_id=member.pk, reason=reason, keep_previous=not ends_previous)


def may_sign_in(member: Member) -> bool:
    """Whether members of the pool use tokens: for an agent, or for heartbeats."""
    spec = spec_of(member.pool)
    return has_agents(spec) or spec.liveness is not None


def build_start_commands(host: str, member: Member, secret: str) -> list[str]:
    """Shell commands that start the agent, or send a heartbeat, with python3 only. The token goes
    into a file, because all users of a machine can read command lines.
    """
    name = f"berth-{member.pool.name}-{member.name}"
    if not has_agents(spec_of(member.pool)):
        sign = f"'Authorization': 'Bearer ' + open('{name}.token').read().strip()"
        headers = f"{{{sign}, 'Content-Type': 'application/json'}}"
        url = f"{host}api/v1/members/{member.pk}/heartbeat/"
        return [
            f"(umask 077 && echo {secret} > {name}.token)",
            f"""python3 -c "from urllib.request import Request, urlopen; urlopen(Request('{url}', b'{{}}', {headers}))\"""",  # noqa: E501
        ]
    file = PurePosixPath(AGENT_FILE).name
    return [
        f"""python3 -c "from urllib.request import urlretrieve; urlretrieve('{host}{AGENT_FILE}', '{file}')\"""",  # noqa: E501
        f"(umask 077 && echo {secret} > {name}.token)",
        f"python3 {file} --url {host} --token-file {name}.token --state {name}",
    ]
