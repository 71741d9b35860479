"""REST about members that drain: begun, carried out at once, taken back, and what still
keeps them.
"""

from datetime import datetime, timedelta
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from claims.lifecycle.drain import force_drain
from claims.lifecycle.drain_report import list_blockers, show_blocker
from claims.states import CLAIM, OUTCOMES
from pools.access.permissions import require
from pools.config.durations import parse_duration
from pools.http.endpoint import Endpoint, describe, read_body
from pools.lifecycle.selectors import LIVE, get_pool
from pools.models import Member
from project.kernel.errors import BerthError, FieldError, Invalid
from project.kernel.http.api_base import AwareDateTimeField, StrictSerializer
from project.kernel.validation import LONGEST_REASON, moment
from slots.api.members import TAG, MemberEndpoint, show_member
from slots.api.schemas import MemberAnswer, ReasonBody, Shape
from slots.members.drain import drain_member, undrain_member
from slots.members.selectors import get_member, view_member

MOST = 500  # members in one call


class DrainBody(StrictSerializer):
    reason = serializers.CharField(max_length=LONGEST_REASON, help_text="Why; others read it.")
    until = AwareDateTimeField(
        required=False,
        allow_null=True,
        default=None,
        help_text="The deadline. Left out: the pool's drain.limit.",
    )
    within = serializers.CharField(
        max_length=40,
        required=False,
        default="",
        help_text="The same as a length of time: 30m, 2h. One of the two at most.",
    )
    force = serializers.BooleanField(
        required=False, default=False, help_text="The deadline is now: whoever is there is put out."
    )
    stays = serializers.BooleanField(
        required=False,
        allow_null=True,
        default=None,
        help_text=(
            "Once empty it stays, cordoned, until somebody opens it. Else it goes. Left out: as it "
            "was ordered before, else it goes."
        ),
    )


class DrainManyBody(DrainBody):
    members = serializers.ListField(
        child=serializers.CharField(max_length=63),
        min_length=1,
        max_length=MOST,
        help_text="Names of members of this pool.",
    )


class ThenAnswer(Shape):
    state = serializers.ChoiceField(tuple(CLAIM.states))
    outcome = serializers.ChoiceField(tuple(OUTCOMES), allow_null=True)
    text = serializers.CharField()


class KeeperAnswer(Shape):
    claim_id = serializers.IntegerField()
    state = serializers.ChoiceField(tuple(CLAIM.states))
    step = serializers.CharField(allow_null=True)
    owner = serializers.CharField()
    workspace = serializers.CharField(allow_null=True)
    since = serializers.DateTimeField(allow_null=True)
    then = ThenAnswer(help_text="What becomes of it past the deadline, or by force, as it is now.")


class DrainAnswer(Shape):
    member = MemberAnswer()
    is_draining = serializers.BooleanField()
    until = serializers.DateTimeField(
        allow_null=True, help_text="Past this moment whoever is still there is put out."
    )
    since = serializers.DateTimeField(allow_null=True)
    by = serializers.CharField(allow_blank=True)
    note = serializers.CharField(allow_blank=True)
    stays = serializers.BooleanField()
    stays_cordoned = serializers.BooleanField(
        help_text="It drains, and was cordoned apart from that: taken back, it stays cordoned."
    )
    cordoned_by = serializers.CharField(
        allow_blank=True, help_text="Who ordered a cordon, apart from its drain."
    )
    cordon_note = serializers.CharField(allow_blank=True, help_text="Why.")
    slots = serializers.IntegerField(help_text="That it offers.")
    empty = serializers.IntegerField(
        help_text="Of them those that nobody holds and that are clean."
    )
    keepers = KeeperAnswer(many=True)


class DrainedAnswer(Shape):
    name = serializers.CharField()
    member_id = serializers.IntegerField(allow_null=True)
    state = serializers.CharField(allow_null=True, help_text="gone or deleting: nobody was there.")
    error = serializers.CharField(allow_null=True, help_text="Why this one was left as it is.")


class DrainManyAnswer(Shape):
    results = DrainedAnswer(many=True)


