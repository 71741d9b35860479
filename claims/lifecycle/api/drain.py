"""REST to drain members, to force or undo a drain, and to list the claims that still hold slots."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
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
from project.kernel.errors import BerthError, wrong_field
from project.kernel.http.api_base import AwareDateTimeField, StrictSerializer, TextInput
from project.kernel.validation import LONGEST_REASON, moment
from slots.api.members import TAG, MemberEndpoint
from slots.api.schemas import MemberAnswer, ReasonBody, Shape
from slots.members.drain import drain_member, undrain_member
from slots.members.selectors import get_member, get_member_detail
from slots.members.services import Removal

MAX_MEMBERS_PER_CALL = 500  # members in one call


class DrainBody(StrictSerializer):
    reason = TextInput(max_length=LONGEST_REASON, help_text="Shown on the member and in events.")
    until = AwareDateTimeField(
        required=False,
        allow_null=True,
        default=None,
        help_text="The deadline. Default: now plus the pool's drain.limit.",
    )
    within = TextInput(
        max_length=40,
        required=False,
        default="",
        help_text="The deadline as a duration from now: 30m, 2h. Not together with `until`.",
    )
    force = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Drain at once: the deadline is now, and all claims on the member are evicted.",
    )
    stays = serializers.BooleanField(
        required=False,
        allow_null=True,
        default=None,
        help_text=(
            "true: the empty member stays, cordoned, until it is uncordoned. false: it is removed. "
            "Default: as in an earlier drain of the member, else false."
        ),
    )


class DrainManyBody(DrainBody):
    members = serializers.ListField(
        child=TextInput(max_length=63),
        min_length=1,
        max_length=MAX_MEMBERS_PER_CALL,
        help_text="Names of members of this pool.",
    )


class ThenAnswer(Shape):
    state = serializers.ChoiceField(tuple(CLAIM.states))
    outcome = serializers.ChoiceField(tuple(OUTCOMES), allow_null=True)
    text = serializers.CharField()


class DrainBlockerAnswer(Shape):
    claim_id = serializers.IntegerField()
    state = serializers.ChoiceField(tuple(CLAIM.states))
    step = serializers.CharField(allow_null=True)
    owner = serializers.CharField()
    workspace = serializers.CharField(allow_null=True)
    since = serializers.DateTimeField(allow_null=True)
    then = ThenAnswer(help_text="Fate of the claim at the deadline or by force, as things are now.")


class DrainAnswer(Shape):
    member = MemberAnswer()
    is_draining = serializers.BooleanField()
    until = serializers.DateTimeField(
        allow_null=True, help_text="The deadline. Claims that are left then are evicted."
    )
    since = serializers.DateTimeField(allow_null=True)
    by = serializers.CharField(allow_blank=True)
    note = serializers.CharField(allow_blank=True)
    stays = serializers.BooleanField()
    stays_cordoned = serializers.BooleanField(
        help_text="The member was cordoned before the drain, and stays cordoned after an undrain."
    )
    cordoned_by = serializers.CharField(
        allow_blank=True, help_text="User of the cordon that is independent of the drain."
    )
    cordon_note = serializers.CharField(allow_blank=True, help_text="Reason of that cordon.")
    slots = serializers.IntegerField(help_text="Slots that the member has, without retired ones.")
    empty = serializers.IntegerField(help_text="Slots that are clean and not held.")
    keepers = DrainBlockerAnswer(many=True)


class DrainedAnswer(Shape):
    name = serializers.CharField()
    member_id = serializers.IntegerField(allow_null=True)
    state = serializers.CharField(
        allow_null=True, help_text="State of the member; gone or deleting: it was already empty."
    )
    error = serializers.CharField(allow_null=True, help_text="Why the member does not drain.")


class DrainManyAnswer(Shape):
    results = DrainedAnswer(many=True)


class MemberDrain(MemberEndpoint):
    @describe("Read the drain of a member", {200: DrainAnswer}, name="get_drain", tag=TAG)
    def get(self, request: Request, member_id: int) -> Response:
        """The progress of the drain and the claims that still hold slots. For a member that does
        not drain: the claims that a forced drain would evict.
        """
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
        """The member takes no new claims. Its claims may finish until the deadline and are then
        evicted: a running plan is queued again, a plan that waits for an approval keeps its plan
        and loses its slot, an apply that has begun is lost. A repeated call moves the deadline.
        """
        self.find(member_id, "drain")
        read_order(read_body(request, DrainBody))(member_id=member_id)
        return Response(show_drain(member_id))


class MemberUndrain(MemberEndpoint):
    @describe(
        "Undrain a member",
        {200: DrainAnswer},
        body=ReasonBody,
        problems=(409,),
        name="undrain_member",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """Undoes a drain, until the member is removed. Evicted claims do not come back. A member
        that was cordoned before stays cordoned (`stays_cordoned`).
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
        """Drains each member independently, all with the same deadline. The answer has an error
        for each member that could not be drained.
        """
        pool = get_pool(pool_name)
        require(self.identity, "drain", pool)
        body = read_body(request, DrainManyBody)
        names = list(dict.fromkeys(body["members"]))
        ids = dict(Member.objects.filter(LIVE, pool=pool, name__in=names).values_list("name", "pk"))
        if missing := [name for name in names if name not in ids]:
            raise wrong_field(
                "members",
                f"There is no member {missing[0]} in {pool.name}.",
                "Use names from the pool's list of members.",
            )
        order = read_order(body)
        return Response({"results": [try_one(name, ids[name], order) for name in names]})


def try_one(name: str, member_id: int, order: Callable[..., Removal]) -> dict[str, object]:
    state = error = None
    try:
        order(member_id=member_id)
        state = get_member(member_id).state
    except BerthError as problem:
        error = problem.detail
    return {"name": name, "member_id": member_id, "state": state, "error": error}


def read_order(body: dict[str, Any]) -> Callable[..., Removal]:
    """The drain that the body orders, to be called with the id of a member."""
    until = read_deadline(body)
    drain: Callable[..., Removal] = force_drain
    if not body["force"]:
        drain = partial(drain_member, until=until)
    return partial(drain, reason=body["reason"], stays=body["stays"])


def read_deadline(body: dict[str, Any]) -> datetime | None:
    until: datetime | None = body["until"]
    if not body["within"]:
        return until
    seconds = parse_duration(body["within"])
    if until is not None or body["force"]:
        raise wrong_field(
            "within",
            "The body sets the deadline twice.",
            "Send only one of until, within and force.",
        )
    if seconds is None or not 1 <= seconds <= 366 * 86400:
        raise wrong_field(
            "within", "This is not a length of time.", "Write one like 30m, 2h or 1d."
        )
    return moment() + timedelta(seconds=seconds)


def show_drain(member_id: int) -> dict[str, object]:
    member = get_member_detail(member_id)
    offered = [slot for slot in member.slots.all() if slot.state != "retired"]
    is_draining = member.state not in ("gone",) and (
        member.is_leaving or member.drain_until is not None
    )
    return {
        "member": MemberAnswer(member).data,
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
        "keepers": [show_blocker(blocker) for blocker in list_blockers([member_id])[member_id]],
    }
