"""Why claims wait, read when somebody asks: for one claim, or for the first hundred of a queue at
the cost of one for each line.

What is true of a line is read once for all its claims; what is true of a pool once for all its
lines. Reads that were slow (a pool of a million slots) are remembered for a while in proportion to
what they cost, so that asking never takes more than a small share of the time.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from claims import claims_sql, pairs_sql
from claims.allocation.claim_view import ClaimView, Wait
from claims.allocation.estimate import Band, Forecast, HoldTimes, estimate_start
from claims.allocation.member_limits import limits_of
from claims.allocation.requests.policy import (
    HOLDERS_LEAVE,
    PoolState,
    Refusal,
    SlotDemand,
    WaitingHead,
    find_reason,
    find_refusal,
)
from claims.allocation.requests.resolve import (
    PoolFacts,
    find_pools,
    kind_in,
    lanes_in,
    offer_of,
    slot_demand_in,
    slot_demand_of,
)
from claims.allocation.wait_messages import (
    SlotCounts,
    WaitContext,
    describe_blocked,
    describe_wait,
    moment,
)
from pools.scaling import MemberLimits
from project.kernel.ui.formatting import rfc3339

SAMPLE = 1000  # holders read for an estimate
RECENT = 200  # hold times read for an estimate
NAMED = 4
COST_SHARE = 20.0  # what took a second to read is good for so many seconds
WORTH_KEEPING = 0.02

_kept: dict[Any, tuple[float, Any]] = {}


def explain_claims(claims: Sequence[ClaimView], places: dict[int, int] | None = None) -> None:
    """Sets `wait` of those that wait. `places`: in line, where the caller knows them already."""
    reader = _ReadCache()
    for claim in claims:
        if claim.state == "waiting":
            claim.wait = reader.explain(claim, (places or {}).get(claim.id))
    blocked = [claim for claim in claims if claim.state == "blocked"]
    if blocked:
        _explain_blocked(blocked, reader)


def forget_explanations() -> None:
    _kept.clear()


@dataclass(frozen=True, slots=True)
class _Line:
    scene: WaitContext
    pools: tuple[PoolFacts, ...]
    rivals: tuple[int, ...]
    # Heads of rival lines that could take every slot that is open to this line.
    ahead: tuple[Any, ...]
    trouble: PoolFacts | None  # the pool the reason is about


@dataclass
class _ReadCache:
    """What one explanation has read, so that the next one need not."""

    lines: dict[int, _Line] = field(default_factory=dict)
    states: dict[int, Any] = field(default_factory=dict)
    pools: dict[str, PoolFacts] = field(default_factory=dict)
    # By line; None: they depend on a person.
    forecasts: dict[int, Forecast | None] = field(default_factory=dict)

    def explain(self, claim: ClaimView, place: int | None) -> Wait:
        line = self.lines.get(claim.shape_id)
        if line is None:
            line = self.lines[claim.shape_id] = self.read_line(claim)
        ahead = place - 1 if place is not None else self.count_ahead(line, claim)
        scene = replace(line.scene, ahead=ahead)
        if scene.code == "full" and scene.places.open and not scene.wanted.selector:
            scene = replace(scene, code="next")
        if scene.code == "not_enough" and scene.places.open >= scene.wanted.size:
            scene = replace(scene, code="next")
        if scene.code == "no_pair" and scene.pairs >= scene.wanted.size:
            scene = replace(scene, code="next")
        if scene.code == "next":
            scene = replace(scene, strict=self.strict_ahead(line, claim))
        said = describe_wait(scene)
        band = self.estimate(claim.shape_id, line, scene)
        start = (band.start, band.end) if band.start is not None and band.end is not None else None
        return Wait(
            code=scene.code if scene.strict is None else "behind_head",
            text=said.text,
            unblock=said.unblock,
            place=ahead + 1,
            start=start,
            start_note=band.note,
            blockers=list(scene.blockers if scene.strict is None else (scene.strict,)),
            facts=_facts_of(scene),
        )

    def read_line(self, claim: ClaimView) -> _Line:
        names = [name for name in claim.pools if name not in self.pools]
        if names:
            self.pools |= find_pools(names)
        pools = tuple(self.pools.get(name) for name in claim.pools)
        kind = kind_in(pools, claim.kind)
        lanes = lanes_in(pools, kind)
        wanted = slot_demand_in(slot_demand_of(claim.size, dict(claim.terms)), pools, kind)
        found = [pool for pool in pools if pool is not None]
        refusals = {
            pool.name: find_refusal(wanted, [offer_of(pool, kind, with_members=claim.size > 1)])
            for pool in found
        }
        if len(found) == len(pools) and not any(refusals.values()):
            refusals[found[0].name] = find_refusal(
                wanted, [offer_of(pool, kind, with_members=False) for pool in found]
            )
        code, at = self.find_trouble(wanted, pools, kind, refusals)
        name = claim.pools[at]
        trouble = pools[at]
        scene = WaitContext(
            pool=name,
            code=code,
            lanes=tuple(lanes),
            kind=kind,
            wanted=wanted,
            refusal=refusals.get(name),
        )
        if trouble is not None:
            scene = self.read_scene(scene, trouble, kind)
        labels = json.dumps(dict(wanted.selector))
        rivals = claims_sql.rivals(pools=claim.pools, lanes=lanes, labels=labels) if lanes else []
        ahead = tuple(row for row in rivals if row.holds_back and row.head is not None)
        return _Line(
            scene,
            tuple(found),
            tuple(row.id for row in rivals) or (claim.shape_id,),
            ahead,
            trouble,
        )

    def find_trouble(
        self,
        wanted: SlotDemand,
        pools: Sequence[PoolFacts | None],
        kind: str,
        refusals: dict[str, Refusal | None],
    ) -> tuple[str, int]:
        """The code, and which of the pools it is about."""
        states = [self.pool_state(pool, wanted, kind, refusals) for pool in pools]
        for at, state in enumerate(states):
            code = find_reason(wanted, [state])
            if code not in HOLDERS_LEAVE or code == "full":
                return code, at
        code = find_reason(wanted, states)
        if code != "no_pair":
            return code, 0
        counts = [
            self.count_pairs(pool, wanted, kind) if pool is not None else None for pool in pools
        ]
        return code, next(
            (at for at, row in enumerate(counts) if row is not None and row.both < wanted.size), 0
        )

    def count_pairs(self, pool: PoolFacts, wanted: SlotDemand, kind: str) -> Any:
        """Numbers that are free in TCP and UDP. None: there is but one slot a number."""
        pair = pool.pair_for(kind)
        labels = json.dumps(dict(wanted.selector))
        key = ("pairs", pool.id, labels)
        return pair and _cached(
            key,
            lambda: pairs_sql.count_pairs(pool=pool.id, lane=pair[0], other=pair[1], labels=labels),
        )

    def pool_state(
        self,
        pool: PoolFacts | None,
        wanted: SlotDemand,
        kind: str,
        refusals: dict[str, Refusal | None],
    ) -> PoolState:
        if pool is None:
            return PoolState()
        row = self.state_row(pool.id)
        refusal = refusals.get(pool.name)
        has_labels = is_willing = True
        if wanted.selector:
            found = claims_sql.label_states(pool=pool.id, labels=json.dumps(dict(wanted.selector)))
            has_labels, is_willing = (
                bool(found and found.has_labels),
                bool(found and found.is_labelled_willing),
            )
        return PoolState(
            state=row.state,
            is_paused=row.is_paused,
            refusal=refusal.code if refusal else "",
            has_member=row.has_member,
            has_labels=has_labels,
            is_any_willing=row.is_any_willing,
            is_labelled_willing=is_willing,
            is_free=bool(claims_sql.is_any_free(pool=pool.id, lanes=pool.lanes_for(kind))),
        )

    def limits_of(self, pool: PoolFacts) -> MemberLimits | None:
        """Of its scaler, at this moment: what people and clocks say."""
        if pool.spec.scaling is None:
            return None
        row = claims_sql.read_limits(pool=pool.id)
        return None if row is None else limits_of(row, pool.spec)[0]

    def state_row(self, pool_id: int) -> Any:
        if pool_id not in self.states:
            self.states[pool_id] = claims_sql.pool_states(pools=[pool_id])
        return self.states[pool_id]

    def read_scene(self, scene: WaitContext, pool: PoolFacts, kind: str) -> WaitContext:
        """The numbers and names behind the code."""
        row = self.state_row(pool.id)
        labels = json.dumps(dict(scene.wanted.selector))
        lanes = pool.lanes_for(kind)
        places = _cached(
            ("places", pool.id, labels),
            lambda: claims_sql.count_places(pool=pool.id, labels=labels),
        )
        unwilling = claims_sql.unwilling_members(NAMED, pool=pool.id, lanes=lanes, labels=labels)
        offer = offer_of(pool, kind, with_members=True)
        scene = replace(
            scene,
            limits=self.limits_of(pool),
            is_carried=dict(scene.wanted.selector).items() <= dict(pool.spec.member_labels).items(),
            lanes=tuple(lanes),
            places=_places_of(places, lanes),
            members=len(offer.members),
            max_members=offer.max_members,
            each=offer.each,
            paused_until=row.paused_until,
            pause_reason=row.pause_reason,
            offline=tuple(m.name for m in unwilling if m.state == "offline"),
            creating=tuple(m.name for m in unwilling if m.state == "creating"),
            cordoned=tuple(
                m.name
                for m in unwilling
                if m.is_cordoned and not m.is_leaving and m.state == "ready"
            ),
        )
        if scene.code in HOLDERS_LEAVE:
            scene = self.read_holders(scene, pool, lanes, labels)
            pairs = self.count_pairs(pool, scene.wanted, kind)
            if pairs is not None:
                scene = replace(scene, pairs=pairs.both, apart=(pairs.one, pairs.other))
            if scene.code in ("not_contiguous", "not_together"):
                scene = self.read_longest(scene, pool, lanes, labels, pool.pair_for(kind))
                if scene.longest >= scene.wanted.size:  # there is room since it was tried last
                    scene = replace(scene, code="next")
        return scene

    def read_holders(
        self, scene: WaitContext, pool: PoolFacts, lanes: list[str], labels: str
    ) -> WaitContext:
        rows = self.holders(pool.id, lanes, labels)
        ids = list(dict.fromkeys(row.id for row in rows))
        kept = sorted(
            (row for row in rows if row.state == "reserved"), key=lambda row: -(row.waited or 0.0)
        )
        if kept:
            scene = replace(
                scene, undecided=tuple(row.id for row in kept[:NAMED]), kept=kept[0].waited or 0.0
            )
        return replace(
            scene,
            holders=len(ids),
            one_holder=ids[0] if len(ids) == 1 else None,
            blockers=tuple(ids[:10]),
        )

    def read_longest(
        self,
        scene: WaitContext,
        pool: PoolFacts,
        lanes: list[str],
        labels: str,
        pair: tuple[str, str] | None,
    ) -> WaitContext:
        is_run = scene.code == "not_contiguous"
        if pair is None:
            find = _longest_free_run if is_run else _most_on_one
            found = _cached(
                (find.__name__, pool.id, labels, tuple(lanes)), lambda: find(pool, labels, lanes)
            )
        else:
            search = _longest_paired_run if is_run else _most_paired_on_one
            found = _cached((search.__name__, pool.id, labels), lambda: search(pool, labels, *pair))
        if found is None:
            return scene
        return replace(
            scene,
            longest=found.length,
            longest_on=claims_sql.member_name(member=found.member_id) or "",
        )

    def holders(self, pool_id: int, lanes: list[str], labels: str) -> list[Any]:
        key = ("holders", pool_id, tuple(lanes), labels)
        return _cached(
            key, lambda: claims_sql.holders(SAMPLE, pool=pool_id, lanes=lanes, labels=labels)
        )

    def holds(self, pool_id: int) -> HoldTimes:
        rows = _cached(("holds", pool_id), lambda: claims_sql.recent_holds(RECENT, pool=pool_id))
        return HoldTimes([row.seconds for row in rows])

    def count_ahead(self, line: _Line, claim: ClaimView) -> int:
        return int(
            claims_sql.place_in_line(rivals=list(line.rivals), rank=claim.rank, claim=claim.id) or 0
        )

    def strict_ahead(self, line: _Line, claim: ClaimView) -> int | None:
        """The first claim that goes before this one and may not be passed by it."""
        ahead = [
            (row.rank, row.head)
            for row in line.ahead
            if row.id != claim.shape_id
            and (row.rank, row.head) < (claim.rank, claim.id)
            and not WaitingHead(row.head, row.size, row.passed, row.waited).may_be_passed(
                claim.total, 1
            )
        ]
        return min(ahead)[1] if ahead else None

    def estimate(self, shape: int, line: _Line, scene: WaitContext) -> Band:
        """Only where holders leave by themselves; what depends on a person, a member or a run of
        numbers has no honest time.
        """
        if scene.code == "pool_paused" and scene.paused_until is not None:
            return Band(None, None, f"not before {moment(scene.paused_until)}")
        if scene.code == "next" and scene.strict is None:
            need = (scene.ahead + 1) * scene.wanted.size - scene.places.open
            if need <= 0:
                return Band(0.0, 1.0)
        if scene.code == "pool_not_found":
            return Band(None, None, "when it is created")
        if (
            scene.code not in ("full", "not_enough", "next")
            or line.trouble is None
            or len(line.pools) > 1
        ):
            return Band(
                None,
                None,
                _NOTES.get(
                    scene.code,
                    "depends on which claims end"
                    if scene.code in HOLDERS_LEAVE
                    else "depends on a person",
                ),
            )
        if scene.strict is not None:
            return Band(None, None, f"depends on claim {scene.strict}")
        if shape not in self.forecasts:
            self.forecasts[shape] = self.forecast(line.trouble.id, scene)
        forecast = self.forecasts[shape]
        if forecast is None:
            return Band(None, None, "depends on a person")
        return forecast.start(
            (scene.ahead + 1) * scene.wanted.size - scene.places.open - scene.places.draining
        )

    def forecast(self, pool_id: int, scene: WaitContext) -> Forecast | None:
        rows = self.holders(pool_id, list(scene.lanes), json.dumps(dict(scene.wanted.selector)))
        ages = [row.age for row in rows if row.state == "bound"]
        if rows and not ages:
            return None
        return Forecast(
            ages, self.holds(pool_id), weight=max(1.0, scene.places.held / max(1, len(rows)))
        )


_NOTES = {
    "no_member": "when a member is there",
    "no_member_with_labels": "when a member with the labels is there",
    "no_member_willing": "when a member is ready again",
}


def _places_of(rows: Sequence[Any], lanes: Sequence[str]) -> SlotCounts:
    n: dict[str, int] = dict.fromkeys(
        ("total", "open", "held", "reserved", "draining", "offline", "closed"), 0
    )
    for row in rows:
        if row.lane not in lanes:
            continue
        n["total"] += row.n
        if row.member_state == "offline":
            n["offline"] += row.n
        elif row.state == "idle":
            n["open" if row.is_open else "closed"] += row.n
        else:
            n[row.state] += row.n
    return SlotCounts(**n)


def _facts_of(scene: WaitContext) -> dict[str, Any]:
    """For programs, and for pages that draw them."""
    p = scene.places
    facts: dict[str, Any] = {
        "pool": scene.pool, "lanes": list(scene.lanes), "ahead": scene.ahead, "total": p.total,
        "open": p.open, "held": p.held, "reserved": p.reserved, "draining": p.draining,
        "offline": p.offline, "closed": p.closed, "members": scene.members,
        "max_members": scene.max_members,
    }  # fmt: skip
    if scene.code in ("not_contiguous", "not_together"):
        facts |= {"longest": scene.longest, "longest_on": scene.longest_on}
    if scene.wanted.is_paired:
        facts |= {"pairs": scene.pairs}
    if scene.undecided:
        facts |= {"undecided": list(scene.undecided), "kept_s": round(scene.kept, 1)}
    if scene.paused_until is not None:
        facts["paused_until"] = rfc3339(scene.paused_until)
    return facts


def _explain_blocked(claims: Sequence[ClaimView], reader: _ReadCache) -> None:
    rows = {row.id: row for row in claims_sql.blocked_by(claims=[claim.id for claim in claims])}
    for claim in claims:
        row = rows.get(claim.id)
        if row is None:
            continue
        word = (
            {"plan": "running", "apply": "applying"}.get(row.holder_step or "", "bound")
            if row.holder_state == "bound"
            else row.holder_state
        )
        code, said = describe_blocked(
            workspace=row.name or "",
            is_locked=bool(row.is_locked),
            locked_by=row.locked_by or "",
            lock_reason=row.lock_reason or "",
            holder=row.holder,
            holder_word="apply_pending" if word in ("reserved", "parked") else word or "",
            back_off=row.due_in,
            ahead=row.ahead if claim.is_serial else 0,
            lost_claim=row.lost_claim_id,
        )
        band = _estimate_blocked(code, row, reader)
        start = (band.start, band.end) if band.start is not None and band.end is not None else None
        blockers = [row.holder] if row.holder is not None and code == "workspace_busy" else []
        claim.wait = Wait(
            code=code,
            text=said.text,
            unblock=said.unblock,
            start=start,
            start_note=band.note,
            blockers=blockers,
        )


def _estimate_blocked(code: str, row: Any, reader: _ReadCache) -> Band:
    if code == "back_off":
        return Band(None, None, "then it is queued")
    if (
        code == "workspace_busy"
        and row.holder_state == "bound"
        and row.holder_pool is not None
        and not row.ahead
    ):
        return estimate_start(1, [row.holder_age], reader.holds(row.holder_pool))
    if code == "workspace_busy" and row.holder_state in ("bound", "waiting"):
        return Band(None, None, f"depends on claim {row.holder}")
    return Band(
        None, None, "depends on a person" if code in ("workspace_busy", "workspace_locked") else ""
    )


def _cached(key: Any, read: Callable[[], Any]) -> Any:
    known = _kept.get(key)
    started = time.monotonic()
    if known is not None and known[0] > started:
        return known[1]
    found = read()
    cost = time.monotonic() - started
    if cost >= WORTH_KEEPING:
        if len(_kept) > 1000:
            _kept.clear()
        _kept[key] = (started + cost * COST_SHARE, found)
    return found


def _longest_free_run(
    pool: PoolFacts, labels: str, lanes: list[str]
) -> claims_sql.LongestFreeRunRow | None:
    return claims_sql.longest_free_run(pool=pool.id, labels=labels, lanes=lanes, step=pool.step)


def _most_on_one(pool: PoolFacts, labels: str, lanes: list[str]) -> claims_sql.MostOnOneRow | None:
    return claims_sql.most_on_one(pool=pool.id, labels=labels, lanes=lanes)


def _longest_paired_run(
    pool: PoolFacts, labels: str, lane: str, other: str
) -> pairs_sql.LongestPairedRunRow | None:
    return pairs_sql.longest_paired_run(
        pool=pool.id, labels=labels, lane=lane, other=other, step=pool.step
    )


def _most_paired_on_one(
    pool: PoolFacts, labels: str, lane: str, other: str
) -> pairs_sql.MostPairedOnOneRow | None:
    return pairs_sql.most_paired_on_one(pool=pool.id, labels=labels, lane=lane, other=other)