class MemberDrain(MemberEndpoint):
    @describe("What keeps a member", {200: DrainAnswer}, name="get_drain", tag=TAG)
    def get(self, request: Request, member_id: int) -> Response:
        """How far its drain is; of one that does not drain, what a drain by force would end."""
        self.find(member_id, "read")
        return Response(show_drain(member_id))

    @describe(
        "Drain a member",
        {200: DrainAnswer},
        body=DrainBody,
        problems=(409, 422),
        name="drain_member",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """It takes nothing new. Whoever is there may finish until the deadline and is put out after
        it: plans go back into their line, what waits for a decision keeps its plan and loses its
        slot, an apply that has begun is lost. Said again it has another deadline."""
        self.find(member_id, "drain")
        perform(member_id, read_body(request, DrainBody))
        return Response(show_drain(member_id))


class MemberUndrain(MemberEndpoint):
    @describe(
        "Take a drain back",
        {200: DrainAnswer},
        body=ReasonBody,
        problems=(409,),
        name="undrain_member",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """As long as it has not gone. Whoever was put out stays so; one that was cordoned before
        stays cordoned (`stays_cordoned`).
        """
        self.find(member_id, "drain")
        undrain_member(member_id=member_id, reason=read_body(request, ReasonBody)["reason"])
        return Response(show_drain(member_id))


class PoolDrain(Endpoint):
    @describe(
        "Drain several members",
        {200: DrainManyAnswer},
        body=DrainManyBody,
        problems=(422,),
        name="drain_members",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """Each on its own, all with the same deadline; the answer says which were left as they
        are, and why.
        """
        pool = get_pool(pool_name)
        require(self.identity, "drain", pool)
        body = read_body(request, DrainManyBody)
        names = list(dict.fromkeys(body.pop("members")))
        ids = dict(Member.objects.filter(LIVE, pool=pool, name__in=names).values_list("name", "pk"))
        if missing := [name for name in names if name not in ids]:
            raise Invalid(
                fields=[
                    FieldError(
                        "members",
                        f"There is no member {missing[0]} in {pool.name}.",
                        "Look at its members.",
                    )
                ]
            )
        until_of(body)
        return Response({"results": [try_one(name, ids[name], body) for name in names]})


def try_one(name: str, member_id: int, body: dict[str, Any]) -> dict[str, Any]:
    try:
        perform(member_id, body)
    except BerthError as error:
        return {"name": name, "member_id": member_id, "state": None, "error": error.detail}
    return {
        "name": name,
        "member_id": member_id,
        "state": get_member(member_id).state,
        "error": None,
    }


def perform(member_id: int, body: dict[str, Any]) -> None:
    until = until_of(body)
    if body["force"]:
        force_drain(member_id=member_id, reason=body["reason"], stays=body["stays"])
    else:
        drain_member(member_id=member_id, reason=body["reason"], until=until, stays=body["stays"])


def until_of(body: dict[str, Any]) -> datetime | None:
    until: datetime | None = body["until"]
    if not body["within"]:
        return until
    seconds = parse_duration(body["within"])
    if until is not None or body["force"]:
        raise Invalid(
            fields=[
                FieldError(
                    "within", "There is another deadline.", "Send one of until, within and force."
                )
            ]
        )
    if seconds is None or not 1 <= seconds <= 366 * 86400:
        raise Invalid(
            fields=[
                FieldError(
                    "within", "This is not a length of time.", "Write one like 30m, 2h or 1d."
                )
            ]
        )
    return moment() + timedelta(seconds=seconds)


def show_drain(member_id: int) -> dict[str, Any]:
    view = view_member(member_id)
    member = view.member
    offered = [slot for slot in view.slots if slot.state != "retired"]
    is_draining = member.state not in ("gone",) and (
        member.is_leaving or member.drain_until is not None
    )
    return {
        "member": show_member(member),
        "is_draining": is_draining,
        "until": member.drain_until,
        "since": member.drain_since,
        "by": member.drain_by,
        "note": member.note,
        "stays": is_draining and not member.is_leaving,
        "stays_cordoned": is_draining and bool(member.cordon_by),
        "cordoned_by": member.cordon_by,
        "cordon_note": member.cordon_note,
        "slots": len(offered),
        "empty": sum(slot.state == "idle" for slot in offered),
        "keepers": [show_blocker(keeper) for keeper in list_blockers([member_id])[member_id]],
    }
