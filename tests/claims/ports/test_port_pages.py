"""The ports of a claim on its page, and the dialog that sets their backend."""

from typing import Any

import pytest

from tests.claims.helpers import again, ask, make_pool
from tests.claims.ports.quay import PROVIDERS, Quay, QuayProvider, make_quay, work
from tests.dashboard.helpers import chief
from tests.dashboard.plain_browser import DIALOG, browser_of, get, off, post

pytestmark = pytest.mark.usefixtures("committed_tables")


@pytest.fixture(autouse=True)
def _world(settings: Any) -> None:
    settings.BERTH_PROVIDERS = PROVIDERS
    QuayProvider.world = Quay()


def test_page_shows_addresses_to_copy_and_why_a_port_is_not_ready() -> None:
    make_quay()
    claim = ask("lb", ports="80/TCP,53/UDP")
    work()
    html = get(browser_of(chief()), f"/claims/{claim.id}/")
    assert "no backend is set" in html
    assert '<code>lb0.lb.example:30000</code> <button type="button" class="lnk" data-copy' in html
    assert "80/TCP on lb0 30000: No backend is set, and 1 more" in html
    assert off(html, "Backend…") is None
    waiting = ask("lb", ports=",".join(f"{n}/TCP" for n in range(1, 11)))
    html = get(browser_of(chief()), f"/claims/{waiting.id}/")
    assert off(html, "Backend…") == "The claim holds no slot yet. Cancel it instead."


def test_dialog_sets_replaces_and_removes_the_backend() -> None:
    make_quay()
    claim = ask("lb", ports="80/TCP,53/UDP")
    client, path = browser_of(chief()), f"/claims/{claim.id}/backend/"
    assert "One for each of 80/TCP, 53/UDP. Empty: these ports." in get(client, path, **DIALOG)
    assert post(client, path, ip="10.0.0.7", ports="").status_code == 204
    assert again(claim).backend == {"ip": "10.0.0.7", "ports": [80, 53]}
    assert post(client, path, ip="10.0.0.8", ports="8080, 5353").status_code == 204
    assert again(claim).backend == {"ip": "10.0.0.8", "ports": [8080, 5353]}
    for given, fault in [
        ({"ip": "127.0.0.1", "ports": ""}, "is a loopback address"),
        ({"ip": "10.0.0", "ports": ""}, "is not an IP address"),
        ({"ip": "10.0.0.7", "ports": "80 x"}, "x is not a port"),
        ({"ip": "10.0.0.7", "ports": "1 2 3"}, "The claim has 2 ports, and 3 are given"),
    ]:
        answer = post(client, path, **given)
        assert answer.status_code == 422
        assert fault in answer.content.decode()
    assert again(claim).backend == {"ip": "10.0.0.8", "ports": [8080, 5353]}
    assert post(client, path, ip="", ports="").status_code == 204
    assert again(claim).backend is None


def test_dialog_of_a_claim_without_ports_has_no_button() -> None:
    make_pool("lab")
    claim = ask("lab")
    assert "The claim holds no ports." in get(
        browser_of(chief()), f"/claims/{claim.id}/backend/", **DIALOG
    )
