"""Claims name only certificates that each pool of the port lists, or that is its own."""

from typing import Any

import pytest

from claims.allocation.claim_view import ClaimView
from claims.models import Claim
from claims.ports.backends import BackendRequest, set_backend
from pools.lifecycle.selectors import config_of
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Pool
from project.kernel.errors import Invalid
from slots.models import Slot
from tests.claims.helpers import again, ask, serve
from tests.claims.ports.quay import PROVIDERS, Quay, QuayProvider, make_quay, work
from tests.claims.ports.test_backends import targets
from tests.claims.ports.test_conditions import is_ready_for_long_poll

pytestmark = pytest.mark.usefixtures("committed_tables")


@pytest.fixture(autouse=True)
def _world(settings: Any) -> None:
    settings.BERTH_PROVIDERS = PROVIDERS
    QuayProvider.world = Quay()


def secure(certificate: str, *pools: str) -> dict[str, Any]:
    more = {"pools": list(pools)} if pools else {}
    return {"port": 443, "protocol": "TCP_SSL", "certificate": certificate, **more}


def route(claim: ClaimView) -> None:
    backend = BackendRequest("10.0.0.7", port=443)
    set_backend(claim_id=claim.id, generation=claim.generation, backend=backend)


def test_certificate_that_the_pool_does_not_list_is_refused_at_its_field() -> None:
    make_quay(certificates=["cert-1"])
    with pytest.raises(Invalid) as caught:
        ask("lb", ports=[{"port": 80, "protocol": "TCP"}, secure("cert-of-the-shop")])
    (fault,) = caught.value.fields
    assert fault.field == "ports[1].certificate"
    assert "Pool lb does not list the certificate" in fault.message
    assert not Claim.objects.exists() and not Slot.objects.exclude(state="idle").exists()
    assert ask("lb", ports=[secure("cert-1")]).state == "bound"


def test_each_pool_of_the_port_must_list_the_certificate() -> None:
    make_quay("a", certificates=["cert-1", "cert-2"])
    make_quay("b", certificates=["cert-2"])
    with pytest.raises(Invalid) as caught:
        ask("a", ports=[secure("cert-1", "a", "b")])
    assert [fault.message.split()[1] for fault in caught.value.fields] == ["b"]
    assert ask("a", ports=[secure("cert-2", "a", "b")]).state == "bound"


def test_certificate_of_the_pool_itself_is_allowed(settings: Any) -> None:
    settings.BERTH_PROVIDERS = (*PROVIDERS, "pools.providers.aws.provider.AwsProvider")
    own = "arn:aws:acm:eu-west-1:123456789012:certificate/own"
    place = {"region": "eu-west-1", "subnets": ["subnet-0123456789abcdef0"]}
    create_pool(
        {
            "name": "games",
            "provider": {"kind": "aws", "certificate": own, **place},
            "slots": {"ports": "30000-30009", "shared": True},
        }
    )
    assert ask("games", ports=[secure(own)]).state == "waiting"
    with pytest.raises(Invalid):
        ask("games", ports=[secure(own.replace("own", "other"))])


def test_certificate_that_is_not_listed_any_more_gets_no_traffic() -> None:
    pool = make_quay(certificates=["cert-1"])
    claim = ask("lb", ports=[secure("cert-1")])
    route(claim)
    work(pool)
    assert again(claim).is_ready and is_ready_for_long_poll(claim)
    update_pool("lb", {**config_of(pool), "certificates": ["cert-2"]})
    assert not is_ready_for_long_poll(claim)
    work(pool)
    assert set(targets().values()) == {None}
    ready = again(claim).conditions[-1]
    assert ready["is_failed"] and "does not list the certificate cert-1" in ready["reason"]


def test_claim_that_was_made_before_its_pool_gets_no_traffic_for_another_certificate() -> None:
    claim = ask("lb", ports=[secure("cert-of-the-shop")])
    assert claim.state == "waiting"
    make_quay(certificates=["cert-1"])
    serve()
    claim = again(claim)
    assert claim.state == "bound"
    route(claim)
    work(Pool.objects.get())
    assert set(targets().values()) == {None} and not again(claim).is_ready
