"""Calls to one region of one AWS account: paced, without retries of botocore, with typed errors.

boto3 is imported with the first call: a web process that only reads options would need 30 MB and
half a second for it. Its ordinary chain finds the credentials (environment, profile, IRSA, role of
the machine).
"""

import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from pools.providers.aws.errors import NotTried, translate
from pools.providers.pacing import Pacer
from pools.providers.server_faults import ServerFaults
from project.kernel.outbox.budgets import CallBudget
from project.kernel.outbox.operations import Throttled

Answer = Mapping[str, Any]  # as botocore parses it
Tags = Mapping[str, str]

# Every call that Berth makes, by the bucket that AWS counts it in. docs/aws.md has the policy.
READ, WRITE, REGISTER = "read", "write", "register"
CALLS: Mapping[str, str] = {
    "DescribeLoadBalancers": READ,
    "DescribeListeners": READ,
    "DescribeTargetGroups": READ,
    "DescribeTargetHealth": READ,
    "DescribeTags": READ,
    "DescribeAccountLimits": READ,
    "CreateLoadBalancer": WRITE,
    "ModifyLoadBalancerAttributes": WRITE,
    "DeleteLoadBalancer": WRITE,
    "CreateTargetGroup": WRITE,
    "ModifyTargetGroup": WRITE,
    "ModifyTargetGroupAttributes": WRITE,
    "DeleteTargetGroup": WRITE,
    "CreateListener": WRITE,
    "ModifyListener": WRITE,
    "DeleteListener": WRITE,
    "RegisterTargets": REGISTER,
    "DeregisterTargets": REGISTER,
}
# Calls that concern one port.
OF_PORTS = (
    "DescribeTargetHealth",
    "CreateTargetGroup",
    "ModifyTargetGroup",
    "ModifyTargetGroupAttributes",
    "DeleteTargetGroup",
    "CreateListener",
    "ModifyListener",
    "DeleteListener",
    "RegisterTargets",
    "DeregisterTargets",
)
# Calls a second and burst. AWS publishes the bucket of reads only (10 a second, 40); the other
# rates are those of the AWS Load Balancer Controller. The bursts are smaller, because calls reach
# AWS at other distances than Berth sends them: a worker may lose a second after it took a write.
RATES: Mapping[str, tuple[float, float]] = {READ: (10, 36), WRITE: (3, 16), REGISTER: (4, 16)}
PAGE = 400
MOST_ARNS = 20  # in one DescribeTags
CONNECT_TIMEOUT, READ_TIMEOUT = 3.0, 10.0
IDENTITY_AGE = 300.0  # seconds until the account of the credentials is read again

_clients: dict[tuple[str, str, str], Any] = {}
_identities: dict[tuple[str, str], tuple[str, float]] = {}
_lock = threading.Lock()


def forget_clients() -> None:
    """For tests: the next call reads the credentials again."""
    with _lock:
        for client in _clients.values():
            client.close()
        _clients.clear()
        _identities.clear()


def budget_of(place: str, bucket: str, pace: float) -> CallBudget:
    """The bucket of calls at a place: an account and a region."""
    rate, burst = RATES[bucket]
    return CallBudget(f"aws {place.replace('/', ' ')} {bucket}", rate * pace, burst)


class Account:
    def __init__(
        self, region: str, endpoints: Mapping[str, str], pacer: Pacer, pace: float = 1.0
    ) -> None:
        """`endpoints`: by service; other services use the region's. `pace`: a factor of all
        rates.
        """
        self.region, self._endpoints = region, endpoints
        self._pacer, self._pace = pacer, pace
        self.faults: ServerFaults | None = None  # of the ports of one sync

    @property
    def id(self) -> str:
        """The account of the credentials. Every identity may ask for it."""
        key = (self.region, self._endpoints.get("sts", ""))
        found, until = _identities.get(key, ("", 0.0))
        if time.monotonic() >= until:
            found = str(self._send("sts", "GetCallerIdentity", {})["Account"])
            _identities[key] = (found, time.monotonic() + IDENTITY_AGE)
        return found

    @property
    def place(self) -> str:
        return f"{self.id}/{self.region}"

    def call(self, operation: str, **params: object) -> Answer:
        """Make one call. Raises ProviderError, and Postponed instead if the bucket is empty."""
        if self.faults is not None and self.faults.is_in_vain(operation):
            raise NotTried(operation)
        budget = budget_of(self.place, CALLS[operation], self._pace)
        self._pacer.take(budget)
        try:
            answer = self._send("elbv2", operation, params)
        except Throttled:
            self._pacer.record_throttled(budget)
            raise
        if self.faults is not None:
            self.faults.record_success(operation)
        return answer

    def impatient(self) -> AbstractContextManager[None]:
        """Calls in this block raise Postponed where they would wait for their bucket."""
        return self._pacer.impatient()

    def pages(self, operation: str, result: str, **params: object) -> Iterator[Answer]:
        """All items of all pages."""
        more: dict[str, object] = {"PageSize": PAGE}
        while True:
            answer = self.call(operation, **params, **more)
            yield from answer[result]
            if not answer.get("NextMarker"):
                return
            more["Marker"] = answer["NextMarker"]

    def describe_subnets(self, subnets: Collection[str]) -> Answer:
        """EC2 has buckets of its own, and Berth asks once for a changed configuration."""
        return self._send("ec2", "DescribeSubnets", {"SubnetIds": list(subnets)})

    def read_tags(self, arns: Iterable[str]) -> dict[str, Tags]:
        """The tags of objects that exist."""
        wanted, found = list(arns), dict[str, Tags]()
        for first in range(0, len(wanted), MOST_ARNS):
            answer = self.call("DescribeTags", ResourceArns=wanted[first : first + MOST_ARNS])
            for each in answer["TagDescriptions"]:
                tags = {tag["Key"]: tag.get("Value", "") for tag in each["Tags"]}
                found[each["ResourceArn"]] = tags
        return found

    def _send(self, service: str, operation: str, params: Mapping[str, object]) -> Answer:
        method = re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()
        try:
            client = _client_of(service, self.region, self._endpoints.get(service, ""))
            answer: Answer = getattr(client, method)(**params)
        except Exception as error:
            raise translate(error, operation) from error
        return answer


def _client_of(service: str, region: str, endpoint: str) -> Any:
    """Clients may be used by several threads, but not be made by several."""
    key = (service, region, endpoint)
    with _lock:
        if key not in _clients:
            import boto3.session  # noqa: PLC0415
            from botocore.config import Config  # noqa: PLC0415

            config = Config(
                connect_timeout=CONNECT_TIMEOUT,
                read_timeout=READ_TIMEOUT,
                # The outbox retries: it knows the other workers, and shows the error.
                retries={"total_max_attempts": 1, "mode": "standard"},
                max_pool_connections=32,
            )
            session = boto3.session.Session(region_name=region)
            _clients[key] = session.client(service, endpoint_url=endpoint or None, config=config)
        return _clients[key]
