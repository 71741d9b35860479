"""The present error of a pool's provider: that of the last look, else of the oldest failing
operation, else the reason for which members wait. It disappears once the fault is fixed.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models.functions import Now

from pools.models import Member, Pool
from pools.providers.base import explain_not_allowed
from project.kernel.models import Operation

# A pod that waits longer for a node or an image probably needs a person.
WAITS_LONG = timedelta(seconds=60)
MAX_ROWS = 2000
NOT_ALLOWED = "provider_not_allowed"


@dataclass(frozen=True, slots=True)
class PoolError:
    code: str  # of the error; waiting: no call fails, and members are not created
    detail: str
    since: datetime
    members: int = 0  # members with the error; 0: the whole pool
    is_tried: bool = True  # Berth tries again

    @property
    def words(self) -> str:
        if self.code == NOT_ALLOWED:
            return "It takes no new members"
        if not self.members:
            return "Its provider fails"
        if self.members == 1:
            return "A member waits" if self.code == "waiting" else "A member fails to synchronise"
        what = "wait" if self.code == "waiting" else "fail to synchronise"
        return f"{self.members} members {what}"


def find_errors(pools: Iterable[Pool]) -> dict[int, PoolError]:
    """By pool id, for the pools with an error. Takes two queries."""
    rows = list(pools)
    found = {
        pool.pk: PoolError(pool.provider_error_code, pool.provider_error, pool.provider_error_since)
        for pool in rows
        if pool.provider_error_since is not None
    }
    rest = [pool.pk for pool in rows if pool.pk not in found and pool.queue]
    found = found | _find_waiting(rest) | _find_failing(rest) if rest else found
    return _find_not_allowed(rows) | found


def find_error(pool: Pool) -> PoolError | None:
    return find_errors([pool]).get(pool.pk)


def _find_not_allowed(pools: list[Pool]) -> dict[int, PoolError]:
    """Pools with a provider that is no longer allowed. Other errors of such a pool go first,
    because its members still work.
    """
    found = {}
    for pool in pools:
        if (fault := explain_not_allowed(pool.provider)) is not None:
            found[pool.pk] = PoolError(
                NOT_ALLOWED, f"{fault.message} {fault.way_out}", pool.changed_at, is_tried=False
            )
    return found


def _find_failing(ids: list[int]) -> dict[int, PoolError]:
    """The oldest failing operation of each pool; a permanent failure goes first."""
    by_pool: dict[int, list[Operation]] = defaultdict(list)
    failing = (
        Operation.objects.filter(done_at__isnull=True, pool_id__in=ids)
        .exclude(error_code="")
        .order_by("created_at")
    )
    for operation in failing[:MAX_ROWS]:
        if operation.pool_id is not None:
            by_pool[operation.pool_id].append(operation)
    found = {}
    for pool_id, operations in by_pool.items():
        first = next((o for o in operations if o.error_code == "permanent"), operations[0])
        members = {
            o.member_id for o in operations if o.error_code == first.error_code and o.member_id
        }
        is_tried = first.error_code != "permanent"
        found[pool_id] = PoolError(
            first.error_code, first.error, first.created_at, max(1, len(members)), is_tried
        )
    return found


def _find_waiting(ids: list[int]) -> dict[int, PoolError]:
    waiting = Member.objects.filter(
        pool_id__in=ids, state="creating", state_at__lte=Now() - WAITS_LONG
    ).exclude(outside="")
    by_pool: dict[int, list[Member]] = defaultdict(list)
    for member in waiting.order_by("state_at")[:MAX_ROWS]:
        by_pool[member.pool_id].append(member)
    return {
        pool_id: PoolError(
            "waiting",
            members[0].outside,
            members[0].state_at,
            sum(m.outside == members[0].outside for m in members),
        )
        for pool_id, members in by_pool.items()
    }
