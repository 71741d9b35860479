"""Network load balancers of AWS as members, their listeners as slots.

AWS is the only source of facts about them. Tags mark what Berth created; everything else is
foreign and stays as it is. A load balancer that the user names by its ARN only gets listeners.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from pools.config.fields import Fields
from pools.config.layout import Layout
from pools.config.parsing import Faults
from pools.providers.aws import display
from pools.providers.aws import options as reading
from pools.providers.aws.account import RATES, Account, budget_of
from pools.providers.aws.look import BALANCER, observe_pool
from pools.providers.aws.options import AwsOptions
from pools.providers.aws.preflight import find_faults
from pools.providers.aws.reconcile import remove_strays, sync_member
from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    Provider,
)
from pools.providers.display import OptionForm, ProviderTexts
from pools.providers.pacing import Pacer, PatientPacer, SharedPacer
from project.kernel.errors import FieldError
from project.kernel.outbox.budgets import CallBudget
from project.kernel.outbox.operations import Postponed, Throttled

SYNC_PATIENCE = 8.0  # seconds that a sync waits for its budget in all; then its lane comes back
LOOK_PATIENCE = 60.0  # a look runs in a thread of its own


class AwsProvider(Provider):
    kind: ClassVar[str] = "aws"
    queue: ClassVar[str] = "aws"
    is_owner: ClassVar[bool] = True
    serves_named: ClassVar[bool] = True
    option_fields: ClassVar[Fields] = reading.FIELDS
    # Changes that AWS applies to new load balancers only.
    rolled: ClassVar[tuple[str, ...]] = (
        "scheme",
        "subnets",
        "ip_type",
        "cross_zone",
        "security_groups",
    )
    live_options: ClassVar[tuple[str, ...]] = (
        "health_check",
        "deregistration_delay",
        "tags",
        "name_prefix",
        "certificate",
    )
    # Without port and path of health checks: those reach what `backends` may not allow.
    free_options: ClassVar[tuple[str, ...]] = (
        "health_check.protocol",
        "health_check.interval",
        "health_check.timeout",
        "health_check.healthy",
        "health_check.unhealthy",
        "deregistration_delay",
    )
    unserved_kinds: ClassVar[Mapping[str, str]] = {
        "quic": "a network load balancer has one QUIC listener, and none beside UDP"
    }
    certificate_option: ClassVar[str] = "certificate"
    texts: ClassVar[ProviderTexts] = display.TEXTS
    form: ClassVar[OptionForm | None] = display.FORM
    # The buckets of calls, and a factor of their rates.
    pacer: ClassVar[Pacer] = SharedPacer()
    pace: ClassVar[float] = 1.0

    @classmethod
    def read_options(
        cls, options: Mapping[str, Any], where: str, faults: Faults
    ) -> Mapping[str, Any]:
        return reading.read_options(options, where, faults)

    @classmethod
    def check_layout(cls, layout: Layout, faults: Faults) -> None:
        reading.check_layout(layout, faults)

    @classmethod
    def place_of(cls, options: Mapping[str, Any]) -> str:
        return f"aws {options.get('endpoint') or options.get('region') or ''}".strip()

    @classmethod
    def list_budgets(cls, options: Mapping[str, Any], place: str) -> Mapping[str, CallBudget]:
        return {name: budget_of(place, name, cls.pace) for name in RATES} if place else {}

    def check(self, pool: PoolSnapshot) -> list[FieldError]:
        with self._account(pool, SYNC_PATIENCE) as (account, options):
            return find_faults(account, pool, options)

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        with self._account(pool, SYNC_PATIENCE) as (account, options):
            return sync_member(account, pool, member, options)

    def look(self, pool: PoolSnapshot) -> Observation:
        with self._account(pool, LOOK_PATIENCE) as (account, _), _outside_of_lanes():
            return observe_pool(account, pool)

    @classmethod
    def name_adopted(cls, pool: str, stray: str, member_id: int) -> str | None:
        return f"adopted-{member_id}" if stray.startswith(BALANCER) else None

    def remove_strays(self, pool: PoolSnapshot, member_ids: Collection[int]) -> None:
        with self._account(pool, LOOK_PATIENCE) as (account, _), _outside_of_lanes():
            remove_strays(account, pool, member_ids)

    @contextmanager
    def _account(self, pool: PoolSnapshot, patience: float) -> Iterator[tuple[Account, AwsOptions]]:
        options = AwsOptions.of(pool.options)
        pacer = PatientPacer(self.pacer, patience)
        with pacer.session():
            yield Account(options.region, options.endpoints, pacer, self.pace), options


@contextmanager
def _outside_of_lanes() -> Iterator[None]:
    """Only a lane knows Postponed. The watcher looks again later, as after a throttled call."""
    try:
        yield
    except Postponed as postponed:
        raise Throttled(
            "The call budget of the account is used up.", retry_after=postponed.seconds
        ) from postponed
