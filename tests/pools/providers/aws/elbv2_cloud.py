"""The state of the strict ELBv2: objects, time, token buckets, faults and the call log."""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tests.pools.providers.aws.elbv2_objects import (
    Answer,
    FakeBalancer,
    FakeGroup,
    FakeListener,
    FakeSubnet,
    FakeTarget,
    Params,
    Quotas,
    Refusal,
)

REGION, ACCOUNT = "eu-west-1", "123456789012"
THROTTLED = "ThrottlingException"
Operation = Callable[["Cloud", Params], Answer]


@dataclass
class TokenBucket:
    rate: float
    burst: float
    left: float = 0.0
    at: float = 0.0

    def take(self, now: float) -> bool:
        self.left = min(self.burst, self.left + (now - self.at) * self.rate)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


def make_buckets(now: float, scale: float = 1.0) -> dict[str, TokenBucket]:
    """AWS publishes the rate of reads; the others are those of the AWS Load Balancer Controller."""
    rates = {"read": (10, 40), "write": (3, 20), "register": (4, 20)}
    return {
        name: TokenBucket(rate * scale, burst, burst, now) for name, (rate, burst) in rates.items()
    }


def class_of(action: str) -> str:
    if action in ("RegisterTargets", "DeregisterTargets"):
        return "register"
    return "read" if action.startswith("Describe") else "write"


@dataclass
class CallRecord:
    number: int
    action: str
    params: Params
    outcome: str = ""  # empty: success; else the code of the error
    is_answered: bool = True  # False: the caller got no answer

    @property
    def is_write(self) -> bool:
        return not self.action.startswith(("Describe", "Get"))


@dataclass
class Fault:
    """`at`: the number of the call; 0: the next calls that match."""

    code: str = ""  # empty: the connection is closed without an answer
    at: int = 0
    action: str = ""
    port: int = 0  # of the parameters; 0: any
    is_after: bool = False  # the call has had its effect
    times: int = 1
    message: str = ""
    status: int = 400

    def matches(self, call: CallRecord) -> bool:
        if self.times <= 0 or (self.at and self.at != call.number):
            return False
        if self.port and call.params.get("Port") != self.port:
            return False
        return not self.action or self.action == call.action


class Unanswered(Exception):
    """The connection is closed without an answer."""


@dataclass(frozen=True)
class SavedCloud:
    objects: tuple[
        dict[str, FakeBalancer],
        dict[str, FakeListener],
        dict[str, FakeGroup],
        dict[str, FakeSubnet],
    ]
    made: dict[str, int]
    log: list[CallRecord]


