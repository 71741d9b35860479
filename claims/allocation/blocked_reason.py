"""Explains why claims are blocked: by the lock of their workspace, by another claim, or by a wait
before the next try.
"""

from collections.abc import Callable, Sequence

from claims import claims_sql
from claims.allocation.claim_view import ClaimView, Wait
from claims.allocation.estimate import Band, HoldTimes, estimate_start
from claims.allocation.wait_messages import describe_blocked
from claims.display import claim_class


def explain_blocked(claims: Sequence[ClaimView], holds: Callable[[int], HoldTimes]) -> None:
    """Set `wait` of blocked claims. `holds`: reads recent hold times of a pool."""
    rows = {row.id: row for row in claims_sql.blocked_by(claims=[claim.id for claim in claims])}
    for claim in claims:
        row = rows.get(claim.id)
        if row is None:
            continue
        code, message = describe_blocked(
            workspace=row.name or "",
            is_locked=row.is_locked,
            locked_by=row.locked_by or "",
            lock_reason=row.lock_reason or "",
            holder=row.holder,
            holder_class=claim_class(row.holder_state or "", step=row.holder_step or ""),
            back_off=row.due_in,
            ahead=row.ahead if claim.is_serial else 0,
            lost_claim=row.lost_claim_id,
        )
        band = _estimate_blocked(code, row, holds)
        blockers = [row.holder] if row.holder is not None and code == "workspace_busy" else []
        claim.wait = Wait(
            code=code,
            text=message.text,
            unblock=message.unblock,
            start=band.span,
            start_note=band.note,
            blockers=blockers,
        )


def _estimate_blocked(
    code: str, row: claims_sql.BlockedByRow, holds: Callable[[int], HoldTimes]
) -> Band:
    if code == "back_off":
        return Band(None, None, "then it is queued")
    if (
        code == "workspace_busy"
        and row.holder_state == "bound"
        and row.holder_pool is not None
        and not row.ahead
    ):
        return estimate_start(1, [row.holder_age or 0.0], holds(row.holder_pool))
    if code == "workspace_busy" and row.holder_state in ("bound", "waiting"):
        return Band(None, None, f"depends on claim {row.holder}")
    return Band(
        None, None, "depends on a person" if code in ("workspace_busy", "workspace_locked") else ""
    )
