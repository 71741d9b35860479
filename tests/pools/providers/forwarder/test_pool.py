"""A pool of forwarders in the database: members become ready, come back after a crash, and end."""

import json
import os
import signal
from pathlib import Path

import pytest

from claims.models import Claim
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Member, Pool
from pools.providers.forwarder import forwarder_folder
from pools.providers.forwarder.forwarder_folder import folder_of
from project.kernel.embedded import detached
from project.kernel.errors import Refused
from project.kernel.outbox.operations import perform_due
from slots.members.selectors import snapshot_of
from slots.members.services import remove_member
from slots.models import Slot
from slots.sync.watcher import observe_pool
from tests.claims.helpers import ask
from tests.pools.providers.forwarder.helpers import QUIET, TcpTarget, processes_in
from tests.slots.helpers import is_consistent, open_slots
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tables")]


def config(**options: object) -> dict[str, object]:
    return {
        "name": "doors",
        "provider": {"kind": "forwarder", **QUIET, **options},
        "slots": {"ports": "20000-20009", "protocols": ["tcp", "udp"], "quota": 20},
        "members": {"list": ["a"]},
    }


def make_pool() -> tuple[Pool, Member]:
    pool = create_pool(config())
    return pool, Member.objects.get(pool=pool)


def running(member: Member) -> int:
    found = snapshot_of(member.pk)
    assert found is not None
    process = detached.read(folder_of(*found))
    return process.pid if process is not None and detached.is_alive(process) else 0


def test_member_is_ready_once_its_forwarder_answers() -> None:
    pool, member = make_pool()
    assert (member.state, member.is_owned) == ("creating", True)
    perform_due("forwarder")
    observe_pool(pool)
    member.refresh_from_db()
    assert (member.state, member.external_id) == ("ready", f"doors-a.{member.pk}")
    assert open_slots(pool) == 20
    assert is_consistent()


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"drain": "7s"}, "drain", 7),
        ({"udp_idle": "8s"}, "udp_idle", 8),
        ({"proxy_protocol": "v2"}, "is_proxy", True),
        ({"limits": {"connections": 9}}, "connections", 9),
        ({"connect_timeout": "2s"}, "connect", 2),
    ],
)
def test_changed_options_reach_a_running_forwarder(
    options: dict[str, object], name: str, value: object
) -> None:
    pool, member = make_pool()
    perform_due("forwarder")
    observe_pool(pool)
    before = running(member)
    update_pool("doors", config(**options))
    assert perform_due("forwarder") == 1
    found = snapshot_of(member.pk)
    assert found is not None
    plan = json.loads((folder_of(*found) / "plan.json").read_text())
    assert plan["options"][name] == value
    assert running(member) == before


def test_crashed_forwarder_is_started_again() -> None:
    pool, member = make_pool()
    perform_due("forwarder")
    first = running(member)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not running(member))
    observe_pool(pool)
    member.refresh_from_db()
    assert (member.state, member.down_at) == ("ready", None)
    assert running(member) not in (0, first)
    assert is_consistent()


def test_member_is_offline_while_its_forwarder_cannot_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, member = make_pool()
    perform_due("forwarder")
    monkeypatch.setattr(forwarder_folder, "PROGRAM", "pools.providers.forwarder.no_such_program")
    os.kill(running(member), signal.SIGKILL)
    wait_until(lambda: not running(member))
    for _ in range(3):
        observe_pool(pool)
    member.refresh_from_db()
    assert (member.state, open_slots(pool)) == ("offline", 0)
    monkeypatch.undo()
    wait_until(lambda: is_back(pool, member))
    assert open_slots(pool) == 20


def is_back(pool: Pool, member: Member) -> bool:
    observe_pool(pool)
    member.refresh_from_db()
    return member.state == "ready"


def test_removed_member_takes_its_forwarder_along(home: Path) -> None:
    _, member = make_pool()
    perform_due("forwarder")
    assert processes_in(home) == [running(member)]
    remove_member(member_id=member.pk, reason="test")
    perform_due("forwarder")
    member.refresh_from_db()
    assert member.state == "gone"
    assert processes_in(home) == []


def test_observed_port_of_another_program_is_kept_in_its_slot() -> None:
    pool, member = make_pool()
    perform_due("forwarder")
    with TcpTarget(port=20_003):
        observe_pool(pool)
    found = Slot.objects.get(member=member, lane="tcp", number=20_003)
    assert found.observed["presence"] == "foreign"
    assert "Another program uses tcp" in str(found.observed["problem"])


@pytest.mark.parametrize("kind", ["tcp_ssl", "quic"])
def test_claim_that_needs_a_certificate_is_refused_at_its_port_and_holds_nothing(
    kind: str,
) -> None:
    make_pool()
    perform_due("forwarder")
    port = {"port": 443, "protocol": kind.upper(), "certificate": "cert-1"}
    with pytest.raises(Refused) as caught:
        ask("doors", ports=[{"port": 80, "protocol": "TCP"}, port])
    (fault,) = caught.value.fields
    assert (fault.field, caught.value.code) == ("ports[1]", "kind_not_offered")
    assert f"Pool doors serves no {kind}: a forwarder " in fault.message
    assert fault.way_out == "Use one of tcp, udp, tcp_udp."
    with pytest.raises(Refused, match=f"serves no {kind}"):
        ask("doors", kind=kind)
    assert not Claim.objects.exists()
    assert not Slot.objects.exclude(state="idle").exists()
