"""Options of a pool that may change while it has members reach the load balancers."""

from typing import Any

import pytest

from claims.ports.backends import BackendRequest, set_backend
from pools.lifecycle.services import update_pool
from pools.models import Pool
from project.kernel.errors import Refused
from project.kernel.models import Operation
from slots.sync.drift import list_drift
from slots.sync.watcher import observe_pool
from tests.claims.helpers import ask
from tests.claims.ports.sites import SITES, Site, is_ready, route, site

__all__ = ["site"]  # a fixture

pytestmark = pytest.mark.usefixtures("committed_tables")


def work(site: Site) -> None:
    """Perform what is ordered, without making more of it due."""
    site.work_until(lambda: not Operation.objects.filter(done_at=None).exists())


def test_new_certificate_of_the_pool_reaches_its_listeners(site: Site) -> None:
    """Red while the certificate was fixed: an expiring one could not be replaced."""
    before, after = site.certificates
    site.make(certificate=before)
    claim = route(ask("games", ports="443/TCP_SSL"))
    site.work_until(lambda: is_ready(claim))
    work(site)
    update_pool("games", site.config(certificate=after))
    observe_pool(Pool.objects.get())
    assert list_drift() == [], "the ordered sync may not have run yet"
    work(site)
    assert site.list_certificates() == [after]
    observe_pool(Pool.objects.get())
    assert list_drift() == []
    assert is_ready(claim)


@pytest.mark.parametrize(
    "options",
    [
        {"deregistration_delay": "20s"},
        {"tags": {"team": "games"}},
        {"name_prefix": "game"},
        {"health_check": {"interval": "10s"}},
    ],
)
def test_change_on_aws_orders_a_sync_and_serves_new_ports(options: dict[str, Any]) -> None:
    with SITES["aws"]() as site:
        site.make(health_check={"interval": "15s"}, tags={"team": "none"})
        claim = route(ask("games", ports="80/TCP"))
        site.work_until(lambda: is_ready(claim))
        work(site)
        update_pool("games", site.config(**options))
        work(site)
        (old,) = site.cloud.groups.values()
        checked = options.get("health_check", {}).get("interval", "30s")
        assert f"{old.settings['HealthCheckIntervalSeconds']}s" == checked
        second = ask("games", ports="81/TCP")
        backend = BackendRequest("10.0.1.8")
        set_backend(claim_id=second.id, generation=second.generation, backend=backend)
        site.work_until(lambda: is_ready(second))
        new = next(each for each in site.cloud.groups.values() if each is not old)
        assert new.delay == (20 if "deregistration_delay" in options else 300)
        assert new.tags.get("team", "") == options.get("tags", {}).get("team", "")
        assert new.name.startswith(options.get("name_prefix", "berth"))


def test_health_checks_of_tencent_are_those_of_new_listeners() -> None:
    with SITES["tencent"]() as site:
        site.make()
        first = route(ask("games", ports="80/TCP"))
        site.work_until(lambda: is_ready(first))
        update_pool("games", site.config(health_check=True))
        ask("games", ports="80/TCP")
        site.work_until(lambda: len(site.cloud.listeners()) == 2)
        assert [each.is_checked for each in site.cloud.listeners()] == [False, True]


def test_option_that_leads_elsewhere_is_fixed_while_members_exist(site: Site) -> None:
    site.make()
    for option, value in (("region", "eu-west-9"), ("endpoint", "https://elsewhere.example")):
        with pytest.raises(Refused) as caught:
            update_pool("games", site.config(**{option: value}))
        assert [fault.field for fault in caught.value.fields] == [f"provider.{option}"]
