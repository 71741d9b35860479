"""What all listeners of a forwarder share, and the counters of one listener."""

from dataclasses import dataclass, field

from pools.providers.forwarder.process.plan import ForwardOptions, HealthPlan

CHUNK = 65_536  # bytes read at once; at most one chunk waits in each direction of a connection


@dataclass(slots=True)
class TrafficCounts:
    opened: int = 0  # connections and flows so far
    refused: int = 0  # beyond a limit, or without a target
    failed: int = 0  # the target could not be reached
    dropped: int = 0  # datagrams
    bytes_in: int = 0  # from clients
    bytes_out: int = 0  # to clients


@dataclass(slots=True)
class ForwarderLimits:
    """`options` change while listeners run; each listener reads them when it needs them."""

    options: ForwardOptions = field(default_factory=ForwardOptions)
    most: int = 4000  # connections and flows that the limit of open files permits
    used: int = 0
    # Shared by all sockets: each reads and passes its data on before another one reads.
    scratch: memoryview = field(default_factory=lambda: memoryview(bytearray(CHUNK)))

    @property
    def is_full(self) -> bool:
        return self.used >= min(self.most, self.options.total)

    def health(self) -> HealthPlan:
        return self.options.health or HealthPlan()

    def is_proxy(self) -> bool:
        return self.options.is_proxy
