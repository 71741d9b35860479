"""The calls that Tencent Cloud needs for new ports, alone: no rows, no reads before a
write, no look at what is there. The time that they take within the limits of the API is the measure
of the provider.

Each load balancer has a thread. Each kind of call is made at its limit, as soon as the limit
permits. A task is polled once, when it is done: its length is known here.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pools.lifecycle.selectors import snapshot_pool
from pools.models import Pool
from pools.providers.tencent.clients import Transport, transport_for
from project.kernel.outbox.operations import Throttled

Answer = Mapping[str, object]
CALLS_PER_SECOND = 20.0  # of each action; as many may come at once


@dataclass
class CallTimes:
    """When each kind of call may be made: a bucket of 20 that refills with 20 a second."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    due: dict[str, float] = field(default_factory=dict)

    def wait(self, action: str) -> None:
        with self.lock:
            now = time.monotonic()
            full = now - 1.0  # a bucket is full after a second
            at = max(self.due.get(action, full), full) + 1 / CALLS_PER_SECOND
            self.due[action] = at
        time.sleep(max(0.0, at - now))


@dataclass
class BareCalls:
    transport: Transport
    task_seconds: float
    times: CallTimes = field(default_factory=CallTimes)

    def serve(self, balancer: str, ports: Mapping[str, Sequence[int]]) -> None:
        """Creates listeners and binds a target to each."""
        for protocol, numbers in ports.items():
            self._write(
                "CreateListener",
                LoadBalancerId=balancer,
                Protocol=protocol,
                Ports=list(numbers),
                ListenerNames=[f"bare-{number}" for number in numbers],
                HealthCheck={"HealthSwitch": 0},
            )
        listed = self._call("DescribeListeners", LoadBalancerId=balancer)["Listeners"]
        assert isinstance(listed, list)
        targets = [
            {"ListenerId": each["ListenerId"], "EniIp": "10.0.1.1", "Port": each["Port"]}
            for each in listed
        ]
        self._write("BatchRegisterTargets", LoadBalancerId=balancer, Targets=targets)

    def _write(self, action: str, **parameters: object) -> None:
        task = self._call(action, **parameters)["RequestId"]
        time.sleep(self.task_seconds)
        while self._call("DescribeTaskStatus", TaskId=task)["Status"] == 2:
            time.sleep(0.01)

    def _call(self, action: str, **parameters: object) -> Answer:
        while True:
            self.times.wait(action)
            try:
                return self.transport.call(action, parameters)
            except Throttled:
                continue  # the calls reach the cloud at other distances than they were sent


def seconds_of_bare_calls(
    pool: Pool, work: Mapping[str, Mapping[str, Sequence[int]]], task_seconds: float
) -> float:
    """`work`: the numbers of each load balancer, by protocol."""
    calls = BareCalls(transport_for(snapshot_pool(pool)), task_seconds)
    began = time.monotonic()
    with ThreadPoolExecutor(len(work)) as threads:
        for _ in threads.map(lambda each: calls.serve(*each), work.items()):
            pass
    return time.monotonic() - began
