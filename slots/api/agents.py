"""REST about members that are agents: what they sign in with, and a new start."""

from pathlib import PurePosixPath

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from pools.http.endpoint import describe, read_body
from pools.lifecycle.selectors import spec_of
from pools.models import Member
from pools.providers.base import has_agents
from project.kernel.errors import Conflict
from project.kernel.http.api_base import StrictSerializer
from slots.api import schemas as shapes
from slots.api.members import TAG, MemberEndpoint, show_member_view
from slots.members.restart import restart_member
from slots.members.selectors import view_member
from slots.members.token_rotation import order_token, rotates
from slots.members.tokens import issue_token

AGENT_FILE = "agent/berth-agent.pyz"  # served by every web process


class MemberTokenBody(StrictSerializer):
    reason = serializers.CharField(
        max_length=500,
        required=False,
        allow_blank=True,
        default="",
        help_text="Why; it stands in the events, the token does not.",
    )
    ends_previous = serializers.BooleanField(
        required=False,
        default=False,
        help_text="The one before opens nothing from now on. Else it opens for an hour more.",
    )


class MemberTokenAnswer(shapes.Shape):
    token = serializers.CharField(help_text="Shown this once.")
    member_id = serializers.IntegerField()
    member = serializers.CharField()
    pool = serializers.CharField()
    incarnation = serializers.IntegerField(
        help_text="It is for this one; a restart of the member ends it."
    )
    agent_url = serializers.CharField(
        help_text="The agent as one file; it needs python3 and nothing else."
    )
    start = serializers.ListField(
        child=serializers.CharField(), help_text="Lines for a shell where the agent is to run."
    )


class MemberToken(MemberEndpoint):
    @describe(
        "Make a token for a member's agent",
        {201: MemberTokenAnswer},
        body=MemberTokenBody,
        problems=(409,),
        name="make_member_token",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """The agent signs in with it. Its secret is in this answer and nowhere else."""
        member = self.find(member_id, "edit_member")
        body = read_body(request, MemberTokenBody)
        secret = make_token(member, reason=body["reason"], ends_previous=body["ends_previous"])
        host = request.build_absolute_uri("/")
        told = {
            "token": secret,
            "member_id": member.pk,
            "member": member.name,
            "pool": member.pool.name,
            "incarnation": member.incarnation,
            "agent_url": f"{host}{AGENT_FILE}",
            "start": build_start_commands(host, member, secret),
        }
        return Response(told, status=201)


class RotateBody(shapes.NeededReasonBody):
    ends_previous = serializers.BooleanField(
        required=False,
        default=False,
        help_text=(
            "The one before ends with the first use of the new one. Else it opens for an hour more."
        ),
    )


class MemberRotate(MemberEndpoint):
    @describe(
        "Rotate a member's token",
        {200: shapes.MemberDetailAnswer},
        body=RotateBody,
        problems=(409,),
        name="rotate_member_token",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """Its agent is given another one while it works, where Berth hands agents their tokens.
        Elsewhere make one, and put it there.
        """
        self.find(member_id, "edit_member")
        body = read_body(request, RotateBody)
        order_token(member_id=member_id, reason=body["reason"], ends_previous=body["ends_previous"])
        return Response(show_member_view(view_member(member_id)))


class MemberRestart(MemberEndpoint):
    @describe(
        "Restart a member",
        {200: shapes.MemberDetailAnswer},
        body=shapes.NeededReasonBody,
        problems=(409,),
        name="restart_member",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """Its agent is ended and started again, as a new incarnation. Refused while something
        may run there; what is reserved stays so.
        """
        self.find(member_id, "cordon")
        restart_member(
            member_id=member_id, reason=read_body(request, shapes.NeededReasonBody)["reason"]
        )
        return Response(show_member_view(view_member(member_id)))


def make_token(member: Member, *, reason: str = "", ends_previous: bool = False) -> str:
    """Refuses where nobody would sign in with it."""
    if not may_sign_in(member):
        way_out = (
            "Claims there are served by whoever declared its members. For heartbeats, add liveness "
            "to its configuration."
        )
        raise Conflict(
            f"Members of {member.pool.name} have no agents, and no heartbeat.",
            code="no_agents",
            way_out=way_out,
        )
    if rotates(spec_of(member.pool)):  # its agent would be left with one that ends in an hour
        text = (
            f"Berth itself hands the agent of {member.name} its token, and nobody else "
            "is to know it."
        )
        raise Conflict(
            text, code="ours", way_out="Rotate it: its agent gets another one while it works."
        )
    return issue_token(member_id=member.pk, reason=reason, keep_previous=not ends_previous)


def may_sign_in(member: Member) -> bool:
    """An agent does, and whoever says for a member that it lives."""
    spec = spec_of(member.pool)
    return has_agents(spec) or spec.liveness is not None


def build_start_commands(host: str, member: Member, secret: str) -> list[str]:
    """For a shell with python3 and nothing else. The token goes into a file: a command line is
    everybody's to read.
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
