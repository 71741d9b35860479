"""Claims of ports on load balancers of AWS: services, rows, operations and the strict server."""

from collections.abc import Callable
from typing import Any

import pytest

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.release import release_claim
from claims.models import Claim
from claims.ports.backends import BackendRequest, set_backend
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.errors import Refused
from project.kernel.models import Event, Operation
from project.kernel.outbox.operations import perform_due
from slots.members.chores import finish_leaving_members
from slots.members.services import remove_member
from slots.models import Slot
from slots.sync.watcher import observe_pool
from tests.claims.helpers import again, ask
from tests.pools.providers.aws.conftest import cloud, scene
from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.harness import (
    SUBNETS,
    name_endpoints,
    put_balancer,
    put_foreign_listener,
)
from tests.pools.providers.aws.scene import CERTIFICATE, AwsScene
from tests.waiting import wait_until

__all__ = ["cloud", "scene"]  # fixtures

pytestmark = pytest.mark.usefixtures("committed_tables")


def make_games(scene: AwsScene, *members: object, **slots: object) -> Member:
    """The ready member of an active pool."""
    place = {"region": scene.cloud.region, **name_endpoints(scene.address)}
    pool = create_pool(
        {
            "name": "games",
            "provider": {"kind": "aws", "subnets": SUBNETS, **place},
            "slots": {"ports": "30000-30049", "shared": True, **slots},
            "members": {"max": 3, "list": list(members)},
            "certificates": [CERTIFICATE],
            "backends": {"networks": ["10.0.0.0/16"], "ports": "1-65535"},
        }
    )
    perform_until(lambda: Member.objects.filter(state="ready").exists())
    observe_pool(pool)
    return Member.objects.get()


def perform_until(read: Callable[[], object]) -> None:
    def step() -> object:
        Operation.objects.update(due_at="2020-01-01T00:00:00Z")
        perform_due("aws")
        return read()

    wait_until(step, lambda: list(Operation.objects.values("error", "attempts")))


def claim_with_backend(*, port: int | None = None, **body: Any) -> ClaimView:
    claim = ask("games", **body)
    backend = BackendRequest("10.0.1.7", port=port)
    return set_backend(claim_id=claim.id, generation=claim.generation, backend=backend)


def is_ready(claim: ClaimView) -> bool:
    return all(each["is_met"] for each in again(claim).conditions)


def our_ports(cloud: Cloud, arn: str, foreign: set[str]) -> set[tuple[int, str]]:
    return {
        (each.port, each.protocol)
        for name, each in cloud.listeners.items()
        if each.balancer == arn and name not in foreign
    }


def leave(member: Member) -> None:
    remove_member(member_id=member.pk, reason="the user wants it back")

    def is_gone() -> bool:
        finish_leaving_members()
        return Member.objects.filter(pk=member.pk, state="gone").exists()

    perform_until(is_gone)


def test_claim_of_three_ports_is_served_on_a_created_load_balancer(
    scene: AwsScene, cloud: Cloud
) -> None:
    member = make_games(scene, "one")
    claim = claim_with_backend(ports="80/TCP,9999/UDP,7777/TCPUDP")
    held = {(30000, "TCP"), (30001, "UDP"), (30002, "TCP_UDP")}
    perform_until(lambda: our_ports(cloud, member.external_id, set()) == held)
    targets = {
        (each.port, target)
        for each in cloud.listeners.values()
        for target in cloud.groups[each.group].targets
    }
    assert targets == {
        (30000, ("10.0.1.7", 80)),
        (30001, ("10.0.1.7", 9999)),
        (30002, ("10.0.1.7", 7777)),
    }
    release_claim(claim_id=claim.id, generation=claim.generation)
    perform_until(lambda: not Slot.objects.filter(state__in=("held", "draining")).exists())
    assert our_ports(cloud, member.external_id, set()) == set()
    assert cloud.groups == {}


def test_member_on_a_load_balancer_of_the_user_leaves_only_what_it_found(
    scene: AwsScene, cloud: Cloud
) -> None:
    arn = put_balancer(cloud, "users")
    foreign = {put_foreign_listener(cloud, arn, 443)}
    before = cloud.outside()
    member = make_games(scene, {"name": "one", "external_id": arn})
    assert not member.is_owned
    claim = claim_with_backend(ports="80/TCP")
    perform_until(lambda: our_ports(cloud, arn, foreign) == {(30000, "TCP")})
    release_claim(claim_id=claim.id, generation=claim.generation)
    leave(member)
    assert cloud.outside() == before


