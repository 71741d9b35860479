"""REST to evacuate a load balancer, to undo it, and to read its preview or progress."""

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from claims.ports.evacuation.mover import undo_evacuation
from claims.ports.evacuation.orders import evacuate_member
from claims.ports.evacuation.report import report_evacuation, show_evacuation
from claims.ports.evacuation.returns import return_claim
from pools.http.endpoint import describe, read_body
from project.kernel.http.api_base import BIGINT, StrictSerializer, TextInput
from project.kernel.validation import LONGEST_REASON
from slots.api.members import TAG, MemberEndpoint
from slots.api.schemas import MemberAnswer, NeededReasonBody, ReasonBody, Shape
from slots.members.selectors import get_member_detail


class EvacuateBody(StrictSerializer):
    reason = TextInput(max_length=LONGEST_REASON, help_text="Shown on the member and in events.")
    stays = serializers.BooleanField(
        required=False,
        default=False,
        help_text="true: the empty member stays, cordoned. false: it is removed.",
    )


class EvacuatedClaimAnswer(Shape):
    claim_id = serializers.IntegerField()
    owner = serializers.CharField(allow_blank=True)
    state = serializers.ChoiceField(
        ("moves", "moving", "left", "stuck", "arrived"),
        help_text=(
            "moves: it would move, in a preview. moving: its former listeners serve until its new "
            "ports are ready. left: its turn comes. stuck: it stays for now. arrived: its former "
            "ports still drain, so it can go back."
        ),
    )
    ports = serializers.ListField(
        child=serializers.CharField(), help_text="Its ports on this member."
    )
    to = serializers.ListField(
        child=serializers.CharField(), help_text="Its new ports, as far as they are known."
    )
    code = serializers.CharField(allow_null=True, help_text="Why it is stuck, for programs.")
    reason = serializers.CharField(allow_blank=True)
    way_out = serializers.CharField(allow_blank=True)
    until = serializers.DateTimeField(
        allow_null=True,
        help_text="Of an arrived claim: the end of the drain, unless connections end before.",
    )


class EvacuationAnswer(Shape):
    member = MemberAnswer()
    is_evacuating = serializers.BooleanField(help_text="false: the answer is a preview.")
    by = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField(allow_null=True)
    stays = serializers.BooleanField()
    was_cordoned = serializers.BooleanField(
        help_text="The member was cordoned before, and stays cordoned after an undo."
    )
    waits_for = serializers.CharField(
        allow_blank=True, help_text="Why the next step is not taken yet."
    )
    moved = serializers.IntegerField(help_text="Claims that have arrived elsewhere.")
    left = serializers.IntegerField(help_text="Claims whose turn comes.")
    stuck = serializers.IntegerField(help_text="Claims that cannot move now.")
    draining_slots = serializers.IntegerField(
        help_text="Slots of the member whose connections end."
    )
    claims = EvacuatedClaimAnswer(many=True)


class EvacuationUndoBody(ReasonBody):
    returns_claims = serializers.BooleanField(
        required=False,
        default=False,
        help_text="true: claims that have arrived go back, as far as their former ports drain.",
    )


class ClaimReturnBody(NeededReasonBody):
    claim_id = serializers.IntegerField(min_value=1, max_value=BIGINT)


class MemberEvacuation(MemberEndpoint):
    @describe(
        "Read the evacuation of a member", {200: EvacuationAnswer}, name="get_evacuation", tag=TAG
    )
    def get(self, request: Request, member_id: int) -> Response:
        """The progress of the evacuation. For a member that is not being evacuated: a preview of
        where its claims would move, and of those that could not.
        """
        self.find(member_id, "read")
        return _answer(member_id)

    @describe(
        "Evacuate a member",
        {200: EvacuationAnswer},
        body=EvacuateBody,
        problems=(409, 422),
        name="evacuate_member",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """The member of a pool of ports takes no new claims, and its claims move to other members
        one at a time. Each gets new addresses and a new generation; its holder may go on to name
        the former one. Its former listeners serve until the new ports are ready, then they drain. A
        repeated call tries the claims again that could not move.
        """
        self.find(member_id, "drain")
        evacuate_member(member_id=member_id, **read_body(request, EvacuateBody))
        return _answer(member_id)


class MemberEvacuationUndo(MemberEndpoint):
    @describe(
        "Undo the evacuation of a member",
        {200: EvacuationAnswer},
        body=EvacuationUndoBody,
        problems=(409,),
        name="undo_evacuation",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """No further claim moves, and the member takes claims again, unless it was cordoned before.
        The claim that moves goes back to its former ports if they still serve; claims that have
        arrived stay where they are, unless `returns_claims` is true.
        """
        self.find(member_id, "drain")
        undo_evacuation(member_id=member_id, **read_body(request, EvacuationUndoBody))
        return _answer(member_id)


class MemberClaimReturn(MemberEndpoint):
    @describe(
        "Move an evacuated claim back",
        {200: EvacuationAnswer},
        body=ClaimReturnBody,
        problems=(409,),
        name="return_claim",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """A claim that has left the member by an evacuation gets its former ports and addresses
        back. 409 `ports_gone`: they no longer drain, so the claim keeps its new ports.
        """
        self.find(member_id, "drain")
        return_claim(member_id=member_id, **read_body(request, ClaimReturnBody))
        return _answer(member_id)


def _answer(member_id: int) -> Response:
    member = get_member_detail(member_id)
    report = report_evacuation(member_id, member.pool_id)
    return Response({"member": MemberAnswer(member).data, **show_evacuation(report)})
