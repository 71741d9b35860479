"""An evacuation for pages and REST: its preview, or its progress."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import view_claim, view_claims
from claims.ports.evacuation import evacuation_sql
from claims.ports.evacuation.facts import (
    Evacuating,
    HoldingClaim,
    Room,
    describe_way_out,
    list_holding,
    list_stuck,
    read_free,
    read_pool,
    read_room,
)
from claims.ports.evacuation.plan import HeldPort, Move, Outcome, plan_moves
from claims.ports.evacuation.returns import ReturnableClaim, list_returnable
from pools.config.layout import SHARED
from project.kernel.ui import formatting

MOST_NAMED = 3  # ports of a claim in a text

Place = Literal["moves", "moving", "left", "stuck", "arrived"]


@dataclass(frozen=True, slots=True)
class EvacuatedClaim:
    """A claim of an evacuated member. `moves`: it would move; `left`: its turn comes; `stuck`: it
    stays for now; `arrived`: its former ports still drain, so it can go back to them.
    """

    id: int
    owner: str
    place: Place
    ports: tuple[str, ...]  # that it holds on the member, or has left there
    to: tuple[tuple[str, int], ...] = ()  # its new ports: member and number
    code: str = ""
    reason: str = ""  # why it stays, or what its new ports wait for
    way_out: str = ""
    until: datetime | None = None  # the end of the drain of its former ports

    @property
    def held(self) -> str:
        return shorten(self.ports)

    @property
    def goes_to(self) -> str:
        """Such as "lb-1 30000, 30001 and 30002". A number in TCP and UDP is named once."""
        by_member: dict[str, dict[str, None]] = {}
        for member, number in self.to:
            by_member.setdefault(member, {})[str(number)] = None
        return "; ".join(f"{name} {shorten(list(each))}" for name, each in by_member.items())


@dataclass(frozen=True, slots=True)
class EvacuationReport:
    room: Room
    claims: tuple[EvacuatedClaim, ...]
    order: Evacuating | None = None  # None: a preview
    draining: int = 0  # slots of the member that moved claims have left

    @property
    def moved(self) -> int:
        return 0 if self.order is None else self.order.moved

    @property
    def moving(self) -> EvacuatedClaim | None:
        return next(iter(self.of("moving")), None)

    @property
    def arrived(self) -> Sequence[EvacuatedClaim]:
        return self.of("arrived")

    @property
    def present(self) -> Sequence[EvacuatedClaim]:
        """The claims that hold ports of the member, those that stay first."""
        return [*self.stuck, *self.left]

    @property
    def left(self) -> Sequence[EvacuatedClaim]:
        return self.of("left", "moves")

    @property
    def stuck(self) -> Sequence[EvacuatedClaim]:
        return self.of("stuck")

    @property
    def total(self) -> int:
        return self.moved + len(self.of("moves", "moving", "left", "stuck"))

    @property
    def waits_for(self) -> str:
        return "" if self.order is None else self.order.waits_for

    @property
    def since(self) -> datetime | None:
        return None if self.order is None else self.order.since

    @property
    def moved_percent(self) -> int:
        return round(100 * self.moved / self.total) if self.total else 100

    def of(self, *places: Place) -> Sequence[EvacuatedClaim]:
        return [claim for claim in self.claims if claim.place in places]


def report_evacuation(member_id: int, pool_id: int) -> EvacuationReport:
    """The progress of the member's evacuation; without one, what would become of its claims."""
    rows = evacuation_sql.read_evacuations(members=[member_id])
    return _progress(rows[0]) if rows else preview_evacuation(member_id, pool_id)


def list_evacuations(pool_id: int) -> list[EvacuationReport]:
    """The evacuations of a pool, the oldest first."""
    return [_progress(row) for row in evacuation_sql.evacuations_of_pool(pool=pool_id)]


def find_evacuation(member_id: int) -> EvacuationReport | None:
    rows = evacuation_sql.read_evacuations(members=[member_id])
    return _progress(rows[0]) if rows else None


def list_arrived(member_id: int) -> list[EvacuatedClaim]:
    """The claims that can go back to the member."""
    found = list_returnable(member_id)
    views = {view.id: view for view in view_claims([each.id for each in found])}
    return [_arrived(each, views[each.id]) for each in found]


