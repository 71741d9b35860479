"""REST API of members and slots, and of pausing pools."""

from collections.abc import Collection, Mapping, Sequence

from django.db.models import QuerySet
from django.db.models.functions import Now
from rest_framework.request import Request
from rest_framework.response import Response

from pools.access.permissions import Identity, require
from pools.http.endpoint import (
    NEEDED_REASON,
    PAGES,
    Endpoint,
    cut,
    describe,
    in_query,
    page,
    pages_of,
    read_body,
    read_choices,
    read_flag,
    read_integer,
    read_moment,
    read_page,
    read_text,
)
from pools.lifecycle.selectors import get_pool
from pools.models import Member, Pool
from project.kernel.db.guards import reporting
from project.kernel.errors import FieldError, Forbidden, Invalid, NotFound, wrong_field
from project.kernel.validation import LONGEST_REASON
from slots.api import schemas as shapes
from slots.api.authentication import MemberAuthentication
from slots.members import services
from slots.members.liveness import record_heartbeat
from slots.members.selectors import (
    MemberView,
    find_holder_at,
    get_member,
    list_members,
    no_such_member,
    view_member,
)
from slots.members.tokens import AgentIdentity
from slots.models import Slot

TAG = "members and slots"
LARGEST_BATCH = 1000  # members in one call


