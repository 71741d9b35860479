"""REST about scaling: what was decided and why, what would be decided now, and what
people order.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from claims.scaling import orders, roll_orders
from claims.scaling import schemas as shapes
from claims.scaling.decision_cards import (
    CHANGES,
    SHOWN,
    Card,
    ScalingBoard,
    read_board,
    try_changes,
)
from claims.scaling.overview import PoolScalingRow, list_scaling_rows, list_windows
from claims.scaling.replay import PARTS, figures_of, outcomes_of, replay_pool
from pools.access.permissions import require
from pools.http.endpoint import Endpoint, describe, in_query, read_body, read_integer
from pools.lifecycle.selectors import LIVE, get_pool, list_pools, spec_of
from pools.models import Member, Pool
from pools.scaling import MemberLimits
from pools.scaling.replay import ReplayResult
from project.kernel.errors import Conflict
from slots.api.schemas import NeededReasonBody, PauseBody, ReasonBody

TAG = "scaling"
TRIED = {
    "min": "The least",
    "max": "The most",
    "grow_above": "Per cent above which it grows",
    "shrink_below": "Per cent below which it shrinks",
    "max_idle": "Idle members kept warm",
    "size": "A fixed size",
}


class ScalingDetail(Endpoint):
    @describe(
        "Scaling of a pool",
        {200: shapes.ScalingAnswer},
        query=[
            in_query(
                "limit", "Decisions, at most.", {"type": "integer", "minimum": 1, "maximum": 200}
            ),
            *(
                in_query(
                    name,
                    f"{TRIED[name]}, for the decision of now: a dry run.",
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
        """The decision of this moment, which is not made by asking; those that were made, newest
        first; who would go next.
        """
        pool = get_pool(pool_name)
        require(self.identity, "read", pool)
        limit = read_integer(request, "limit", high=200) or SHOWN
        changes = {
            name: value
            for name in CHANGES
            if (value := read_integer(request, name, low=0, high=100_000)) is not None
        }
        board = read_board(pool, limit=limit)
        if changes and board.subject is None:
            way_out = "Add scaling to its configuration, if its provider makes its members."
            raise Conflict(orders.BY_HAND.format(pool.name), code="not_scaled", way_out=way_out)
        now = (
            try_changes(board.subject, changes)
            if changes and board.subject is not None
            else board.now
        )
        return Response(show_board(board, now))


class OrderEndpoint(Endpoint):
    def pool(self, pool_name: str) -> Pool:
        pool = get_pool(pool_name)
        require(self.identity, "scale", pool)
        return pool


class ScalingPin(OrderEndpoint):
    @describe(
        "Pin the number of members",
        {200: shapes.OrdersAnswer},
        body=shapes.PinBody,
        problems=(409,),
        name="pin_pool",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """So many until then, whatever the policy wants. The maximum, a freeze and a pause are
        stronger; who is busy stays.
        """
        pool = self.pool(pool_name)
        body = read_body(request, shapes.PinBody)
        return Response(
            show_orders(
                orders.pin_pool(
                    pool_id=pool.pk, count=body["count"], until=body["until"], reason=body["reason"]
                )
            )
        )


class ScalingUnpin(OrderEndpoint):
    @describe(
        "Take a pin back",
        {200: shapes.OrdersAnswer},
        body=ReasonBody,
        problems=(409,),
        name="unpin_pool",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """The policy decides again."""
        pool = self.pool(pool_name)
        return Response(
            show_orders(
                orders.unpin_pool(pool_id=pool.pk, reason=read_body(request, ReasonBody)["reason"])
            )
        )


class ScalingPause(OrderEndpoint):
    @describe(
        "Pause the scaler",
        {200: shapes.OrdersAnswer},
        body=PauseBody,
        problems=(409,),
        name="pause_scaling",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """It leaves the pool alone until then. Slots are handed out as ever."""
        pool = self.pool(pool_name)
        body = read_body(request, PauseBody)
        return Response(
            show_orders(
                orders.pause_scaling(pool_id=pool.pk, until=body["until"], reason=body["reason"])
            )
        )


class ScalingResume(OrderEndpoint):
    @describe(
        "Resume the scaler",
        {200: shapes.OrdersAnswer},
        body=ReasonBody,
        problems=(409,),
        name="resume_scaling",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """Ends a pause before its time."""
        pool = self.pool(pool_name)
        return Response(
            show_orders(
                orders.resume_scaling(
                    pool_id=pool.pk, reason=read_body(request, ReasonBody)["reason"]
                )
            )
        )


class ScalingGrow(OrderEndpoint):
    @describe(
        "More members now",
        {200: shapes.DecisionAnswer},
        body=shapes.GrowBody,
        problems=(409, 422),
        name="grow_pool",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """So many more at once, up to the maximum. Refused in a freeze."""
        pool = self.pool(pool_name)
        body = read_body(request, shapes.GrowBody)
        orders.grow_pool(pool_id=pool.pk, count=body["count"], reason=body["reason"])
        return Response(show_card(read_board(pool, limit=1).cards[0]))


class ScalingUnfreeze(OrderEndpoint):
    @describe(
        "Lift a freeze",
        {200: shapes.OrdersAnswer},
        body=shapes.UnfreezeBody,
        problems=(409,),
        name="unfreeze_pool",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """Once: until the window that is open now ends, or the one that begins at `starts_at`,
        open or to come (see `scaling/freezes/`).
        """
        pool = self.pool(pool_name)
        body = read_body(request, shapes.UnfreezeBody)
        return Response(
            show_orders(
                orders.lift_freeze(
                    pool_id=pool.pk, reason=body["reason"], starts_at=body["starts_at"]
                )
            )
        )


class ScalingRefreeze(OrderEndpoint):
    @describe(
        "Freeze after all",
        {200: shapes.OrdersAnswer},
        body=shapes.RefreezeBody,
        problems=(409,),
        name="refreeze_pool",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """Takes back that the window that begins at `starts_at` is lifted."""
        pool = self.pool(pool_name)
        body = read_body(request, shapes.RefreezeBody)
        return Response(
            show_orders(
                orders.refreeze_pool(
                    pool_id=pool.pk, reason=body["reason"], starts_at=body["starts_at"]
                )
            )
        )


class ScalingReplay(Endpoint):
    @describe(
        "Replay recorded demand",
        {200: shapes.ReplayAnswer},
        body=shapes.ReplayBody,
        problems=(409, 422),
        name="replay_pool",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """What there would have been, with the configuration as it is and with another policy or
        other limits. Changes nothing.
        """
        pool = get_pool(pool_name)
        require(self.identity, "read", pool)
        body = read_body(request, shapes.ReplayBody)
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
        "Scaling of all pools", {200: shapes.ScalingLinesAnswer}, name="list_scaling", tag=TAG
    )
    def get(self, request: Request) -> Response:
        """Of every pool that follows demand, or has outdated members: what is there, what was
        decided last, what people ordered.
        """
        lines = list_scaling_rows(list_pools(self.identity.visible_pools()), timezone.now())
        return Response({"results": [show_line(line) for line in lines]})


class ScalingFreezes(Endpoint):
    @describe(
        "Freezes to come",
        {200: shapes.FreezesAnswer},
        query=[
            in_query(
                "days",
                "So many from now on; 21 if left out.",
                {"type": "integer", "minimum": 1, "maximum": 366},
            )
        ],
        name="list_freezes",
        tag=TAG,
    )
    def get(self, request: Request) -> Response:
        """Windows in which a pool has no capacity, each time that one is open."""
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


class ScalingRoll(OrderEndpoint):
    @describe(
        "Renew outdated members",
        {200: shapes.OrdersAnswer},
        body=NeededReasonBody,
        problems=(409,),
        name="roll_pool",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """One by one, once they are idle, also where the configuration says manual. A pause of the
        roll is over, and so is a stop: new members that are not ready are made anew."""
        pool = self.pool(pool_name)
        return Response(
            show_orders(
                roll_orders.order_roll(
                    pool_id=pool.pk, reason=read_body(request, NeededReasonBody)["reason"]
                )
            )
        )


class ScalingRollPause(OrderEndpoint):
    @describe(
        "Pause the roll",
        {200: shapes.OrdersAnswer},
        body=PauseBody,
        problems=(409,),
        name="pause_roll",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """Nobody is renewed until then. Members come and go as ever."""
        pool = self.pool(pool_name)
        body = read_body(request, PauseBody)
        return Response(
            show_orders(
                roll_orders.pause_roll(pool_id=pool.pk, until=body["until"], reason=body["reason"])
            )
        )


class ScalingRollResume(OrderEndpoint):
    @describe(
        "Resume the roll",
        {200: shapes.OrdersAnswer},
        body=ReasonBody,
        problems=(409,),
        name="resume_roll",
        tag=TAG,
    )
    def post(self, request: Request, pool_name: str) -> Response:
        """Ends its pause before its time."""
        pool = self.pool(pool_name)
        return Response(
            show_orders(
                roll_orders.resume_roll(
                    pool_id=pool.pk, reason=read_body(request, ReasonBody)["reason"]
                )
            )
        )


def show_board(board: ScalingBoard, now: Card | None) -> dict[str, Any]:
    """Of a pool whose members come and go by hand only what was decided before."""
    subject = board.subject
    limits = (
        MemberLimits(board.pool.min_members, board.pool.max_members)
        if subject is None
        else subject.snapshot.limits
    )
    scaling = None if subject is None else subject.spec.scaling
    return {
        "pool": board.pool.name,
        "policy": None if scaling is None else scaling.as_config(),
        "min": limits.low,
        "max": limits.high,
        "window": limits.window,
        "orders": show_orders(board.pool),
        "now": None if now is None else show_card(now),
        "next_to_go": [
            {
                "id": g.id,
                "name": g.name,
                "state": g.state,
                "blocked": g.blocked,
                "claims": [claim for claim, _ in g.claims],
            }
            for g in board.going
        ],
        "decisions": [show_card(card) for card in board.cards],
    }


def show_outcome(outcome: ReplayResult) -> dict[str, Any]:
    points = [
        {"at": datetime.fromtimestamp(p.at, UTC), "members": p.members, "waiting": p.waiting}
        for p in outcome.thinned()
    ]
    return {**figures_of(outcome), "points": points}


def show_line(line: PoolScalingRow) -> dict[str, Any]:
    card = line.card
    return {
        "pool": line.pool.name,
        "policy": line.policy or None,
        "members": line.members.there,
        "min": line.low,
        "max": line.high,
        "window": line.window,
        "verdict": None if card is None else card.verdict,
        "words": "" if card is None else card.words,
        "reason": "" if card is None else card.reason,
        "since": None if card is None else card.at,
        "times": 0 if card is None else card.times,
        "created_in_an_hour": line.grown,
        "removed_in_an_hour": line.shrunk,
        "needs_look": line.needs_look,
        "orders": show_orders(line.pool, line.outdated),
    }


def show_card(card: Card) -> dict[str, Any]:
    return {
        "id": card.id,
        "at": card.at,
        "last_at": card.last_at,
        "times": card.times,
        "delta": card.delta,
        "words": card.words,
        "verdict": card.verdict,
        "reason": card.reason,
        "inputs": {
            name: value
            for name, value in card.inputs.items()
            if name not in ("key", "words", "verdict", "checks", "gauge")
        },
        "checks": list(card.checks),
        "gauge": card.gauge,
        "chosen": list(card.chosen),
        "spared": list(card.spared),
    }


def show_orders(pool: Pool, outdated: int | None = None) -> dict[str, Any]:
    if outdated is None:
        outdated = (
            Member.objects.filter(LIVE, pool=pool)
            .exclude(spec_digest__in=("", pool.member_digest))
            .count()
        )
    return {
        "pin_count": pool.pin_count,
        "pin_until": pool.pin_until,
        "pin_reason": pool.pin_reason,
        "paused_until": pool.scaling_paused_until,
        "pause_reason": pool.scaling_pause_reason,
        "frozen_until": pool.frozen_until,
        "freeze_reason": pool.freeze_reason,
        "unfrozen_until": pool.unfrozen_until,
        "roll": {
            "policy": spec_of(pool).roll.policy,
            "outdated": outdated,
            "is_ordered": bool(pool.roll_ordered) and pool.roll_ordered == pool.member_digest,
            "paused_until": pool.roll_paused_until,
            "pause_reason": pool.roll_pause_reason,
            "stopped_at": pool.roll_stopped_at,
            "stop_reason": pool.roll_stop_reason,
        },
    }
