"""REST API of members and slots, and of pausing pools."""

from collections.abc import Callable, Collection, Mapping, Sequence

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
    describe_changes,
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
from pools.lifecycle.provider_rights import require_named
from pools.lifecycle.selectors import get_pool
from pools.models import Member
from project.kernel.db.guards import reporting
from project.kernel.errors import FieldError, Forbidden, Invalid, NotFound, wrong_field
from project.kernel.validation import LONGEST_REASON
from slots.api import schemas
from slots.api.authentication import MemberAuthentication
from slots.members import services
from slots.members.liveness import record_heartbeat
from slots.members.members_sql import HolderAtRow, holder_at
from slots.members.selectors import (
    get_member,
    get_member_detail,
    list_members,
    no_such_member,
)
from slots.members.tokens import AgentIdentity
from slots.models import Slot

TAG = "members and slots"
LARGEST_BATCH = 1000  # members in one call
describe_member_change = describe_changes(schemas.MemberDetailAnswer, TAG)
describe_pause = describe_changes(schemas.PauseAnswer, "pools")


class MemberList(Endpoint):
    @describe(
        "Members of a pool",
        {200: pages_of(schemas.MemberAnswer)},
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
        return page(request, schemas.show_rows(schemas.MemberAnswer, rows), cursor)

    @describe(
        "Add members",
        {201: pages_of(schemas.MemberAnswer, "AddedMembers")},
        body=schemas.MEMBERS_BODY,
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
        require_named(self.identity, pool, declared, "members")
        added = services.add_members(pool_id=pool.pk, declared=declared, reason=reason)
        rows = (
            Member.objects.select_related("pool")
            .filter(pk__in=[member.pk for member in added])
            .order_by("id")
        )
        return Response(
            {"results": schemas.show_rows(schemas.MemberAnswer, rows), "next": None}, status=201
        )


class MemberEndpoint(Endpoint):
    def find(self, member_id: int, action: str) -> Member:
        member = get_member(member_id)
        require(self.identity, action, member.pool, hidden=no_such_member(member_id))
        return member

    def change(
        self,
        member_id: int,
        action: str,
        service: Callable[..., Member],
        body: type[schemas.Shape] = schemas.NeededReasonBody,
    ) -> Response:
        """Call the service with the fields of the body; answers with the changed member."""
        self.find(member_id, action)
        service(member_id=member_id, **read_body(self.request, body))
        return answer_member(member_id)


class MemberDetail(MemberEndpoint):
    @describe(
        "A member with its slots", {200: schemas.MemberDetailAnswer}, name="get_member", tag=TAG
    )
    def get(self, request: Request, member_id: int) -> Response:
        self.find(member_id, "read")
        return answer_member(member_id)

    @describe_member_change("Change a member", schemas.MEMBER_CHANGES, "edit_member", 422)
    def patch(self, request: Request, member_id: int) -> Response:
        """Changes labels, deletion cost, slots or ports of a member. A missing field stays as it
        is; null takes the default or the value of the pool.
        """
        self.find(member_id, "edit_member")
        changes, reason = split_reason(request.data)
        refuse_unknown(changes, schemas.MEMBER_CHANGES["properties"])
        services.edit_member(member_id=member_id, reason=reason, where="", **changes)
        return answer_member(member_id)

    @describe(
        "Remove a member",
        {200: schemas.RemovalAnswer},
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
        return Response(schemas.RemovalAnswer(removal).data)


class MemberCordon(MemberEndpoint):
    @describe_member_change("Cordon", schemas.NeededReasonBody, "cordon_member")
    def post(self, request: Request, member_id: int) -> Response:
        """The member takes no new claims; claims on it keep their slots."""
        return self.change(member_id, "cordon", services.cordon_member)


class MemberUncordon(MemberEndpoint):
    @describe_member_change("Uncordon", schemas.ReasonBody, "uncordon_member")
    def post(self, request: Request, member_id: int) -> Response:
        """The member takes new claims again, unless its pool is paused or it is unhealthy."""
        return self.change(member_id, "cordon", services.uncordon_member, schemas.ReasonBody)


class MemberKeep(MemberEndpoint):
    @describe_member_change("Keep a member that leaves", schemas.ReasonBody, "keep_member")
    def post(self, request: Request, member_id: int) -> Response:
        """Cancels the removal of a member that is still there."""
        service = services.cancel_member_removal
        return self.change(member_id, "remove_member", service, schemas.ReasonBody)


class MemberHeartbeat(MemberEndpoint):
    authentication_classes = (MemberAuthentication, *Endpoint.authentication_classes)  # type: ignore[assignment]

    @describe(
        "Heartbeat of a member",
        {200: schemas.BeatAnswer},
        body=schemas.BeatBody,
        problems=(409,),
        name="beat_member",
        tag=TAG,
    )
    def post(self, request: Request, member_id: int) -> Response:
        """Records that the member is alive; an offline member comes back. The caller uses the
        member's own token, or is an operator of its pool.
        """
        body = read_body(request, schemas.BeatBody)
        answer = record_heartbeat(
            member_id=member_id,
            incarnation=self.find_incarnation(member_id, body["incarnation"]),
            load=body["load"],
        )
        return Response(schemas.show_rows(schemas.BeatAnswer, [answer])[0])

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
        {200: pages_of(schemas.SlotAnswer)},
        query=[
            *PAGES,
            in_query("pool", "Name of the pool."),
            in_query("member", "Id of the member.", {"type": "integer", "minimum": 1}),
            in_query("claim", "Id of the holding claim.", {"type": "integer", "minimum": 1}),
            in_query("lane", "Lane of the slots."),
            in_query("state", "States of the slots.", choices=schemas.SLOT_STATES, many=True),
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
        return page(request, schemas.show_rows(schemas.SlotAnswer, rows), cursor)


class SlotHeldBy(Endpoint):
    @describe(
        "Holder of a slot at a time",
        {200: schemas.HeldByAnswer},
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
        held = holder_at(slot=slot_id, at=at)
        facts = held._asdict() if held else dict.fromkeys(HolderAtRow._fields)
        return Response({"slot_id": slot_id, "at": at, "is_known": held is not None, **facts})


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
    if states := read_choices(request, "state", schemas.SLOT_STATES):
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


def answer_member(member_id: int) -> Response:
    return Response(schemas.MemberDetailAnswer(get_member_detail(member_id)).data)


class PoolPause(Endpoint):
    @describe_pause("Pause a pool", schemas.PauseBody, "pause_pool")
    def post(self, request: Request, pool_name: str) -> Response:
        """The pool binds no claims until then; bound claims keep their slots. The pause ends by
        itself.
        """
        pool = get_pool(pool_name)
        require(self.identity, "pause", pool)
        paused = services.pause_pool(pool_id=pool.pk, **read_body(request, schemas.PauseBody))
        return Response(schemas.PauseAnswer(paused).data)


class PoolResume(Endpoint):
    @describe_pause("Resume a pool", schemas.ReasonBody, "resume_pool")
    def post(self, request: Request, pool_name: str) -> Response:
        """Ends the pause of a pool early. A pool without a pause stays as it is."""
        pool = get_pool(pool_name)
        require(self.identity, "pause", pool)
        resumed = services.resume_pool(pool_id=pool.pk, **read_body(request, schemas.ReasonBody))
        return Response(schemas.PauseAnswer(resumed).data)
