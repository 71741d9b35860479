"""REST about members and slots, and what opens and closes them."""

from collections.abc import Collection, Mapping
from typing import Any

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
from project.kernel.errors import FieldError, Forbidden, Invalid, NotFound
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
        """In the order in which they are filled. Their slots: of one member, or under slots."""
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
        body={"application/json": shapes.MEMBERS_BODY},
        problems=(409, 422),
        name="add_members",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """One or many, all or none. Claims that are there do not notice; who waits may be
        served at once.
        """
        pool = get_pool(pool_name)
        require(self.identity, "add_member", pool)
        declared, reason, where = read_declared(request.data)
        added = services.add_members(pool_id=pool.pk, declared=declared, where=where, reason=reason)
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
        return Response(show_member_view(view_member(member_id)))

    @describe(
        "Change a member",
        {200: shapes.MemberDetailAnswer},
        body={"application/json": shapes.MEMBER_CHANGES},
        problems=(409, 422),
        name="edit_member",
        tag=TAG,
    )
    def patch(self, request: Request, member_id: int) -> Response:
        """Its labels, or slots and ports of its own. What is left out stays; null goes back to
        what the pool says.
        """
        self.find(member_id, "edit_member")
        changes, reason = split_reason(request.data)
        refuse_unknown(changes, shapes.MEMBER_CHANGES["properties"])
        services.edit_member(member_id=member_id, reason=reason, **changes)
        return Response(show_member_view(view_member(member_id)))

    @describe(
        "Remove a member",
        {200: shapes.RemovalAnswer},
        query=[NEEDED_REASON],
        problems=(409,),
        name="remove_member",
        tag=TAG,
    )
    def delete(self, request: Request, member_id: int) -> Response:
        """It takes nothing new and goes when it is empty, at once if it is so now. Nobody is
        moved: the answer lists who is still there.
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
        """Nothing new comes here; what is here stays."""
        self.find(member_id, "cordon")
        services.cordon_member(
            member_id=member_id, reason=read_body(request, shapes.NeededReasonBody)["reason"]
        )
        return Response(show_member_view(view_member(member_id)))


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
        """Open again, as far as the pool and the member itself are willing."""
        self.find(member_id, "cordon")
        services.uncordon_member(
            member_id=member_id, reason=read_body(request, shapes.ReasonBody)["reason"]
        )
        return Response(show_member_view(view_member(member_id)))


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
        """Takes a removal back, as long as the member has not gone."""
        self.find(member_id, "remove_member")
        services.cancel_member_removal(
            member_id=member_id, reason=read_body(request, shapes.ReasonBody)["reason"]
        )
        return Response(show_member_view(view_member(member_id)))


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
        """Its owner says that it is alive; one that was offline comes back. With the member's
        own token, or as an operator of its pool.
        """
        body = read_body(request, shapes.BeatBody)
        heard = record_heartbeat(
            member_id=member_id,
            incarnation=self.speaks_for(member_id, body["incarnation"]),
            load=body["load"],
        )
        return Response(
            {
                "member_id": heard.member_id,
                "state": heard.state,
                "incarnation": heard.incarnation,
                "next_within_s": heard.next_within,
            }
        )

    def speaks_for(self, member_id: int, incarnation: int | None) -> int | None:
        """A member's token is for one incarnation of it."""
        who = self.request.auth
        if not isinstance(who, AgentIdentity):
            self.find(member_id, "beat")
            return incarnation
        if who.member_id != member_id:
            way_out = f"Send it to members/{who.member_id}/heartbeat/."
            raise Forbidden(
                f"This token speaks for {who.member} in {who.pool}, and for no other member.",
                way_out=way_out,
            )
        return who.incarnation if incarnation is None else incarnation


