"""The calls of the CLB API that Berth makes, paced, with answers as typed values.

`ACTIONS` names all of them; the policy in docs/tencent.md allows these and no more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pools.providers.base import PoolSnapshot
from pools.providers.call_journal import CallJournal
from pools.providers.pacing import Pacer, PatientPacer
from pools.providers.tencent.clients import Transport
from pools.providers.tencent.errors import LoadBalancerMissing, NoAnswer
from pools.providers.tencent.listeners import Binding, Listener
from pools.providers.tencent.options import endpoint_of
from project.kernel.outbox.budgets import CallBudget
from project.kernel.outbox.operations import Misconfigured, Throttled

ACTIONS = (
    "CreateLoadBalancer", "DeleteLoadBalancer", "DescribeLoadBalancers",
    "CreateListener", "DeleteLoadBalancerListeners", "DescribeListeners",
    "BatchRegisterTargets", "BatchDeregisterTargets", "DescribeTargets", "DescribeTargetHealth",
    "DescribeTaskStatus", "DescribeQuota",
)  # fmt: skip
# Calls a second of each action, in one account and region. The API takes 20 and counts in windows
# that Berth does not know, so the bucket keeps some distance: no second has more calls than the
# rate and the burst, and the calls of many seconds stay below 20.
RATE, BURST = 19.5, 10.0
SPREAD = 0.2  # seconds by which waiting calls are spread
# Limits of one call.
LISTENERS_CREATED = 50
LISTENERS_DELETED = 20
LISTENERS_DESCRIBED = 20
TARGETS_CHANGED = 500
BALANCERS_BY_ID = 20
BALANCERS_PER_PAGE = 100
BALANCERS_OF_HEALTH = 30
DONE, FAILED = 0, 1  # of DescribeTaskStatus
HEALTH = {"Alive": "healthy", "Dead": "unhealthy", "Close": "unchecked"}

Json = Mapping[str, object]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LoadBalancer:
    id: str
    name: str
    is_active: bool
    is_classic: bool  # of the old kind, without listeners for pods
    is_isolated: bool  # the account is in arrears
    is_blocked: bool  # under attack
    created: str
    addresses: tuple[str, ...]
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CloudTask:
    """A write that the cloud has accepted. Listeners in `failed` were refused; `message` says
    why.
    """

    id: str
    ids: tuple[str, ...] = ()  # of created load balancers
    failed: frozenset[str] = frozenset()
    message: str = ""


@dataclass(frozen=True, slots=True)
class RegisteredTarget:
    binding: Binding
    health: str  # healthy, unhealthy, initial or unchecked


def budget_of(region: str, account: str, action: str) -> CallBudget:
    return CallBudget(f"tencent {account} {region} {action}", RATE, BURST)


def list_budgets_at(place: str) -> Mapping[str, CallBudget]:
    """The buckets of a place (`ClbClient.place`), by action."""
    region, _, account = place.split("/")
    return {action: budget_of(region, account, action) for action in ACTIONS}


class ClbClient:
    def __init__(
        self,
        transport: Transport,
        pacer: Pacer,
        journal: CallJournal,
        pool: PoolSnapshot,
        patience: float,
    ) -> None:
        """`patience`: seconds that a call waits for its turn before Postponed is raised."""
        self.journal = journal
        self.region = str(pool.options.get("region") or "")
        self.account = transport.account
        self._host = endpoint_of(pool.options)[1]
        self._transport, self._pacer, self._patience = transport, pacer, patience

    @property
    def place(self) -> str:
        """Region, endpoint and account of a pool."""
        return f"{self.region}/{self._host}/{self.account}"

    def check_place(self, pool: PoolSnapshot) -> None:
        """Raises Misconfigured at another place than the recorded one: other credentials may lead
        to an account that has none of the load balancers, and none of them is gone.
        """
        if pool.place and pool.place != self.place:
            raise Misconfigured(
                f"The credentials of the workers have changed, and Berth has not seen all load "
                f"balancers of {pool.name} in {self.region} with them. Berth treats none "
                f"as gone and creates none. Give the workers credentials of the old account; "
                f"if that is gone for good, run: manage.py confirm_place {pool.name} --reason …"
            )

    def call(self, action: str, parameters: Json) -> Json:
        budget = budget_of(self.region, self.account, action)
        # Each call has the whole patience: a sync of many calls waits a little for each.
        PatientPacer(self._pacer, self._patience, spread=SPREAD).take(budget)
        try:
            return self._transport.call(action, parameters)
        except Throttled:
            self._pacer.record_throttled(budget)
            raise

    def describe_load_balancers(self, ids: Sequence[str]) -> list[LoadBalancer]:
        """The load balancers with these ids that exist."""
        found: list[LoadBalancer] = []
        for some in batched(ids, BALANCERS_BY_ID):
            try:
                found += self._list_load_balancers({"LoadBalancerIds": list(some)})
            except LoadBalancerMissing:
                if len(some) > 1:
                    for each in some:
                        found += self.describe_load_balancers([each])
        return found

    def list_tagged(self, tags: Mapping[str, str]) -> list[LoadBalancer]:
        filters = [{"Name": f"tag:{name}", "Values": [tags[name]]} for name in sorted(tags)]
        return self._list_load_balancers({"Filters": filters})

    def _list_load_balancers(self, which: Json) -> list[LoadBalancer]:
        found: dict[str, LoadBalancer] = {}
        offset = 0
        while True:
            # In the order of creation, so that a new one does not move the pages.
            page = {"Offset": offset, "Limit": BALANCERS_PER_PAGE, "OrderType": 0}
            answer = self.call("DescribeLoadBalancers", {**which, **page})
            listed = [_load_balancer(row) for row in rows(answer, "LoadBalancerSet")]
            found |= {each.id: each for each in listed}
            offset += len(listed)
            if not listed or offset >= number(answer, "TotalCount"):
                return list(found.values())

    def create_load_balancer(self, parameters: Json) -> CloudTask:
        answer = self.call("CreateLoadBalancer", parameters)
        return CloudTask(text(answer, "RequestId"), texts(answer, "LoadBalancerIds"))

    def delete_load_balancer(self, load_balancer: str) -> CloudTask:
        return self._write("DeleteLoadBalancer", {"LoadBalancerIds": [load_balancer]})

    def describe_listeners(self, load_balancer: str) -> list[Listener]:
        answer = self.call("DescribeListeners", {"LoadBalancerId": load_balancer})
        return [_listener(row) for row in rows(answer, "Listeners")]

    def create_listeners(self, load_balancer: str, parameters: Json) -> CloudTask:
        return self._write("CreateListener", {"LoadBalancerId": load_balancer, **parameters})

    def delete_listeners(self, load_balancer: str, ids: Sequence[str]) -> CloudTask:
        if not ids:  # without ids the API deletes all listeners
            raise ValueError("no listeners to delete")
        parameters = {"LoadBalancerId": load_balancer, "ListenerIds": list(ids)}
        return self._write("DeleteLoadBalancerListeners", parameters)

    def describe_targets(
        self, load_balancer: str, ids: Sequence[str]
    ) -> dict[str, tuple[Binding, ...]]:
        found: dict[str, tuple[Binding, ...]] = {}
        for some in batched(ids, LISTENERS_DESCRIBED):
            parameters = {"LoadBalancerId": load_balancer, "ListenerIds": list(some)}
            answer = self.call("DescribeTargets", parameters)
            for row in rows(answer, "Listeners"):
                bound = [_binding(each) for each in rows(row, "Targets")]
                found[text(row, "ListenerId")] = tuple(sorted(bound))
        return found

    def register(
        self, load_balancer: str, targets: Sequence[tuple[Listener, Binding]]
    ) -> CloudTask:
        return self._change_targets("BatchRegisterTargets", load_balancer, targets)

    def deregister(
        self, load_balancer: str, targets: Sequence[tuple[Listener, Binding]]
    ) -> CloudTask:
        return self._change_targets("BatchDeregisterTargets", load_balancer, targets)

    def _change_targets(
        self, action: str, load_balancer: str, targets: Sequence[tuple[Listener, Binding]]
    ) -> CloudTask:
        written = [
            {"ListenerId": listener.id, **binding.parameters} for listener, binding in targets
        ]
        return self._write(action, {"LoadBalancerId": load_balancer, "Targets": written})

    def describe_health(
        self, ids: Sequence[str]
    ) -> dict[str, dict[str, tuple[RegisteredTarget, ...]]]:
        """Targets by load balancer and listener. A load balancer that is gone is left out."""
        found: dict[str, dict[str, tuple[RegisteredTarget, ...]]] = {}
        for some in batched(ids, BALANCERS_OF_HEALTH):
            try:
                answer = self.call("DescribeTargetHealth", {"LoadBalancerIds": list(some)})
            except LoadBalancerMissing:
                if len(some) > 1:
                    for each in some:
                        found |= self.describe_health([each])
                continue
            for row in rows(answer, "LoadBalancers"):
                found[text(row, "LoadBalancerId")] = {
                    text(listener, "ListenerId"): tuple(
                        _seen_target(target)
                        for rule in rows(listener, "Rules")
                        for target in rows(rule, "Targets")
                    )
                    for listener in rows(row, "Listeners")
                }
        return found

    def task_status(self, task: str) -> tuple[int, str, tuple[str, ...]]:
        """Status, message, and ids of load balancers."""
        answer = self.call("DescribeTaskStatus", {"TaskId": task})
        ids = texts(answer, "LoadBalancerIds")
        return number(answer, "Status"), text(answer, "Message"), ids

    def describe_quota(self) -> dict[str, int]:
        answer = self.call("DescribeQuota", {})
        return {text(row, "QuotaId"): number(row, "QuotaLimit") for row in rows(answer, "QuotaSet")}

    def _write(self, action: str, parameters: Json) -> CloudTask:
        answer = self.call(action, parameters)
        failed = frozenset(texts(answer, "FailListenerIdSet"))
        return CloudTask(text(answer, "RequestId"), failed=failed, message=text(answer, "Message"))


def sum_health(targets: Sequence[RegisteredTarget]) -> str:
    """The health of a listener: that of its worst target."""
    found = {target.health for target in targets}
    worst_first = ("unhealthy", "initial", "unchecked", "healthy")
    return next((each for each in worst_first if each in found), "initial")


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def text(row: Json, name: str) -> str:
    return _read(row, name, str, "")


def number(row: Json, name: str) -> int:
    return _read(row, name, int, 0)


def texts(row: Json, name: str) -> tuple[str, ...]:
    return tuple(str(each) for each in _read(row, name, list, []))


def rows(row: Json, name: str) -> list[Json]:
    return [each for each in _read(row, name, list, []) if isinstance(each, Mapping)]


def _read(row: Json, name: str, kind: type[T], missing: T) -> T:
    """The value of a field. A missing field is empty, as null is."""
    value = row.get(name)
    if value is None:
        return missing
    if not isinstance(value, kind):
        raise NoAnswer(f"The answer of the cloud has no usable {name}: {value!r:.60}.")
    return value


def _load_balancer(row: Json) -> LoadBalancer:
    domain = text(row, "LoadBalancerDomain") or text(row, "Domain")
    addresses = (domain, *texts(row, "LoadBalancerVips"), text(row, "AddressIPv6"))
    return LoadBalancer(
        id=text(row, "LoadBalancerId"),
        name=text(row, "LoadBalancerName"),
        is_active=number(row, "Status") == 1,
        is_classic=number(row, "Forward") == 0,
        is_isolated=number(row, "Isolation") == 1,
        is_blocked=_read(row, "IsBlock", bool, False),
        created=text(row, "CreateTime"),
        addresses=tuple(dict.fromkeys(each for each in addresses if each)),
        tags={text(tag, "TagKey"): text(tag, "TagValue") for tag in rows(row, "Tags")},
    )


def _listener(row: Json) -> Listener:
    certificate = row.get("Certificate")
    check = row.get("HealthCheck")
    port = number(row, "Port")
    end = number(row, "EndPort")
    return Listener(
        id=text(row, "ListenerId"),
        name=text(row, "ListenerName"),
        protocol=text(row, "Protocol"),
        port=port,
        end=end if end > port else port,
        certificate=text(certificate, "CertId") if isinstance(certificate, Mapping) else "",
        is_checked=isinstance(check, Mapping) and number(check, "HealthSwitch") == 1,
    )


def _binding(row: Json) -> Binding:
    instance = text(row, "InstanceId") if text(row, "Type") == "CVM" else ""
    return Binding(next(iter(texts(row, "PrivateIpAddresses")), ""), number(row, "Port"), instance)


def _seen_target(row: Json) -> RegisteredTarget:
    health = HEALTH.get(text(row, "HealthStatusDetail"), "initial")
    return RegisteredTarget(Binding(text(row, "IP"), number(row, "Port")), health)
