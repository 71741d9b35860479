"""Claims in pools of ports: segments, pre-created listeners, the last port."""

from typing import Any

import pytest

from claims.models import Claim
from pools.models import Pool
from project.kernel.errors import Refused
from tests.claims.helpers import again, ask, held, is_sound, let_go, make_pool, places, serve

pytestmark = pytest.mark.usefixtures("tables")


def make_ports(span: str = "30000-30099", **slots: Any) -> Pool:
    return make_pool("clb", slots={"ports": span, **slots})


def test_35_segments_of_1001_ports_fit_and_the_36th_claim_waits() -> None:
    make_ports("30000-65535", protocols=["tcp"], segment=1001)
    numbers = [ask("clb", kind="tcp").slots[0].number for _ in range(35)]
    assert numbers == list(range(30000, 64035, 1001))
    late = ask("clb", kind="tcp")
    assert late.state == "waiting" and late.wait is not None
    assert (late.wait.code, late.wait.text) == ("full", "All 35 tcp slots are taken: 35 held")


def test_port_65535_is_handed_out_and_none_follows_it() -> None:
    make_ports("65534-65535", shared=True)
    assert [ask("clb").slots[0].number for _ in range(2)] == [65534, 65535]
    assert ask("clb").state == "waiting"
    assert is_sound()


def test_26th_claim_of_25_precreated_listeners_waits_and_gets_no_other_port() -> None:
    make_ports(precreate={"tcp": 25, "udp": 25})
    claims = [ask("clb", kind="tcp") for _ in range(25)]
    late = ask("clb", kind="tcp")
    assert late.state == "waiting" and late.slots == [] and late.wait is not None
    assert late.wait.text == "All 25 tcp slots are taken: 25 held"
    assert serve() == 0
    assert places(ask("clb", kind="udp")) == [("m0", "udp", 30000)], "UDP has its own listeners"
    let_go(claims[7])
    assert serve() == 1
    assert places(again(late)) == [("m0", "tcp", 30007)]


@pytest.mark.parametrize(
    ("slots", "kind"),
    [
        ({"protocols": ["tcp"]}, "udp"),
        ({"protocols": ["tcp"]}, "tcp_udp"),
        ({"precreate": {"tcp": 3}, "protocols": ["tcp", "udp"]}, "udp"),
        ({"precreate": {"tcp": 3, "udp": 3}}, "tcp_ssl"),
        ({"precreate": {"tcp": 3, "udp": 3}}, "quic"),
        ({"precreate": {"tcp": 3, "udp": 3}, "shared": True}, "tcp_udp"),
        ({"precreate": {"tcp": 3, "udp": 3}, "shared": True}, "port"),
    ],
)
def test_protocol_without_listeners_is_refused_and_holds_nothing(
    slots: dict[str, Any], kind: str
) -> None:
    make_ports(**slots)
    with pytest.raises(Refused) as caught:
        ask("clb", kind=kind)
    assert caught.value.code == "kind_not_offered"
    assert not Claim.objects.exists()


@pytest.mark.parametrize("slots", [{"protocols": ["tcp"]}, {"precreate": {"tcp": 25}}])
def test_claim_of_several_ports_is_refused_for_one_that_no_listener_serves(
    slots: dict[str, Any],
) -> None:
    make_ports(**slots)
    with pytest.raises(Refused) as caught:
        ask("clb", ports="80/TCP,53/UDP")
    assert [fault.field for fault in caught.value.fields] == ["ports[1]"]
    assert not Claim.objects.exists()
    assert held() == 0


def test_precreated_listeners_of_both_protocols_have_numbers_of_their_own_where_shared() -> None:
    make_ports(precreate={"tcp": 1, "udp": 1}, shared=True)
    assert places(ask("clb", kind="udp")) == [("m0", "udp", 30001)]
    assert places(ask("clb", kind="tcp")) == [("m0", "tcp", 30000)]
