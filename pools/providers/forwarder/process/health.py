"""The health of a target: the decision is pure, the check is a TCP connection."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pools.providers.forwarder.process.plan import ForwardTarget, HealthPlan
from pools.providers.forwarder.process.proxy_header import LOCAL

HealthState = Literal["initial", "healthy", "unhealthy"]
FIRST_INTERVAL = 1.0  # seconds between the checks of a target whose health is not known yet


@dataclass(slots=True)
class HealthRecord:
    """The first success makes a new target healthy. All other changes take `threshold` equal
    results in a row.
    """

    state: HealthState = "initial"
    in_a_row: int = 0  # results that contradict the state

    def record(self, is_reached: bool, threshold: int) -> bool:
        """True: the state has changed."""
        if is_reached is (self.state == "healthy") and self.state != "initial":
            self.in_a_row = 0
            return False
        if is_reached and self.state == "initial":
            threshold = 1
        self.in_a_row += 1
        if self.in_a_row < threshold:
            return False
        self.state, self.in_a_row = "healthy" if is_reached else "unhealthy", 0
        return True


async def connect(target: ForwardTarget, timeout: float) -> socket.socket:
    """A connection to exactly this address. Raises OSError."""
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in target.ip else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        async with asyncio.timeout(timeout):
            await loop.sock_connect(made, (target.ip, target.port))
    except BaseException:
        made.close()
        raise
    return made


async def is_reached(target: ForwardTarget, timeout: float, is_proxy: bool) -> bool:
    try:
        made = await connect(target, timeout)
    except OSError:  # also TimeoutError
        return False
    with made, contextlib.suppress(OSError):
        if is_proxy:  # a target that expects the header would count the check as a fault
            made.send(LOCAL)
    return True


class HealthCheck:
    """Checks one target until `stop`. In a segment, the first port is checked."""

    def __init__(
        self,
        target: ForwardTarget,
        plan: Callable[[], HealthPlan],
        is_proxy: Callable[[], bool],
    ) -> None:
        self.record = HealthRecord()
        self._target, self._plan, self._is_proxy = target, plan, is_proxy
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            plan = self._plan()
            reached = await is_reached(self._target, plan.timeout, self._is_proxy())
            self.record.record(reached, plan.threshold)
            is_new = self.record.state == "initial"
            await asyncio.sleep(min(plan.interval, FIRST_INTERVAL) if is_new else plan.interval)