@dataclass
class Cloud:
    """One region of one account. All methods that the server calls run under `lock`."""

    region: str = REGION
    account: str = ACCOUNT
    latency: float = 0.0  # seconds of each call
    provisioning: float = 0.0  # seconds until a load balancer is active
    initial: float = 0.0  # seconds until a target is healthy
    clock: Callable[[], float] = time.monotonic
    quotas: Quotas = field(default_factory=Quotas)
    buckets: Mapping[str, TokenBucket] | None = None  # None: no throttling
    keys: dict[str, str] = field(default_factory=lambda: {"AKIDTEST": "everything"})
    denied: set[str] = field(default_factory=set)  # actions that the credentials may not call
    certificates: set[str] = field(default_factory=set)
    # Certificates that are not issued, or have a key that load balancers do not support.
    unsupported: set[str] = field(default_factory=set)
    security_groups: set[str] = field(default_factory=lambda: {"sg-0a1b2c3d"})
    sick: set[tuple[str, int]] = field(default_factory=set)  # targets that fail health checks
    balancers: dict[str, FakeBalancer] = field(default_factory=dict)
    listeners: dict[str, FakeListener] = field(default_factory=dict)
    groups: dict[str, FakeGroup] = field(default_factory=dict)
    subnets: dict[str, FakeSubnet] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    log: list[CallRecord] = field(default_factory=list)
    made: dict[str, int] = field(default_factory=dict)  # creations by action
    operations: Mapping[str, Operation] = field(default_factory=dict)
    page_size: int = 400  # most items of a page
    throttled: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._advanced = 0.0
        self._ids = itertools.count(1)
        self.clear()

    def clear(self) -> None:
        """An empty region with three subnets, and no faults."""
        for each in (self.balancers, self.listeners, self.groups, self.subnets, self.made):
            each.clear()
        self.log.clear()
        self.heal()
        for number, zone in enumerate("abc"):
            name = f"subnet-{number:08x}"
            cidr = f"10.0.{number}.0/24"
            self.subnets[name] = FakeSubnet(name, "vpc-1", f"{self.region}{zone}", cidr)

    def save(self) -> SavedCloud:
        """For `restore`, any number of times."""
        return SavedCloud(
            deepcopy((self.balancers, self.listeners, self.groups, self.subnets)),
            dict(self.made),
            list(self.log),
        )

    def restore(self, saved: SavedCloud) -> None:
        """The objects and the log as they were, and no faults."""
        with self.lock:
            objects = deepcopy(saved.objects)
            self.balancers, self.listeners, self.groups, self.subnets = objects
            self.made, self.log = dict(saved.made), list(saved.log)
            self.heal()

    # -- time ----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.clock() + self._advanced

    def advance(self, seconds: float) -> None:
        with self.lock:
            self._advanced += seconds

    # -- calls ---------------------------------------------------------------------------------

    def perform(self, action: str, params: Params, key: str) -> Answer:
        """One call. Raises Refusal, or Unanswered where the caller gets no answer."""
        if self.latency:
            time.sleep(self.latency)
        with self.lock:
            call = CallRecord(len(self.log) + 1, action, params)
            self.log.append(call)
            try:
                answer = self._perform(call, key)
            except Refusal as refusal:
                call.outcome = refusal.code
                raise
            except Unanswered:
                call.is_answered = False
                raise
            return answer

    def _perform(self, call: CallRecord, key: str) -> Answer:
        if key not in self.keys:
            raise Refusal("InvalidClientTokenId", "The security token is not valid.", 403)
        if call.action == "GetCallerIdentity":
            self._fail(call, is_after=False)
            return {"Account": self.account, "Arn": f"arn:aws:iam::{self.account}:user/t"}
        if call.action in self.denied:
            why = f"User is not authorized to perform: elasticloadbalancing:{call.action}"
            raise Refusal("AccessDenied", why, 403)
        if self.buckets and not self.buckets[class_of(call.action)].take(self.now):
            self.throttled += 1
            raise Refusal(THROTTLED, "Rate exceeded")
        self._fail(call, is_after=False)
        answer = self.operations[call.action](self, call.params)
        self._fail(call, is_after=True)
        return answer

    def _fail(self, call: CallRecord, *, is_after: bool) -> None:
        for fault in self.faults:
            if fault.is_after is is_after and fault.matches(call):
                fault.times -= 1
                if fault.code:
                    raise Refusal(fault.code, fault.message, fault.status, is_injected=True)
                raise Unanswered

    def fail(self, code: str = "", **more: Any) -> None:
        self.faults.append(Fault(code, **more))

    def heal(self) -> None:
        self.faults.clear()
        self.denied.clear()

    def count_made(self, action: str) -> None:
        self.made[action] = self.made.get(action, 0) + 1

    # -- objects -------------------------------------------------------------------------------

    def make_arn(self, kind: str, *parts: str) -> str:
        where = "/".join((*parts, f"{next(self._ids):016x}"))
        return f"arn:aws:elasticloadbalancing:{self.region}:{self.account}:{kind}/{where}"

    def balancer(self, arn: str) -> FakeBalancer:
        if not arn.startswith("arn:"):
            raise Refusal("ValidationError", f"'{arn}' is not a valid load balancer ARN")
        if (found := self.balancers.get(arn)) is None:
            raise Refusal("LoadBalancerNotFound", f"Load balancers '[{arn}]' not found")
        return found

    def group(self, arn: str) -> FakeGroup:
        if (found := self.groups.get(arn)) is None:
            raise Refusal("TargetGroupNotFound", f"Target groups '{arn}' not found")
        return found

    def listener(self, arn: str) -> FakeListener:
        if (found := self.listeners.get(arn)) is None:
            raise Refusal("ListenerNotFound", f"Listeners '{arn}' not found")
        return found

    def listeners_of(self, balancer: str) -> list[FakeListener]:
        return [each for each in self.listeners.values() if each.balancer == balancer]

    def balancers_of(self, group: str) -> list[str]:
        users = (each.balancer for each in self.listeners.values() if each.group == group)
        return list(dict.fromkeys(users))

    def state_of(self, balancer: FakeBalancer) -> str:
        is_new = self.now < balancer.created + self.provisioning
        return balancer.state or ("provisioning" if is_new else "active")

    def health_of(self, group: FakeGroup, place: tuple[str, int], target: FakeTarget) -> str:
        if target.is_draining:
            return "draining"
        if not self.balancers_of(group.arn):
            return "unused"
        if self.now < target.since + self.initial:
            return "initial"
        return "unhealthy" if place in self.sick else "healthy"

    def forget_drained(self, group: FakeGroup) -> None:
        """Remove targets that have drained. An unused group drains at once."""
        is_used = bool(self.balancers_of(group.arn))
        for place, target in list(group.targets.items()):
            over = not is_used or self.now >= target.since + group.delay
            if target.is_draining and over:
                del group.targets[place]

    def tags_of(self, arn: str) -> dict[str, str]:
        if ":listener/" in arn:
            return self.listener(arn).tags
        return self.group(arn).tags if ":targetgroup/" in arn else self.balancer(arn).tags

    def page(self, items: Iterable[Answer], params: Params, name: str) -> Answer:
        """The page that the marker names. A marker is the number of items before it."""
        found = list(items)
        marker = params.get("Marker", "0")
        if not marker.isdigit():
            raise Refusal("ValidationError", f"Invalid marker '{marker}'")
        first = int(marker)
        last = first + min(params.get("PageSize", self.page_size), self.page_size)
        return {name: found[first:last], "NextMarker": str(last) if last < len(found) else None}

    # -- for audits ----------------------------------------------------------------------------

    def outside(self) -> Any:
        """All objects as comparable values."""
        with self.lock:
            for group in self.groups.values():
                self.forget_drained(group)
            return (
                {arn: (each.settings, dict(each.tags)) for arn, each in self.balancers.items()},
                {
                    arn: (each.port, each.settings, dict(each.tags))
                    for arn, each in self.listeners.items()
                },
                {
                    arn: (sorted(each.targets), dict(each.settings), dict(each.tags))
                    for arn, each in self.groups.items()
                },
            )

    def writes(self) -> list[CallRecord]:
        return [call for call in self.log if call.is_write and call.action in self.operations]

    def find_writes_to(self, arns: Iterable[str]) -> list[CallRecord]:
        """Calls that change one of these objects, also those that failed. A creation that names
        one as its place counts only if the place is no load balancer.
        """
        wanted = set(arns)
        named = ("ListenerArn", "TargetGroupArn", "LoadBalancerArn")
        return [
            call
            for call in self.writes()
            if call.action != "CreateListener"
            and any(call.params.get(name) in wanted for name in named)
        ]
