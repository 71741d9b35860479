"""The options under `provider:` of a pool of forwarders. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pools.config.fields import Fields, Object, Option, option
from pools.config.layout import SHARED, Layout
from pools.config.parsing import Choice, Duration, Faults, Flag, Integer
from pools.providers.display import OptionField, OptionForm, ProviderTexts
from pools.providers.forwarder.process.plan import ForwardOptions, HealthPlan

HOUR = 3600.0
MOST = 50_000  # connections; the limit of open files may permit fewer


@dataclass(frozen=True, slots=True)
class HealthOptions:
    enabled: bool = option(Flag(), True, "Whether TCP targets are checked.")
    interval: float = option(Duration(0.5, 300.0), 10.0, "Time between two checks.")
    timeout: float = option(Duration(0.1, 60.0), 3.0, "Time that a check may take.")
    threshold: int = option(Integer(1, 10), 3, "Checks in a row that change the health.")


@dataclass(frozen=True, slots=True)
class TrafficLimits:
    connections: int = option(Integer(1, MOST), 1000, "Most TCP connections of a listener.")
    flows: int = option(Integer(1, MOST), 1000, "Most UDP flows of a listener.")
    total: int = option(Integer(1, MOST), 4000, "Most connections and flows of a forwarder.")


FIELDS = Fields(
    {
        "drain": Option(
            Duration(0.0, HOUR),
            "Time that connections have to end after the release of a port or a change of its "
            "target.",
            10.0,
        ),
        "connect_timeout": Option(
            Duration(0.1, 60.0), "Time in which a target must accept a connection.", 5.0
        ),
        "tcp_idle": Option(
            Duration(1.0, 24 * HOUR, word="never"),
            "Time after which a quiet TCP connection is closed.",
        ),
        "udp_idle": Option(
            Duration(1.0, HOUR), "Time after which a quiet UDP flow is forgotten.", 60.0
        ),
        "proxy_protocol": Option(
            Choice(
                {
                    "none": "none: targets see the address of the forwarder",
                    "v2": "v2: TCP targets get a header with the address of the client",
                }
            ),
            "Header of the PROXY protocol.",
            "none",
        ),
        "health": Option(Object(HealthOptions), "Checks of the targets.", HealthOptions()),
        "limits": Option(Object(TrafficLimits), "Limits on connections.", TrafficLimits()),
        "stop_with_berth": Option(
            Flag(),
            "Whether forwarders end when `make up` ends. Without it they go on serving.",
            False,
        ),
    }
)
# These concern only the traffic of the pool. The limits concern the memory of the machine.
FREE = (
    "drain",
    "connect_timeout",
    "tcp_idle",
    "udp_idle",
    "proxy_protocol",
    "health",
    "stop_with_berth",
)

TEXTS = ProviderTexts(
    choice="load balancers that Berth starts on this machine",
    adding="Berth starts a forwarder for each on this machine.",
    takes_claims="They take claims once their forwarders run.",
    creating="Its forwarder is being started.",
)
FORM = OptionForm(
    "Forwarders",
    (
        OptionField("proxy_protocol", "PROXY protocol", "none or v2"),
        OptionField("drain", "Drain"),
        OptionField("udp_idle", "Idle time-out of UDP"),
    ),
    "Health checks and limits are set in the file.",
)


def forward_options(options: Mapping[str, Any]) -> ForwardOptions:
    """The options of a pool, with defaults. A configuration that an earlier version accepted may
    have a fault now; the default applies then.
    """
    found: dict[str, Any] = {each.attribute: each.default for each in FIELDS.values()}
    found |= FIELDS.read(options, "provider", Faults())
    health: HealthOptions = found["health"]
    limits: TrafficLimits = found["limits"]
    plan = HealthPlan(health.interval, health.timeout, health.threshold)
    return ForwardOptions(
        drain=found["drain"],
        connect=found["connect_timeout"],
        tcp_idle=found["tcp_idle"],
        udp_idle=found["udp_idle"],
        connections=limits.connections,
        flows=limits.flows,
        total=limits.total,
        is_proxy=found["proxy_protocol"] == "v2",
        health=plan if health.enabled else None,
    )


def stops_with_berth(options: Mapping[str, Any]) -> bool:
    return bool(FIELDS.read(options, "provider", Faults()).get("stop_with_berth", False))


def check_layout(layout: Layout, faults: Faults) -> None:
    """A forwarder opens a socket for each port and protocol."""
    if layout.form != "ports":
        faults.add(
            "slots",
            "The members of this provider are load balancers, whose slots are ports.",
            'Write {ports: "30000-30999", protocols: [tcp, udp]}.',
        )
    elif layout.classes[0].lane == SHARED:
        faults.add(
            "slots.shared",
            "A forwarder has separate listeners for TCP and UDP.",
            "Write protocols: [tcp, udp] in place of shared: true.",
        )
    elif layout.ports is not None and layout.ports.precreated:
        faults.add(
            "slots.precreate",
            "A forwarder opens a listener at once, so none exists in advance.",
            "Remove precreate.",
        )