def preview_evacuation(member_id: int, pool_id: int) -> EvacuationReport:
    """The plan for the claims on a member, as things are now."""
    pool = read_pool(pool_id)
    holding = list_holding(member_id)
    movable = [each.movable for each in holding]
    room = read_room(pool)
    outcomes = plan_moves(movable, read_free(pool, member_id, movable))
    claims = [_planned(each, found, room) for each, found in zip(holding, outcomes, strict=True)]
    return EvacuationReport(room, (*claims, *list_arrived(member_id)))


def show_evacuation(report: EvacuationReport) -> dict[str, object]:
    """The report as the API shows it."""
    order = report.order
    return {
        "is_evacuating": order is not None,
        "by": order.by if order else "",
        "reason": order.reason if order else "",
        "since": report.since,
        "stays": order.stays if order else False,
        "was_cordoned": order.was_cordoned if order else False,
        "waits_for": report.waits_for,
        "moved": report.moved,
        "left": len(report.left),
        "stuck": len(report.stuck),
        "draining_slots": report.draining,
        "claims": [
            {
                "claim_id": claim.id,
                "owner": claim.owner,
                "state": claim.place,
                "ports": list(claim.ports),
                "to": [f"{member} {number}" for member, number in claim.to],
                "code": claim.code or None,
                "reason": claim.reason,
                "way_out": claim.way_out,
                "until": claim.until,
            }
            for claim in report.claims
        ],
    }


def shorten(places: Sequence[str]) -> str:
    if len(places) <= MOST_NAMED:
        return formatting.sentence(places)
    return f"{', '.join(places[:MOST_NAMED])} and {len(places) - MOST_NAMED} more"


def _progress(row: Evacuating) -> EvacuationReport:
    stuck = list_stuck(row.stuck)
    claims = [] if row.claim_id is None else [_moving(row, row.claim_id)]
    for each in list_holding(row.member_id):
        about = stuck.get(each.id)
        ports = _name_ports(each.movable.ports)
        claims.append(
            EvacuatedClaim(each.id, each.owner, "left", ports)
            if about is None
            else EvacuatedClaim(
                each.id, each.owner, "stuck", ports, (), about["code"], about["reason"],
                about["way_out"],
            )
        )  # fmt: skip
    draining = evacuation_sql.count_draining(member=row.member_id)
    claims += list_arrived(row.member_id)
    return EvacuationReport(read_room(read_pool(row.pool_id)), tuple(claims), row, draining)


def _arrived(found: ReturnableClaim, claim: ClaimView) -> EvacuatedClaim:
    to = [claim.ports[ordinal] for ordinal in sorted(found.left.values())]
    return EvacuatedClaim(
        found.id,
        found.owner,
        "arrived",
        tuple(name_port(lane, number) for lane, number in found.places),
        tuple((port["member"] or "", port["number"] or 0) for port in to),
        until=found.until,
    )


def _moving(row: Evacuating, claim_id: int) -> EvacuatedClaim:
    claim = view_claim(claim_id)
    left = evacuation_sql.left_places(member=row.member_id)
    ordinals = [each.ordinal for each in left]
    to = [claim.ports[i] for i in ordinals if i < len(claim.ports)]
    return EvacuatedClaim(
        claim.id,
        claim.owner or claim.requested_by,
        "moving",
        tuple(name_port(each.lane, each.number) for each in left),
        tuple((port["member"] or "", port["number"] or 0) for port in to),
        reason=row.waits_for,
    )


def _planned(claim: HoldingClaim, outcome: Outcome, room: Room) -> EvacuatedClaim:
    ports = _name_ports(claim.movable.ports)
    if isinstance(outcome, Move):
        targets = tuple((each.member, each.number) for each in outcome.targets.values())
        return EvacuatedClaim(claim.id, claim.owner, "moves", ports, targets)
    way_out = describe_way_out(outcome, room)
    return EvacuatedClaim(
        claim.id, claim.owner, "stuck", ports, (), outcome.code, outcome.reason, way_out
    )


def _name_ports(ports: Sequence[HeldPort]) -> tuple[str, ...]:
    return tuple(name_port(port.lane, port.number) for port in ports)


def name_port(lane: str, number: int) -> str:
    return str(number) if lane == SHARED else f"{lane} {number}"