class SlotList(Endpoint):
    @describe(
        "Slots",
        {200: pages_of(shapes.SlotAnswer)},
        query=[
            *PAGES,
            in_query("pool", "Of this pool."),
            in_query("member", "Of this member.", {"type": "integer", "minimum": 1}),
            in_query("claim", "Held by this claim.", {"type": "integer", "minimum": 1}),
            in_query("lane", "Of this lane."),
            in_query("state", "In one of these states.", choices=shapes.SLOT_STATES, many=True),
            in_query("open", "Whether pool and member are willing.", bool),
        ],
        problems=(404,),
        name="list_slots",
        tag=TAG,
    )
    def get(self, request: Request) -> Response:
        """In the pools that one may read."""
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
        "Who held a slot",
        {200: shapes.HeldByAnswer},
        query=[
            in_query(
                "at",
                "At this moment, with an offset. Left out: now.",
                {"type": "string", "format": "date-time"},
            )
        ],
        name="get_slot_holder",
        tag=TAG,
    )
    def get(self, request: Request, slot_id: int) -> Response:
        """By the log of events, as far as it reaches back."""
        slot = Slot.objects.select_related("pool").annotate(now=Now()).filter(pk=slot_id).first()
        missing = NotFound(f"There is no slot {slot_id}.", way_out="Look at the list of slots.")
        if slot is None:
            raise missing
        require(self.identity, "read", slot.pool, hidden=missing)
        at = read_moment(request, "at") or slot.now  # events are told by the clock of the database
        held = find_holder_at(slot_id, at)
        known = {"claim_id": None, "generation": None, "since": None, "verb": None, "actor": None}
        if held is not None:
            known = {
                "claim_id": held.claim_id,  # type: ignore[dict-item]
                "generation": held.generation,  # type: ignore[dict-item]
                "since": held.at,  # type: ignore[dict-item]
                "verb": held.verb,  # type: ignore[dict-item]
                "actor": held.actor,  # type: ignore[dict-item]
            }
        return Response({"slot_id": slot_id, "at": at, "is_known": held is not None, **known})


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


def read_declared(body: Any) -> tuple[list[Any], str, str]:
    """The members of the body, its reason, and where faults are said to be."""
    given, reason = split_reason(body)
    if "members" not in given:
        return [given], reason, "members"
    refuse_unknown(given, ("members",))
    members = given["members"]
    if not isinstance(members, list) or not 1 <= len(members) <= LARGEST_BATCH:
        raise Invalid(
            fields=[
                FieldError(
                    "members",
                    f"This is not a list of 1 to {LARGEST_BATCH} members.",
                    "Write [{name: a}, {name: b}].",
                )
            ]
        )
    return members, reason, "members"


def split_reason(body: Any) -> tuple[dict[str, Any], str]:
    if not isinstance(body, Mapping):
        raise Invalid("The body is not an object.", way_out='Send JSON like {"name": "a"}.')
    reason = body.get("reason", "")
    if not isinstance(reason, str) or len(reason) > LONGEST_REASON:
        raise Invalid(
            fields=[
                FieldError("reason", f"This is not a text of up to {LONGEST_REASON} characters.")
            ]
        )
    return {name: value for name, value in body.items() if name != "reason"}, reason


def refuse_unknown(given: Mapping[str, Any], known: Collection[str]) -> None:
    way_out = f"Known: {', '.join(known)}."
    if unknown := [name for name in given if name not in known]:
        raise Invalid(
            fields=(FieldError(name[:80], "This field is not known.", way_out) for name in unknown)
        )


def show_member(member: Member) -> dict[str, Any]:
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


def show_member_view(view: MemberView) -> dict[str, Any]:
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


def show_slot(slot: Slot) -> dict[str, Any]:
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
        """Nothing new is handed out until then; holders stay. It ends by itself."""
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
        """Ends a pause before its time. One that is not paused stays as it is."""
        pool = get_pool(pool_name)
        require(self.identity, "pause", pool)
        return Response(
            show_pause(
                services.resume_pool(
                    pool_id=pool.pk, reason=read_body(request, shapes.ReasonBody)["reason"]
                )
            )
        )


def show_pause(pool: Pool) -> dict[str, Any]:
    return {
        "name": pool.name,
        "state": pool.state,
        "paused_until": pool.paused_until,
        "pause_reason": pool.pause_reason,
    }
