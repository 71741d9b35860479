"""Load balancers of Tencent Cloud (CLB) as members, their listeners as slots.

Berth creates load balancers, or uses those that the user owns, and makes their listeners and
targets equal to the claims. The SDK is imported with the first call to the cloud.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from pools.config.fields import Fields
from pools.config.layout import SHARED, Layout
from pools.config.parsing import Faults
from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    Provider,
)
from pools.providers.call_journal import CallJournal, SharedJournal
from pools.providers.display import OptionForm, ProviderTexts
from pools.providers.pacing import Pacer, SharedPacer
from pools.providers.tencent import display, lifecycle, listing, preflight
from pools.providers.tencent import options as reading
from pools.providers.tencent.client import ClbClient, list_budgets_at
from pools.providers.tencent.clients import transport_for
from project.kernel.errors import FieldError
from project.kernel.outbox.budgets import CallBudget
from project.kernel.outbox.operations import Postponed, ProviderError, Throttled, Unauthorised

# Seconds that a call waits for its turn: a worker only for a moment, a look in its own thread.
SYNC_PATIENCE = 5.0
LOOK_PATIENCE = 20.0


class TencentProvider(Provider):
    kind: ClassVar[str] = "tencent"
    queue: ClassVar[str] = "tencent"
    is_owner: ClassVar[bool] = True
    serves_named: ClassVar[bool] = True
    option_fields: ClassVar[Fields] = reading.FIELDS
    rolled: ClassVar[tuple[str, ...]] = ("load_balancer",)
    live_options: ClassVar[tuple[str, ...]] = ("health_check", "certificate")
    certificate_option: ClassVar[str] = "certificate"
    texts: ClassVar[ProviderTexts] = display.TEXTS
    form: ClassVar[OptionForm | None] = display.FORM
    pacer: ClassVar[Pacer] = SharedPacer()
    journal: ClassVar[CallJournal] = SharedJournal()

    @classmethod
    def read_options(
        cls, options: Mapping[str, Any], where: str, faults: Faults
    ) -> Mapping[str, Any]:
        return reading.read_options(options, where, faults)

    @classmethod
    def check_layout(cls, layout: Layout, faults: Faults) -> None:
        """CLB has a listener for each protocol of a number."""
        if layout.ports is None:
            way_out = 'Write them like {ports: "30000-30049", protocols: [tcp, udp]}.'
            faults.add("slots", "The slots of load balancers are ports.", way_out)
        elif layout.classes[0].lane == SHARED or layout.ports.is_shared:
            faults.add(
                "slots.shared",
                "CLB has a listener of its own for each protocol of a port.",
                "Write protocols: [tcp, udp] in place of shared.",
            )

    @classmethod
    def place_of(cls, options: Mapping[str, object]) -> str:
        return f"tencent {options.get('region')} {reading.endpoint_of(options)[1]}"

    @classmethod
    def list_budgets(cls, options: Mapping[str, Any], place: str) -> Mapping[str, CallBudget]:
        return list_budgets_at(place) if place else {}

    def check(self, pool: PoolSnapshot) -> list[FieldError]:
        try:
            with self._client(pool, SYNC_PATIENCE) as client:
                return preflight.find_faults(client, pool)
        except Unauthorised as error:
            return [FieldError(preflight.WHERE, str(error))]
        except (ProviderError, Postponed):
            return []

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        with self._client(pool, SYNC_PATIENCE) as client:
            return lifecycle.sync_member(client, pool, member)

    def look(self, pool: PoolSnapshot) -> Observation:
        try:
            with self._client(pool, LOOK_PATIENCE) as client:
                return listing.observe_pool(client, pool)
        except Postponed as error:
            raise Throttled(
                f"The call budget of {pool.options.get('region')} is used up.",
                retry_after=error.seconds,
            ) from error

    @classmethod
    def name_adopted(cls, pool: str, stray: str, member_id: int) -> str | None:
        return f"adopted-{member_id}" if stray.startswith("load balancer ") else None

    def remove_strays(self, pool: PoolSnapshot, member_ids: Collection[int]) -> None:
        try:
            with self._client(pool, LOOK_PATIENCE) as client:
                listing.remove_strays(client, pool, member_ids)
        except Postponed as error:
            raise Throttled("The call budget is used up.", retry_after=error.seconds) from error

    @contextmanager
    def _client(self, pool: PoolSnapshot, patience: float) -> Iterator[ClbClient]:
        with self.pacer.session():
            yield ClbClient(transport_for(pool), self.pacer, self.journal, pool, patience)
