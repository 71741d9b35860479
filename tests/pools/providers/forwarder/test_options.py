"""Options and layouts of pools of forwarders."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pools.config.layout import Ports, plain, port_lanes
from pools.config.parsing import Faults
from pools.providers.forwarder.options import forward_options
from pools.providers.forwarder.process.plan import ForwardOptions, HealthPlan
from pools.providers.forwarder.provider import ForwarderProvider
from tests.pools.providers.forwarder.helpers import pool

PORTS = Ports(30000, 30999)


def test_options_have_the_defaults_of_the_process() -> None:
    assert forward_options({}) == ForwardOptions()


def test_options_reach_the_process() -> None:
    options = {
        "drain": "0s", "connect_timeout": "1s", "tcp_idle": "1h", "udp_idle": "2m",
        "proxy_protocol": "v2",
        "health": {"enabled": True, "interval": "1s", "timeout": "500ms", "threshold": 2},
        "limits": {"connections": 1, "flows": 2, "total": 3},
        "stop_with_berth": True,
    }  # fmt: skip
    faults = Faults()
    kept = ForwarderProvider.read_options(options, "provider", faults)
    assert (kept, faults.found) == (options, [])
    assert forward_options(kept) == ForwardOptions(
        0.0, 1.0, 3600.0, 120.0, 1, 2, 3, True, HealthPlan(1.0, 0.5, 2)
    )


def test_a_time_out_can_be_turned_off() -> None:
    assert forward_options({"tcp_idle": "never"}).tcp_idle is None
    assert forward_options({"health": {"enabled": False}}).health is None


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"drain": 10}, "provider.drain"),
        ({"drain": "2h"}, "provider.drain"),
        ({"proxy_protocol": "v1"}, "provider.proxy_protocol"),
        ({"health": {"threshold": 0}}, "provider.health.threshold"),
        ({"limits": {"total": 10**6}}, "provider.limits.total"),
        ({"bind": "0.0.0.0"}, "provider.bind"),
    ],
)
def test_fault_of_an_option_is_at_its_field(options: dict[str, Any], field: str) -> None:
    faults = Faults()
    ForwarderProvider.read_options(options, "provider", faults)
    assert [each.field for each in faults.found] == [field]


PRECREATED = replace(PORTS, precreated=(("tcp", 2),))


@pytest.mark.parametrize(
    ("layout", "fields"),
    [
        (port_lanes(PORTS, ["tcp", "udp"]), []),
        (port_lanes(PORTS, ["udp"]), []),
        (port_lanes(PORTS, None), ["slots.shared"]),
        (port_lanes(PRECREATED, ["tcp"]), ["slots.precreate"]),
        (plain(3), ["slots"]),
    ],
)
def test_members_offer_ports_with_a_protocol(layout: Any, fields: list[str]) -> None:
    faults = Faults()
    ForwarderProvider.check_layout(layout, faults)
    assert [each.field for each in faults.found] == fields


def test_pool_needs_a_state_folder_of_its_own(settings: Any, tmp_path: Path) -> None:
    assert ForwarderProvider().check(pool()) == []
    (tmp_path / "file").touch()
    settings.BERTH_HOME = tmp_path / "file" / "below"
    (fault,) = ForwarderProvider().check(pool())
    assert fault.field == "provider.kind"
    assert "BERTH_HOME" in fault.way_out


def test_pool_in_a_cluster_needs_addresses_of_the_installation(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    (fault,) = ForwarderProvider().check(pool())
    assert "cluster" in fault.message
    settings.BERTH_FORWARDER_BIND = ["192.0.2.7"]
    assert ForwarderProvider().check(pool()) == []


def test_wrong_setting_of_addresses_is_a_fault_of_the_pool(settings: Any) -> None:
    settings.BERTH_FORWARDER_BIND = ["0.0.0.0"]
    (fault,) = ForwarderProvider().check(pool())
    assert (fault.field, fault.message[:20]) == ("provider.kind", "BERTH_FORWARDER_BIND")
