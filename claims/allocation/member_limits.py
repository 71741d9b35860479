"""How many members a pool may have at this moment: its configuration, the open windows of its
schedule and its freezes, and the orders of operators. Scaling decides by these limits, and wait
reasons name them.
"""

from datetime import datetime
from typing import Protocol

from claims.models import Lift
from pools.config.layout import ports_of, slots_of
from pools.config.scaling_spec import Scaling
from pools.config.spec import PoolSpec
from pools.lifecycle.selectors import LIVE
from pools.models import Member
from pools.providers.base import explain_not_allowed
from pools.scaling import MemberLimits, Pin, find_open
from slots.members.offer import count_hosted, shares_address

USED_UP = "the ports {first}-{last} are used up on the address that all members share"


class LimitsRow(Protocol):
    """The columns of a pool that its limits depend on."""

    @property
    def id(self) -> int: ...
    @property
    def provider(self) -> str: ...
    @property
    def min_members(self) -> int: ...
    @property
    def max_members(self) -> int: ...
    @property
    def pin_count(self) -> int | None: ...
    @property
    def pin_reason(self) -> str: ...
    @property
    def paused(self) -> str | None: ...
    @property
    def scaling_paused(self) -> str | None: ...
    @property
    def is_unfrozen(self) -> bool: ...
    @property
    def moment(self) -> datetime: ...


def limits_of(row: LimitsRow, spec: PoolSpec) -> tuple[MemberLimits, datetime | None]:
    """The limits of a pool, and the end of its freeze, if a freeze is open and not lifted."""
    scaling = spec.scaling
    low, high, window_text = limits_between(scaling, row.min_members, row.max_members, row.moment)
    freeze = find_open(scaling.freeze, row.moment) if scaling is not None else None
    if scaling is not None and freeze is not None and (lifted := lifted_starts(row.id, row.moment)):
        freeze = find_open(scaling.freeze, row.moment, lifted)
    frozen = freeze[0].words if freeze is not None and not row.is_unfrozen else ""
    pin = None if row.pin_count is None else Pin(row.pin_count, row.pin_reason)
    fault = explain_not_allowed(row.provider)
    not_allowed = "" if fault is None else f"{fault.message} {fault.way_out}".rstrip(".")
    paused = not_allowed or row.paused or row.scaling_paused or ""
    used_up = ""
    if scaling is not None and (most := most_on_address(row, spec)) is not None and most < high:
        first, last = ports_of(spec.layout) or (0, 0)
        high, low, used_up = most, min(low, most), USED_UP.format(first=first, last=last)
    limits = MemberLimits(low, high, window_text, pin, paused, frozen, used_up)
    return limits, None if freeze is None else freeze[1]


def most_on_address(row: LimitsRow, spec: PoolSpec) -> int | None:
    """The members for which the range of ports is wide enough, if all share one address."""
    if spec.layout.ports is None or not shares_address(row.provider):
        return None
    offered = slots_of(spec.layout)
    more = count_hosted(row.provider, spec.layout, {lane for lane, _ in offered}, len(offered))
    return None if more is None else Member.objects.filter(LIVE, pool_id=row.id).count() + more


def limits_between(
    scaling: Scaling | None, low: int, high: int, moment: datetime
) -> tuple[int, int, str]:
    """The least and the most members at a moment, and the text of the window that sets them."""
    found = None if scaling is None else find_open(scaling.schedule, moment)
    if found is None:
        return min(low, high), high, ""
    window = found[0]
    most = high if window.high is None else min(window.high, high)
    return min(low if window.low is None else window.low, most), most, window.words


def lifted_starts(pool_id: int, moment: datetime) -> frozenset[datetime]:
    """The starts of the pool's lifted freezes that have not ended at `moment`.

    This is a statement of its own, so a caller that has locked the pool sees every lift that was
    committed before. `moment` is the moment at which the windows are read: a lift that ends between
    the two reads ends with its window and not before it.
    """
    return frozenset(
        Lift.objects.filter(pool_id=pool_id, ends_at__gt=moment).values_list("starts_at", flat=True)
    )
