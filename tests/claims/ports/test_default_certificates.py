"""The certificate of a pool serves encrypted ports whose claims name none: services, rows,
operations and the strict clouds of AWS and Tencent.
"""

from typing import Any

import pytest

from claims.allocation.bulk import create_claims
from claims.allocation.requests.resolve import find_cached_route
from claims.models import Claim
from pools.lifecycle.services import update_pool
from project.kernel.errors import Invalid
from project.kernel.models import Operation
from slots.models import Slot
from slots.sync.drift import list_drift
from slots.sync.watcher import observe_pool
from tests.claims.helpers import ask, wish
from tests.claims.ports.quay import PROVIDERS, Quay, QuayProvider, make_quay
from tests.claims.ports.sites import Site, is_ready, route, site

__all__ = ["site"]  # a fixture

pytestmark = pytest.mark.usefixtures("committed_tables")


def test_claims_without_a_certificate_use_that_of_the_pool(site: Site) -> None:
    """Red while a look compared the listener with the empty certificate of the claim."""
    ours, other = site.certificates
    pool = site.make(certificate=ours)
    claims = [route(ask("games", kind="tcp_ssl")), route(ask("games", ports="443/TCP_SSL"))]
    own = {"port": 443, "protocol": "TCP_SSL", "certificate": other}
    claims.append(route(ask("games", ports=[own])))
    site.work_until(lambda: is_ready(*claims))
    observe_pool(pool)
    assert is_ready(*claims)
    assert list_drift() == []
    assert site.list_certificates() == [ours, ours, other]


def test_certificate_that_was_changed_outside_is_a_difference(site: Site) -> None:
    ours, other = site.certificates
    pool = site.make(certificate=ours)
    claim = route(ask("games", ports="443/TCP_SSL"))
    site.work_until(lambda: is_ready(claim))
    site.work_until(lambda: not Operation.objects.filter(done_at=None).exists())
    site.change_certificate(other)
    observe_pool(pool)
    assert not is_ready(claim)
    changed = f"certificate {other} in place of {ours}"
    assert Slot.objects.get(state="held").observed["changed"] == changed


@pytest.mark.parametrize("ports", ["80/TCP,443/TCP_SSL", [{"port": 443, "protocol": "TCP_SSL"}]])
def test_port_without_any_certificate_is_refused_at_its_field(site: Site, ports: Any) -> None:
    site.make()
    with pytest.raises(Invalid) as caught:
        ask("games", ports=ports)
    (fault,) = caught.value.fields
    assert fault.field == f"ports[{1 if isinstance(ports, str) else 0}].certificate"
    assert "the port names none, and pool games has none" in fault.message
    assert "set provider.certificate of games" in fault.way_out
    assert not Claim.objects.exists()
    assert not Slot.objects.exclude(state="idle").exists()


def test_kind_without_any_certificate_is_refused_at_its_field(site: Site) -> None:
    """Red while such a claim was bound and its listener failed."""
    pool = site.make()
    slot = Slot.objects.filter(pool=pool, lane__in=("tcp", "port"), is_open=True).first()
    assert slot is not None
    for more in ({}, {}, {"size": 2}, {"slot": slot.id}, {"selector": {"zone": "a"}}):
        with pytest.raises(Invalid) as caught:
            ask("" if "slot" in more else "games", kind="tcp_ssl", **more)
        (fault,) = caught.value.fields
        assert fault.field == "kind"
        assert fault.message == "tcp_ssl needs a certificate, and pool games has none."
        assert "Set provider.certificate of games, or claim `ports`" in fault.way_out
    request = wish("games", kind="tcp_ssl")
    assert find_cached_route(request) is None  # so no batch of the API takes it
    assert [type(each) for each in create_claims([request] * 2)] == [Invalid, Invalid]
    assert not Claim.objects.exists()
    assert not Slot.objects.exclude(state="idle").exists()
    ours, _ = site.certificates
    update_pool("games", site.config(certificate=ours))
    assert ask("games", kind="tcp_ssl").state == "bound"


def test_kind_is_refused_while_its_pool_is_missing() -> None:
    with pytest.raises(Invalid) as caught:
        ask("later", kind="quic")
    (fault,) = caught.value.fields
    assert fault.field == "kind" and fault.way_out.startswith("Create pool later first")
    assert ask("later", kind="udp").state == "waiting"


def test_each_pool_of_an_encrypted_port_needs_a_certificate(settings: Any) -> None:
    """A provider without such an option, and a pool that does not exist."""
    settings.BERTH_PROVIDERS = PROVIDERS
    QuayProvider.world = Quay()
    make_quay()
    port = {"port": 443, "protocol": "QUIC", "pools": ["lb", "later"]}
    for pools in (["lb", "later"], ["later", "lb"]):
        with pytest.raises(Invalid) as caught:
            ask(ports=[{**port, "pools": pools}])
        (fault,) = caught.value.fields
        assert f"pool {pools[0]} has none" in fault.message
        assert "provider." not in fault.way_out
    assert ask("lb", ports=[{**port, "pools": ["lb"], "certificate": "cert-1"}]).state == "bound"