class MemberList(Endpoint):
    @describe(
        "Members of a pool",
        {200: pages_of(shapes.MemberAnswer)},
        query=PAGES,
        name="list_members",
        tag=TAG,
    )
    def get(self, request: Request, pool_name: str) -> Response:
        """Returns the members without their slots, ordered by id."""
        limit, after = read_page(request)
        pool = get_pool(pool_name)
        require(self.identity, "read", pool)
        found = list_members(pool.pk).select_related("pool").order_by("id")
        if after is not None:
            found = found.filter(pk__gt=after)
        rows, cursor = cut(list(found[: limit + 1]), limit)
        return page(request, [show_member(member) for member in rows], cursor)

    @describe(
        "Add members",
        {201: pages_of(shapes.MemberAnswer, "AddedMembers")},
        body=shapes.MEMBERS_BODY,
        problems=(409, 422),
        name="add_members",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """Adds one member or a list of members: all or, on any fault, none. Existing claims are not
        affected; waiting claims may be bound at once.
        """
        pool = get_pool(pool_name)
        require(self.identity, "add_member", pool)
        declared, reason = read_declared(request.data)
        added = services.add_members(pool_id=pool.pk, declared=declared, reason=reason)
        rows = (
            Member.objects.select_related("pool")
            .filter(pk__in=[member.pk for member in added])
            .order_by("id")
        )
        return Response(
            {"results": [show_member(member) for member in rows], "next": None}, status=201
        )


class MemberEndpoint(Endpoint):
    def find(self, member_id: int, action: str) -> Member:
        member = get_member(member_id)
        require(self.identity, action, member.pool, hidden=no_such_member(member_id))
        return member


class MemberDetail(MemberEndpoint):
    @describe(
        "A member with its slots", {200: shapes.MemberDetailAnswer}, name="get_member", tag=TAG
    )
    def get(self, request: Request, member_id: int) -> Response:
        self.find(member_id, "read")
        return answer_member(member_id)

    @describe(
        "Change a member",
        {200: shapes.MemberDetailAnswer},
        body=shapes.MEMBER_CHANGES,
        problems=(409, 422),
        name="edit_member",
        tag=TAG,
    )
    def patch(self, request: Request, member_id: int) -> Response:
        """Changes labels, slots or ports of a member. A missing field stays as it is; null takes
        the value of the pool.
        """
        self.find(member_id, "edit_member")
        changes, reason = split_reason(request.data)
        refuse_unknown(changes, shapes.MEMBER_CHANGES["properties"])
        services.edit_member(member_id=member_id, reason=reason, where="", **changes)
        return answer_member(member_id)

    @describe(
        "Remove a member",
        {200: shapes.RemovalAnswer},
        query=[NEEDED_REASON],
        problems=(409,),
        name="remove_member",
        tag=TAG,
    )
    def delete(self, request: Request, member_id: int) -> Response:
        """The member takes no new claims and is removed once it is empty, at once if possible. The
        answer lists the slots that claims still hold; no claim is moved or ended.
        """
        self.find(member_id, "remove_member")
        removal = services.remove_member(
            member_id=member_id, reason=read_text(request, "reason", LONGEST_REASON)
        )
        holders = [
            {
                "claim_id": h.claim_id,
                "slot_id": h.slot_id,
                "lane": h.lane,
                "number": h.number,
                "state": h.state,
            }
            for h in removal.holders
        ]
        return Response(
            {"member_id": removal.member_id, "state": removal.state, "holders": holders}
        )


class MemberCordon(MemberEndpoint):
    @describe(
        "Cordon",
        {200: shapes.MemberDetailAnswer},
        body=shapes.NeededReasonBody,
        problems=(409,),
        name="cordon_member",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """The member takes no new claims; claims on it keep their slots."""
        self.find(member_id, "cordon")
        services.cordon_member(
            member_id=member_id, reason=read_body(request, shapes.NeededReasonBody)["reason"]
        )
        return answer_member(member_id)


class MemberUncordon(MemberEndpoint):
    @describe(
        "Uncordon",
        {200: shapes.MemberDetailAnswer},
        body=shapes.ReasonBody,
        problems=(409,),
        name="uncordon_member",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """The member takes new claims again, unless its pool is paused or it is unhealthy."""
        self.find(member_id, "cordon")
        services.uncordon_member(
            member_id=member_id, reason=read_body(request, shapes.ReasonBody)["reason"]
        )
        return answer_member(member_id)


class MemberKeep(MemberEndpoint):
    @describe(
        "Keep a member that leaves",
        {200: shapes.MemberDetailAnswer},
        body=shapes.ReasonBody,
        problems=(409,),
        name="keep_member",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """Cancels the removal of a member that is still there."""
        self.find(member_id, "remove_member")
        services.cancel_member_removal(
            member_id=member_id, reason=read_body(request, shapes.ReasonBody)["reason"]
        )
        return answer_member(member_id)


class MemberHeartbeat(MemberEndpoint):
    authentication_classes = (MemberAuthentication, *Endpoint.authentication_classes)  # type: ignore[assignment]

    @describe(
        "Heartbeat of a member",
        {200: shapes.BeatAnswer},
        body=shapes.BeatBody,
        problems=(409,),
        name="beat_member",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """Records that the member is alive; an offline member comes back. The caller uses the
        member's own token, or is an operator of its pool.
        """
        body = read_body(request, shapes.BeatBody)
        answer = record_heartbeat(
            member_id=member_id,
            incarnation=self.find_incarnation(member_id, body["incarnation"]),
            load=body["load"],
        )
        return Response(
            {
                "member_id": answer.member_id,
                "state": answer.state,
                "incarnation": answer.incarnation,
                "next_within_s": answer.next_within,
            }
        )

    def find_incarnation(self, member_id: int, incarnation: int | None) -> int | None:
        """The given incarnation, else that of the member's token. Refuses a caller that may not
        send heartbeats for this member.
        """
        agent = self.request.auth
        if not isinstance(agent, AgentIdentity):
            self.find(member_id, "beat")
            return incarnation
        if agent.member_id != member_id:
            raise Forbidden(
                f"This token is only valid for member {agent.member} in {agent.pool}.",
                way_out=f"Send the heartbeat to members/{agent.member_id}/heartbeat/.",
            )
        return agent.incarnation if incarnation is None else incarnation


class SlotList(Endpoint):
    @describe(
        "Slots",
        {200: pages_of(shapes.SlotAnswer)},
        query=[
            *PAGES,
            in_query("pool", "Name of the pool."),
            in_query("member", "Id of the member.", {"type": "integer", "minimum": 1}),
            in_query("claim", "Id of the holding claim.", {"type": "integer", "minimum": 1}),
            in_query("lane", "Lane of the slots."),
            in_query("state", "States of the slots.", choices=shapes.SLOT_STATES, many=True),
            in_query("open", "Whether pool and member take claims.", bool),
        ],
        problems=(404,),
        name="list_slots",
        tag=TAG,
    )
    def get(self, request: Request) -> Response:
        """Returns slots of all pools that the caller may read."""
        limit, after = read_page(request)
        found = filter_slots(self.identity, request)
        if after is not None:
            found = found.filter(pk__gt=after)
        with reporting():
            rows, cursor = cut(
                list(found.select_related("pool", "member").order_by("id")[: limit + 1]), limit
            )
        return page(request, [show_slot(slot) for slot in rows], cursor)


class SlotHeldBy(Endpoint):
    @describe(
        "Holder of a slot at a time",
        {200: shapes.HeldByAnswer},
        query=[
            in_query(
                "at",
                "A time with an offset. Default: now.",
                {"type": "string", "format": "date-time"},
            )
        ],
        name="get_slot_holder",
        tag=TAG,
    )
    def get(self, request: Request, slot_id: int) -> Response:
        """Reads the event log, as far as it reaches back."""
        slot = Slot.objects.select_related("pool").annotate(now=Now()).filter(pk=slot_id).first()
        missing = NotFound(f"There is no slot {slot_id}.", way_out="List the slots.")
        if slot is None:
            raise missing
        require(self.identity, "read", slot.pool, hidden=missing)
        at = read_moment(request, "at") or slot.now  # events have the time of the database
        held = find_holder_at(slot_id, at)
        answer = {
            "slot_id": slot_id,
            "at": at,
            "is_known": held is not None,
            "claim_id": held and held.claim_id,
            "generation": held and held.generation,
            "since": held and held.at,
            "verb": held and held.verb,
            "actor": held and held.actor,
        }
        return Response(answer)


def filter_slots(identity: Identity, request: Request) -> QuerySet[Slot]:
    found = Slot.objects.all()
    if name := read_text(request, "pool"):
        pool = get_pool(name)
        require(identity, "read", pool)
        found = found.filter(pool=pool)
    elif (pools := identity.visible_pools()) is not None:
        found = found.filter(pool_id__in=pools)
    for name, column in (("member", "member_id"), ("claim", "claim_id")):
        if (number := read_integer(request, name)) is not None:
            found = found.filter(**{column: number})
    if lane := read_text(request, "lane"):
        found = found.filter(lane=lane)
    if states := read_choices(request, "state", shapes.SLOT_STATES):
        found = found.filter(state__in=states)
    if (is_open := read_flag(request, "open")) is not None:
        found = found.filter(is_open=is_open)
    return found


def read_declared(body: object) -> tuple[Sequence[object], str]:
    """The members of the body and its reason."""
    given, reason = split_reason(body)
    if "members" not in given:
        return [given], reason
    refuse_unknown(given, ("members",))
    members = given["members"]
    if not isinstance(members, list) or not 1 <= len(members) <= LARGEST_BATCH:
        raise wrong_field(
            "members",
            f"This is not a list of 1 to {LARGEST_BATCH} members.",
            "Write [{name: a}, {name: b}].",
        )
    return members, reason


def split_reason(body: object) -> tuple[dict[str, object], str]:
    if not isinstance(body, Mapping):
        raise Invalid("The body is not an object.", way_out='Send JSON like {"name": "a"}.')
    reason = body.get("reason", "")
    if not isinstance(reason, str) or len(reason) > LONGEST_REASON:
        raise wrong_field("reason", f"This is not text of at most {LONGEST_REASON} characters.")
    return {name: value for name, value in body.items() if name != "reason"}, reason


def refuse_unknown(given: Mapping[str, object], known: Collection[str]) -> None:
    way_out = f"Known: {', '.join(known)}."
    if unknown := [name for name in given if name not in known]:
        raise Invalid(
            fields=(FieldError(name[:80], "This field is unknown.", way_out) for name in unknown)
        )


def show_member(member: Member) -> dict[str, object]:
    return {
        "id": member.pk,
        "pool": member.pool.name,
        "name": member.name,
        "state": member.state,
        "is_cordoned": member.is_cordoned,
        "is_leaving": member.is_leaving,
        "note": member.note,
        "labels": member.labels,
        "external_id": member.external_id,
        "outside": member.outside,
        "incarnation": member.incarnation,
        "restarts": member.restarts,
        "gave_up_at": member.gave_up_at,
        "is_outdated": member.is_outdated,
        "own": member.spec,
        "drain_until": member.drain_until,
        "drain_by": member.drain_by,
        "created_at": member.created_at,
        "changed_at": member.changed_at,
    }


def answer_member(member_id: int) -> Response:
    return Response(show_member_view(view_member(member_id)))


def show_member_view(view: MemberView) -> dict[str, object]:
    slots = [
        {
            "id": s.id,
            "lane": s.lane,
            "number": s.number,
            "state": s.state,
            "is_open": s.is_open,
            "claim_id": s.claim_id,
        }
        for s in view.slots
    ]
    return show_member(view.member) | {"heard_at": view.heard_at, "load": view.load, "slots": slots}


def show_slot(slot: Slot) -> dict[str, object]:
    return {
        "id": slot.pk,
        "pool": slot.pool.name,
        "member": slot.member.name,
        "member_id": slot.member_id,
        "lane": slot.lane,
        "number": slot.number,
        "state": slot.state,
        "is_open": slot.is_open,
        "claim_id": slot.claim_id,
        "generation": slot.generation,
        "last_claim_id": slot.last_claim_id,
        "drain_until": slot.drain_until,
        "changed_at": slot.changed_at,
    }


class PoolPause(Endpoint):
    @describe(
        "Pause a pool",
        {200: shapes.PauseAnswer},
        body=shapes.PauseBody,
        problems=(409,),
        name="pause_pool",
        tag="pools",
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """The pool binds no claims until then; bound claims keep their slots. The pause ends by
        itself.
        """
        pool = get_pool(pool_name)
        require(self.identity, "pause", pool)
        body = read_body(request, shapes.PauseBody)
        return Response(
            show_pause(
                services.pause_pool(pool_id=pool.pk, until=body["until"], reason=body["reason"])
            )
        )


class PoolResume(Endpoint):
    @describe(
        "Resume a pool",
        {200: shapes.PauseAnswer},
        body=shapes.ReasonBody,
        problems=(409,),
        name="resume_pool",
        tag="pools",
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """Ends the pause of a pool early. A pool without a pause stays as it is."""
        pool = get_pool(pool_name)
        require(self.identity, "pause", pool)
        return Response(
            show_pause(
                services.resume_pool(
                    pool_id=pool.pk, reason=read_body(request, shapes.ReasonBody)["reason"]
                )
            )
        )


def show_pause(pool: Pool) -> dict[str, object]:
    return {
        "name": pool.name,
        "state": pool.state,
        "paused_until": pool.paused_until,
        "pause_reason": pool.pause_reason,
    }
