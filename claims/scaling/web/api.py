"""REST of the scaler: past decisions, dry runs, replays and orders of operators."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from claims.scaling import orders, roll_orders
from claims.scaling.decision_cards import (
    CHANGES,
    SHOWN,
    Card,
    ScalingOverview,
    read_scaling_overview,
    try_changes,
)
from claims.scaling.overview import PoolScalingRow, list_scaling_rows, list_windows
from claims.scaling.replay import PARTS, figures_of, outcomes_of, replay_pool
from claims.scaling.scaler import not_scaled
from claims.scaling.web import schemas
from pools.access.permissions import require
from pools.http.endpoint import (
    Endpoint,
    describe,
    describe_changes,
    in_query,
    read_body,
    read_integer,
    show,
)
from pools.lifecycle.selectors import LIVE, get_pool, list_pools, spec_of
from pools.models import Member, Pool
from pools.scaling import MemberLimits
from pools.scaling.replay import ReplayResult
from slots.api.schemas import NeededReasonBody, PauseBody, ReasonBody

TAG = "scaling"
describe_order = describe_changes(schemas.OrdersAnswer, TAG)
TRIED = {
    "min": "Minimum",
    "max": "Maximum",
    "grow_above": "Per cent of use above which the pool grows",
    "shrink_below": "Per cent of use below which the pool shrinks",
    "max_idle": "Idle members to keep warm",
    "size": "Fixed number of members",
}


class ScalingDetail(Endpoint):
    @describe(
        "Scaling of a pool",
        {200: schemas.ScalingAnswer},
        query=[
            in_query(
                "limit",
                "Maximum number of decisions.",
                {"type": "integer", "minimum": 1, "maximum": 200},
            ),
            *(
                in_query(
                    name,
                    f"Dry run: {TRIED[name]}, for the field `now`.",
                    {"type": "integer", "minimum": 0},
                )
                for name in CHANGES
            ),
        ],
        problems=(409,),
        name="get_scaling",
        tag=TAG,
    )
    def get(self, request: Request, pool_name: str) -> Response:
        """A dry run of the next decision, past decisions (newest first), and the next members to be
        removed.
        """
        pool = get_pool(pool_name)
        require(self.identity, "read", pool)
        limit = read_integer(request, "limit", high=200) or SHOWN
        changes = {
            name: value
            for name in CHANGES
            if (value := read_integer(request, name, low=0, high=100_000)) is not None
        }
        overview = read_scaling_overview(pool, limit=limit)
        now = overview.now
        if changes:
            if overview.subject is None:
                raise not_scaled(pool.name)
            now = try_changes(overview.subject, changes)
        return Response(show_overview(overview, now))


class OrderEndpoint(Endpoint):
    def order(
        self,
        request: Request,
        pool_name: str,
        body: type[serializers.Serializer[Any]],
        act: Callable[..., Pool],
    ) -> Response:
        """Check the permission and call `act` with the fields of the body."""
        pool = get_pool(pool_name)
        require(self.identity, "scale", pool)
        return Response(show_orders(act(pool_id=pool.pk, **read_body(request, body))))


class ScalingPin(OrderEndpoint):
    @describe_order("Pin the number of members", schemas.PinBody, "pin_pool")
    def post(self, request: Request, pool_name: str) -> Response:
        """Keeps this number of members until then instead of the policy's number. The maximum, a
        freeze and a pause still apply. Members with claims stay until they are idle.
        """
        return self.order(request, pool_name, schemas.PinBody, orders.pin_pool)


class ScalingUnpin(OrderEndpoint):
    @describe_order("Unpin", ReasonBody, "unpin_pool")
    def post(self, request: Request, pool_name: str) -> Response:
        """The policy decides the number of members again."""
        return self.order(request, pool_name, ReasonBody, orders.unpin_pool)


class ScalingPause(OrderEndpoint):
    @describe_order("Pause the scaler", PauseBody, "pause_scaling")
    def post(self, request: Request, pool_name: str) -> Response:
        """Creates and removes no member until then. Claims are still bound to free slots."""
        return self.order(request, pool_name, PauseBody, orders.pause_scaling)


class ScalingResume(OrderEndpoint):
    @describe_order("Resume the scaler", ReasonBody, "resume_scaling")
    def post(self, request: Request, pool_name: str) -> Response:
        """Ends a pause early."""
        return self.order(request, pool_name, ReasonBody, orders.resume_scaling)


class ScalingGrow(OrderEndpoint):
    @describe(
        "Create members now",
        {200: schemas.DecisionAnswer},
        body=schemas.GrowBody,
        problems=(409, 422),
        name="grow_pool",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """Creates `count` members at once, up to the maximum. Rejected during a freeze."""
        pool = get_pool(pool_name)
        require(self.identity, "scale", pool)
        orders.grow_pool(pool_id=pool.pk, **read_body(request, schemas.GrowBody))
        return Response(show_card(read_scaling_overview(pool, limit=1).cards[0]))


class ScalingUnfreeze(OrderEndpoint):
    @describe_order("Lift a freeze", schemas.UnfreezeBody, "unfreeze_pool")
    def post(self, request: Request, pool_name: str) -> Response:
        """Lifts one freeze window: the open one, or the one that begins at `starts_at` (see
        `scaling/freezes/`). The next window freezes the pool again.
        """
        return self.order(request, pool_name, schemas.UnfreezeBody, orders.lift_freeze)


class ScalingRefreeze(OrderEndpoint):
    @describe_order("Restore a freeze", schemas.RefreezeBody, "refreeze_pool")
    def post(self, request: Request, pool_name: str) -> Response:
        """Undoes the lift of the freeze window that begins at `starts_at`."""
        return self.order(request, pool_name, schemas.RefreezeBody, orders.refreeze_pool)


class ScalingRoll(OrderEndpoint):
    @describe_order("Renew outdated members", NeededReasonBody, "roll_pool")
    def post(self, request: Request, pool_name: str) -> Response:
        """Renews outdated members one by one, once they are idle, also if the configuration says
        `manual`. Ends a pause and a stop of the roll. After a stop, new members that are not
        ready are rebuilt.
        """
        return self.order(request, pool_name, NeededReasonBody, roll_orders.order_roll)


class ScalingRollPause(OrderEndpoint):
    @describe_order("Pause the roll", PauseBody, "pause_roll")
    def post(self, request: Request, pool_name: str) -> Response:
        """Renews no member until then. Members are still created and removed."""
        return self.order(request, pool_name, PauseBody, roll_orders.pause_roll)


class ScalingRollResume(OrderEndpoint):
    @describe_order("Resume the roll", ReasonBody, "resume_roll")
    def post(self, request: Request, pool_name: str) -> Response:
        """Ends a pause of the roll early."""
        return self.order(request, pool_name, ReasonBody, roll_orders.resume_roll)


class ScalingReplay(Endpoint):
    @describe(
        "Replay recorded demand",
        {200: schemas.ReplayAnswer},
        body=schemas.ReplayBody,
        problems=(409, 422),
        name="replay_pool",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """Replays the recorded demand with the present configuration, and with another policy or
        other limits. Changes no member.
        """
        pool = get_pool(pool_name)
        require(self.identity, "read", pool)
        body = read_body(request, schemas.ReplayBody)
        changes = {name: body[name] for name in PARTS if body[name] is not None}
        found = replay_pool(pool, days=body["days"], changes=changes or None)
        return Response(
            {
                "pool": pool.name,
                "days": found.days,
                "minutes": found.minutes,
                "ready_after_s": found.ready_after,
                "tried": None,
            }
            | {name: show_outcome(outcome) for name, outcome in outcomes_of(found).items()}
        )


class ScalingAll(Endpoint):
    @describe(
        "Scaling of all pools", {200: schemas.ScalingLinesAnswer}, name="list_scaling", tag=TAG
    )
    def get(self, request: Request) -> Response:
        """Members, last decision and orders of every pool with scaling or with outdated members."""
        rows = list_scaling_rows(list_pools(self.identity.visible_pools()), timezone.now())
        return Response({"results": [show_pool_row(row) for row in rows]})


class ScalingFreezes(Endpoint):
    @describe(
        "List freezes",
        {200: schemas.FreezesAnswer},
        query=[
            in_query(
                "days",
                "Days from now. Default: 21.",
                {"type": "integer", "minimum": 1, "maximum": 366},
            )
        ],
        name="list_freezes",
        tag=TAG,
    )
    def get(self, request: Request) -> Response:
        """The open and future freeze windows of all pools, each occurrence by itself."""
        now = timezone.now()
        days = read_integer(request, "days", low=1, high=366) or 21
        found = list_windows(
            list_pools(self.identity.visible_pools()), now, now + timedelta(days=days)
        )
        rows = [(each, freeze) for each in found for freeze in each.freezes]
        rows.sort(key=lambda row: (row[1].start, row[0].pool.name))
        return Response(
            {
                "results": [
                    {
                        "pool": each.pool.name,
                        "window": freeze.window.words,
                        "zone": freeze.window.zone,
                        "starts_at": freeze.start,
                        "ends_at": freeze.end,
                        "is_lifted": each.is_lifted(freeze, now),
                        "lifted_by": None
                        if (lift := each.lifts.get(freeze.start)) is None
                        else lift.by,
                        "lift_reason": None if lift is None else lift.reason,
                    }
                    for each, freeze in rows
                ]
            }
        )


def show_overview(overview: ScalingOverview, now: Card | None) -> dict[str, object]:
    subject = overview.subject
    limits = (
        MemberLimits(overview.pool.min_members, overview.pool.max_members)
        if subject is None
        else subject.snapshot.limits
    )
    scaling = None if subject is None else subject.spec.scaling
    return {
        "pool": overview.pool.name,
        "policy": None if scaling is None else scaling.as_config(),
        "min": limits.low,
        "max": limits.high,
        "window": limits.window,
        "orders": show_orders(overview.pool),
        "now": None if now is None else show_card(now),
        "next_to_go": [
            show(schemas.GoingAnswer, each, claims=[claim for claim, _ in each.claims])
            for each in overview.going
        ],
        "decisions": [show_card(card) for card in overview.cards],
    }


def show_outcome(outcome: ReplayResult) -> dict[str, object]:
    points = [
        {"at": datetime.fromtimestamp(p.at, UTC), "members": p.members, "waiting": p.waiting}
        for p in outcome.thinned()
    ]
    return {**figures_of(outcome), "points": points}


def show_pool_row(row: PoolScalingRow) -> dict[str, object]:
    card = row.card
    return {
        "pool": row.pool.name,
        "policy": row.policy or None,
        "members": row.members.there,
        "min": row.low,
        "max": row.high,
        "window": row.window,
        "verdict": None if card is None else card.verdict,
        "words": "" if card is None else card.words,
        "reason": "" if card is None else card.reason,
        "since": None if card is None else card.at,
        "times": 0 if card is None else card.times,
        "created_in_an_hour": row.grown,
        "removed_in_an_hour": row.shrunk,
        "needs_look": row.needs_look,
        "orders": show_orders(row.pool, row.outdated),
    }


def show_card(card: Card) -> dict[str, object]:
    inputs = {
        name: value
        for name, value in card.inputs.items()
        if name not in ("key", "words", "verdict", "checks", "gauge")
    }
    return show(schemas.DecisionAnswer, card, inputs=inputs)


def show_orders(pool: Pool, outdated: int | None = None) -> dict[str, object]:
    if outdated is None:
        outdated = (
            Member.objects.filter(LIVE, pool=pool)
            .exclude(spec_digest__in=("", pool.member_digest))
            .count()
        )
    roll = {
        "policy": spec_of(pool).roll.policy,
        "outdated": outdated,
        "is_ordered": bool(pool.roll_ordered) and pool.roll_ordered == pool.member_digest,
        "paused_until": pool.roll_paused_until,
        "pause_reason": pool.roll_pause_reason,
        "stopped_at": pool.roll_stopped_at,
        "stop_reason": pool.roll_stop_reason,
    }
    return show(
        schemas.OrdersAnswer, pool, paused_until=pool.scaling_paused_until,
        pause_reason=pool.scaling_pause_reason, roll=roll,
    )  # fmt: skip