def test_member_takes_its_precreated_listeners_along(scene: AwsScene, cloud: Cloud) -> None:
    arn = put_balancer(cloud, "users")
    before = cloud.outside()
    member = make_games(scene, {"name": "one", "external_id": arn}, precreate={"tcp": 1, "udp": 1})
    perform_until(lambda: our_ports(cloud, arn, set()) == {(30000, "TCP"), (30001, "UDP")})
    leave(member)
    assert cloud.outside() == before


def test_claim_of_a_precreated_listener_becomes_ready_and_sees_a_foreign_one(
    scene: AwsScene, cloud: Cloud
) -> None:
    """The slots have a lane for each protocol, and the load balancer a listener for each number."""
    member = make_games(scene, "one", precreate={"tcp": 1, "udp": 1})
    claim = claim_with_backend(kind="udp", port=9999)
    perform_until(lambda: is_ready(claim))
    (listener,) = (each for each in cloud.listeners.values() if each.protocol == "UDP")
    del cloud.listeners[listener.arn]
    put_foreign_listener(cloud, member.external_id, listener.port)
    observe_pool(member.pool)
    assert not is_ready(claim)
    assert Slot.objects.get(lane="udp").observed["presence"] == "foreign"


def test_quic_is_refused_at_its_port_and_holds_nothing(scene: AwsScene) -> None:
    make_games(scene, "one")
    quic = {"port": 443, "protocol": "QUIC", "certificate": CERTIFICATE}
    with pytest.raises(Refused) as caught:
        ask("games", ports=[{"port": 80, "protocol": "TCP"}, quic])
    (fault,) = caught.value.fields
    assert (fault.field, caught.value.code) == ("ports[1]", "kind_not_offered")
    assert "Pool games serves no quic: a network load balancer" in fault.message
    assert "quic" not in fault.way_out
    with pytest.raises(Refused, match="serves no quic"):
        ask("games", kind="quic")
    assert not Claim.objects.exists()
    assert not Slot.objects.exclude(state="idle").exists()


def test_claim_that_aws_refuses_fails_alone(scene: AwsScene, cloud: Cloud) -> None:
    """Red while an unknown code ended each sync: no later claim got a listener."""
    make_games(scene, "one")
    cloud.unsupported.add(CERTIFICATE)
    tls = {"port": 443, "protocol": "TCP_SSL", "certificate": CERTIFICATE}
    bad, good = claim_with_backend(ports=[tls]), claim_with_backend(ports="80/TCP")
    perform_until(lambda: is_ready(good))
    programmed = again(bad).conditions[1]
    assert programmed["is_failed"]
    assert programmed["reason"] == (
        "443/TCP_SSL on one 30000: AWS refuses CreateListener (UnsupportedCertificate): The "
        "certificate must be issued, and have a supported signature and key size. Use a "
        "certificate that is issued and whose key AWS supports."
    )
    observe_pool(Pool.objects.get())
    assert again(bad).conditions[1]["reason"] == programmed["reason"], "a look sees less"
    cloud.unsupported.clear()
    perform_until(lambda: is_ready(bad))  # by the sync that the provider has asked for


def test_failing_port_shows_its_reason_and_delays_no_other(scene: AwsScene, cloud: Cloud) -> None:
    """Red while the failure was raised without the ports that the sync had seen: the failing port
    was being created for ever, and the other waited for the next look.
    """
    member = make_games(scene, "one")
    code = "TooManyTargetGroups"
    cloud.fail(code, action="CreateTargetGroup", port=30000, times=99)
    bad, good = claim_with_backend(ports="80/TCP"), claim_with_backend(ports="81/TCP")
    perform_until(lambda: is_ready(good))
    for look in (False, True, False, True):
        if look:
            observe_pool(member.pool)
        else:
            perform_until(lambda: True)
        member.refresh_from_db()
        assert code in member.outside
        programmed = again(bad).conditions[1]
        assert programmed["is_failed"]
        assert code in programmed["reason"]
        assert is_ready(good)
    assert Operation.objects.filter(done_at=None, error_code="quota").exists()
    assert Event.objects.filter(verb="sync_fails").count() == 1
    cloud.heal()
    perform_until(lambda: is_ready(bad))
    member.refresh_from_db()
    assert member.outside == ""


def test_port_becomes_ready_by_itself_once_its_target_is_healthy(
    scene: AwsScene, cloud: Cloud
) -> None:
    """The provider asks to come back, without a look and without a draining slot."""
    make_games(scene, "one")
    cloud.initial = 0.3
    claim_with_backend(ports="80/TCP")
    perform_until(lambda: Slot.objects.filter(observed__health="initial").exists())
    perform_until(lambda: Slot.objects.filter(observed__health="healthy").exists())
