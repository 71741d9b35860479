"""Forwarders as processes: started once, changed while they run, found again, and ended."""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pools.providers.base import PortTarget, PortUse, Seen
from pools.providers.forwarder import forwarder_folder
from pools.providers.forwarder.control_client import ask
from pools.providers.forwarder.member_plan import plan_member
from pools.providers.forwarder.process.plan import write_plan
from pools.providers.forwarder.provider import ForwarderProvider
from pools.providers.member_folders import start_lock
from project.kernel.embedded import detached
from project.kernel.outbox.operations import ConflictError, ProviderError
from tests.pools.providers.forwarder.helpers import (
    LOCALHOST,
    QUIET,
    TcpTarget,
    UdpTarget,
    ask_tcp,
    call,
    counts_of,
    exchange,
    folder,
    free_ports,
    is_refused,
    is_reset,
    member,
    places,
    pool,
    process_id,
    processes_in,
    slot,
    start,
    state_of,
    sync,
    udp_client,
)
from tests.waiting import wait_until

DRAINS = QUIET | {"drain": "1h"}
SHORT = QUIET | {"drain": "1s"}


def look(state: str = "ready", **more: Any) -> Seen:
    (seen,) = ForwarderProvider().look(pool(member(state), **more)).seen
    return seen


def kill() -> None:
    pid = process_id()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not process_id())


def restart(*slots: Any, incarnation: int = 2) -> None:
    made = member("creating", *slots, incarnation=incarnation)
    assert ForwarderProvider().sync(pool(made), made).is_ready


def test_forwarder_runs_in_its_own_session_with_private_files() -> None:
    report = start()
    pid = process_id()
    assert os.getsid(pid) == pid
    assert report.external_id == folder().name
    assert report.addresses[0] == LOCALHOST
    for path, mode in ((folder().parent, 0o700), (folder(), 0o700), (folder() / "control", 0o600),
                       (folder() / "plan.json", 0o600)):  # fmt: skip
        assert stat.S_IMODE(path.stat().st_mode) == mode, path


def test_forwarder_gets_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("SECRET_KEY", "secret")
    start()
    environment = Path(f"/proc/{process_id()}/environ").read_bytes()
    assert b"secret" not in environment
    assert b"PATH=" in environment


def test_second_start_keeps_the_process() -> None:
    start()
    pid = process_id()
    start()
    assert process_id() == pid


def test_concurrent_start_is_refused(home: Path) -> None:
    folder().mkdir(parents=True)
    with start_lock(folder()), pytest.raises(ConflictError):
        start()
    assert processes_in(home) == []


def test_look_waits_while_another_worker_starts_the_forwarder() -> None:
    start()
    kill()
    with start_lock(folder()):
        seen = look()
        assert (seen.is_ready, seen.is_down) == (False, False)
        assert seen.why == "another worker is starting its forwarder"
    assert look().is_ready


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try as another user")
def test_other_users_cannot_reach_the_control_socket(home: Path) -> None:
    start()
    for folder_above in (home, *home.parents):  # those of the test run are closed to others
        if not folder_above.stat().st_mode & 0o001:
            folder_above.chmod(0o711)
    done = subprocess.run(
        ["/usr/bin/stat", str(home), str(folder() / "control")],
        user="nobody",
        capture_output=True,
        text=True,
        cwd="/",
        env={"LC_ALL": "C"},
    )
    assert f"File: {home}" in done.stdout
    assert done.stderr.endswith("Permission denied\n")


def test_second_process_in_a_folder_ends_at_once(home: Path) -> None:
    start()
    first = process_id()
    second = forwarder_folder.start_process(folder(), 2)
    wait_until(lambda: not detached.is_alive(second))
    assert processes_in(home) == [first]


def test_process_without_its_record_is_found_again(home: Path) -> None:
    start()
    pid = process_id()
    (folder() / detached.RECORD).unlink()
    assert look().is_ready
    assert process_id() == pid
    assert processes_in(home) == [pid]


def test_look_starts_a_killed_forwarder_again_and_its_ports_serve(home: Path) -> None:
    port = free_ports()
    with TcpTarget("a") as target:
        start(slot(port, target.at))
        kill()
        assert is_refused(port)
        # The look knows no slots: the plan is in the folder.
        seen = look()
        assert (seen.is_ready, seen.is_down) == (True, False)
        assert ask_tcp(port) == b"ahello"
        assert places(sync(slot(port, target.at))) == [("tcp", port)]
    assert processes_in(home) == [process_id()]


def test_sync_starts_a_killed_forwarder_with_the_listeners_of_its_rows(home: Path) -> None:
    port = free_ports(2)
    with TcpTarget("a") as target:
        start(slot(port, target.at))
        kill()
        report = sync(slot(port + 1, target.at))
        assert (report.is_ready, places(report)) == (True, [("tcp", port + 1)])
        assert ask_tcp(port + 1) == b"ahello"
        assert is_refused(port)
    assert processes_in(home) == [process_id()]


def test_forwarder_that_ends_again_and_again_waits_longer_before_each_start(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = slot(free_ports(), state="draining")
    start()
    for _ in range(2):
        kill()
        wait_until(lambda: look().is_ready)
    kill()
    seen = look()
    assert (seen.is_down, processes_in(home)) == (True, [])
    assert seen.why.startswith("its process has ended 3 times in a short time; see ")
    report = sync(released)
    assert (report.down, report.clean) == ("its process has ended", {released.id})
    assert report.again is not None and 0 < report.again <= 5.1
    monkeypatch.setattr(forwarder_folder, "PAUSES", (0.0,))
    assert look().is_ready


def test_forwarder_without_its_folder_is_down_until_the_next_sync(home: Path) -> None:
    port = free_ports()
    start(slot(port))
    shutil.rmtree(folder())
    wait_until(lambda: not processes_in(home))
    seen = look()
    assert (seen.is_down, seen.why) == (
        True, "the folder of its forwarder is gone: restart the member"
    )  # fmt: skip
    assert processes_in(home) == []
    assert places(sync(slot(port))) == [("tcp", port)]
    assert look().is_ready


def test_next_incarnation_replaces_the_process(home: Path) -> None:
    start()
    first = process_id()
    restart()
    assert processes_in(home) == [process_id()] != [first]


def test_delayed_worker_does_not_replace_a_later_incarnation() -> None:
    restart(incarnation=2)
    pid = process_id()
    with pytest.raises(ConflictError, match="Incarnation 2"):
        start()
    with pytest.raises(ConflictError, match="Incarnation 2"):
        sync()
    with pytest.raises(ConflictError, match="incarnation 2"):
        ask(folder(), {"do": "apply", "plan": write_plan(plan_member(pool(), member(), ["::1"]))})
    assert process_id() == pid


def test_member_of_a_restored_database_replaces_its_later_incarnation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restart(incarnation=2)
    later = process_id()
    monkeypatch.setattr(forwarder_folder, "RECENT", 0.0)
    start()
    assert process_id() not in (0, later)


def test_delayed_worker_does_not_undo_a_later_change() -> None:
    port = free_ports()
    with TcpTarget("new") as target:
        start(slot(port, (LOCALHOST, 9), generation=5))
        sync(slot(port, state="draining", generation=5))
        with pytest.raises(ConflictError, match="generation 5"):
            sync(slot(port, (LOCALHOST, 9), generation=5))
        sync(slot(port, target.at, generation=6))
        with pytest.raises(ConflictError, match="generation 6"):
            sync(slot(port, state="draining", generation=5))
        assert ask_tcp(port) == b"newhello"


@pytest.mark.parametrize("ending", ["sigterm", "reboot"])
def test_forwarder_is_started_again_after_a_planned_end(ending: str) -> None:
    start()
    process = detached.read(folder())
    assert process is not None
    if ending == "reboot":
        kill()
        detached.adopt(folder(), replace(process, boot="another"))
        assert forwarder_folder.why_ended(folder(), detached.read(folder())) == (
            "the machine was restarted"
        )
    else:
        os.kill(process.pid, signal.SIGTERM)
        wait_until(lambda: not process_id())
        assert forwarder_folder.why_ended(folder(), process) == "it was asked to end"
    assert look().is_ready
    assert process_id() not in (0, process.pid)


def test_forwarder_that_was_asked_to_end_often_starts_without_a_pause() -> None:
    start()
    for _ in range(3):
        os.kill(process_id(), signal.SIGTERM)
        wait_until(lambda: not process_id())
        assert look().is_ready


def test_folder_says_whether_the_forwarder_stops_with_berth() -> None:
    start(options=QUIET | {"stop_with_berth": True})
    mark = folder() / detached.STOPS_WITH_BERTH
    assert mark.exists()
    look()
    assert not mark.exists(), "a change of the option reaches a running forwarder"
    sync(options=QUIET | {"stop_with_berth": True})
    assert mark.exists()


def test_reused_process_id_is_never_killed() -> None:
    start()
    process = detached.read(folder())
    assert process is not None
    kill()
    detached.adopt(folder(), replace(process, pid=os.getpid(), started="1"))
    assert not look("creating").is_ready
    forwarder_folder.remove(folder())  # and this process lives on
    assert not folder().exists()


def test_stuck_forwarder_is_not_ready_and_later_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pools.providers.forwarder.provider.LOOK", 0.2)
    monkeypatch.setattr(forwarder_folder, "PATIENCE", 0.2)
    start()
    stuck = process_id()
    os.kill(stuck, signal.SIGSTOP)
    seen = look()
    assert (seen.is_ready, seen.is_down) == (False, False)
    monkeypatch.setattr(forwarder_folder, "SILENT", 0.0)
    look()
    monkeypatch.undo()
    assert wait_until(lambda: look().is_ready)
    assert process_id() != stuck
    assert not detached.start_time(stuck)


def test_deleted_member_leaves_no_process_and_no_folder(home: Path) -> None:
    port = free_ports()
    start(slot(port))
    for _ in range(2):
        gone = member("deleting")
        assert ForwarderProvider().sync(pool(gone), gone).is_gone
    assert processes_in(home) == []
    assert not folder().exists()
    assert is_refused(port)
    assert ForwarderProvider().look(pool(member("deleting"))).seen == ()


def test_deleted_member_waits_for_its_connections() -> None:
    port, gone = free_ports(), member("deleting")
    with TcpTarget("a") as target:
        start(slot(port, target.at), options=DRAINS)
        with call(LOCALHOST, port) as client:
            wait_until(lambda: counts_of(port)["connections"] == 1)
            report = ForwarderProvider().sync(pool(gone, options=DRAINS), gone)
            assert (report.is_gone, report.why) == (False, "1 connections are ending")
            assert exchange(client, b"x") == b"ax"
        wait_until(lambda: ForwarderProvider().sync(pool(gone, options=DRAINS), gone).is_gone)


def test_strays_are_processes_of_gone_members(home: Path) -> None:
    start()
    made = member("creating", number=2)
    ForwarderProvider().sync(pool(made), made)
    found = ForwarderProvider().look(pool(member()))
    assert found.strays == {2: "forwarder doors-m2.2"}
    ForwarderProvider().remove_strays(pool(member()), [2])
    assert processes_in(home) == [process_id()]
    assert ForwarderProvider().look(pool(member())).strays == {}


def test_stray_forwarder_is_taken_over_by_a_new_member_of_its_name_and_id(home: Path) -> None:
    port = free_ports()
    start(slot(port))
    lost = member("creating", number=2)
    ForwarderProvider().sync(pool(lost), lost)
    ((number, stray),) = ForwarderProvider().look(pool(member())).strays.items()
    name = ForwarderProvider.name_adopted("doors", stray, number)
    assert (number, name) == (2, "m2")
    before = processes_in(home)
    adopted = replace(member("creating", number=2), name="m2")
    assert ForwarderProvider().sync(pool(adopted), adopted).is_ready
    assert processes_in(home) == before
    assert ForwarderProvider.name_adopted("doors", "listener tcp 30001", 2) is None


def test_folder_of_another_pool_is_no_stray() -> None:
    start()
    assert ForwarderProvider().look(replace(pool(), id=8)).strays == {}


def test_change_of_a_target_keeps_the_port_and_all_other_connections() -> None:
    port = free_ports(2)
    with TcpTarget("a") as old, TcpTarget("b") as new:
        start(slot(port, old.at), slot(port + 1, old.at), options=SHORT)
        with call(LOCALHOST, port) as moved, call(LOCALHOST, port + 1) as other:
            wait_until(lambda: state_of()["used"] == 2)
            sync(slot(port, new.at), slot(port + 1, old.at), options=SHORT)
            assert ask_tcp(port) == b"bhello"
            with pytest.raises(ConnectionResetError):  # after the drain, not before
                moved.recv(1)
            assert exchange(other, b"x") == b"ax"


def test_connection_to_an_earlier_target_may_end_within_the_drain() -> None:
    port = free_ports()
    with TcpTarget("a") as old:
        start(slot(port, old.at), options=DRAINS)
        with call(LOCALHOST, port) as client:
            wait_until(lambda: state_of()["used"] == 1)
            sync(slot(port), options=DRAINS)
            assert counts_of(port)["leaving"] == 1
            assert exchange(client, b"x") == b"ax"


def test_released_port_is_clean_once_its_connections_have_ended() -> None:
    port, released = free_ports(), {"state": "draining"}
    with TcpTarget("a") as target:
        start(slot(port, target.at), options=DRAINS)
        with call(LOCALHOST, port) as client:
            wait_until(lambda: state_of()["used"] == 1)
            report = sync(slot(port, **released), options=DRAINS)
            assert (report.clean, report.again) == (frozenset(), 1.0)
            assert report.slots is not None
            assert [each.attributes["health"] for each in report.slots] == ["draining"]
            assert is_refused(port)
            assert exchange(client, b"x") == b"ax"
        done = slot(port, **released)
        wait_until(lambda: sync(done, options=DRAINS).clean == {done.id})
    assert places(sync(done, options=DRAINS)) == []


def test_overdue_port_is_emptied_at_once() -> None:
    port = free_ports()
    with TcpTarget("a") as target, UdpTarget("u") as datagrams:
        start(slot(port, target.at), slot(port, datagrams.at, lane="udp"), options=DRAINS)
        with call(LOCALHOST, port) as client, udp_client(LOCALHOST, port) as sender:
            sender.send(b"x")
            assert sender.recv(10) == b"ux"
            wait_until(lambda: state_of()["used"] == 2)
            released = [slot(port, state="draining", lane=lane) for lane in ("tcp", "udp")]
            assert sync(*released, options=DRAINS).clean == frozenset()
            late = [replace(each, is_overdue=True) for each in released]
            with pytest.raises(ConnectionResetError):
                sync(*late, options=DRAINS)
                client.recv(1)
            wait_until(lambda: sync(*late, options=DRAINS).clean == {each.id for each in late})


def test_udp_flows_go_on_while_their_port_drains() -> None:
    port = free_ports()
    with UdpTarget("a") as target, udp_client(LOCALHOST, port) as client:
        start(slot(port, target.at, lane="udp"), options=SHORT)
        client.send(b"1")
        assert client.recv(10) == b"a1"
        released = slot(port, lane="udp", state="draining")
        assert sync(released, options=SHORT).clean == frozenset()
        client.send(b"2")
        assert client.recv(10) == b"a2"
        wait_until(lambda: sync(released, options=SHORT).clean == {released.id})


def test_slot_whose_use_is_unknown_keeps_what_it_has() -> None:
    port = free_ports(2)
    with TcpTarget("a") as target:
        start(slot(port, target.at))
        report = sync(slot(port, is_known=False), slot(port + 1, is_known=False))
        assert places(report) == [("tcp", port)]
        assert ask_tcp(port) == b"ahello"
        kill()
        restart(slot(port, is_known=False))
        assert ask_tcp(port) == b"ahello"


def test_precreated_listeners_exist_without_claims_and_lose_only_targets() -> None:
    port = free_ports(2)
    kept = {"is_precreated": True}
    with TcpTarget("a") as target:
        report = start(slot(port, target.at), slot(port + 1, state="idle"), **kept)
        assert places(report) == [("tcp", port), ("tcp", port + 1)]
        released = slot(port, state="draining")
        report = sync(released, slot(port + 1, state="idle"), **kept)
        assert places(report) == [("tcp", port), ("tcp", port + 1)]
        assert is_reset(port)
        wait_until(lambda: sync(released, **kept).clean == {released.id})
        with pytest.raises(ConflictError):
            sync(slot(port, target.at), **kept)
        assert places(sync(slot(port, state="retired"), **kept)) == []


@pytest.mark.parametrize(("lane", "protocol"), [("tcp", "tcp_ssl"), ("udp", "quic")])
def test_protocol_that_a_forwarder_does_not_serve_is_a_problem_of_its_slot(
    lane: str, protocol: str
) -> None:
    port = free_ports(2)
    with TcpTarget("a") as target:
        report = start(
            slot(port, target.at, lane=lane, protocol=protocol), slot(port + 1, target.at)
        )
        assert ask_tcp(port + 1) == b"ahello"
    assert report.slots is not None
    faults = {each.number: each.attributes.get("problem", "") for each in report.slots}
    assert f"does not serve {protocol}" in str(faults[port])
    assert faults[port + 1] == ""


@pytest.mark.parametrize("ip", ["0.0.0.0", "::", "224.0.0.1", "fe80::1%lo", "example.com"])
def test_target_that_is_no_machine_is_a_problem_of_its_slot(ip: str) -> None:
    port = free_ports()
    bad = replace(slot(port), use=PortUse("tcp", PortTarget(ip, 80)))
    report = start(bad)
    assert report.slots is not None
    assert "target" in str(report.slots[0].attributes["problem"])
    assert is_refused(port)


def test_port_of_another_program_is_foreign_until_that_program_ends() -> None:
    port = free_ports(2)
    with TcpTarget("a") as target:
        with socket.create_server((LOCALHOST, port)) as theirs:
            report = start(slot(port, target.at), slot(port + 1, target.at))
            assert report.slots is not None
            taken, own = report.slots
            assert (taken.is_foreign, own.is_foreign) == (True, False)
            assert taken.attributes["problem"] == f"Another program uses tcp 127.0.0.1:{port}."
            assert ask_tcp(port + 1) == b"ahello"
            assert look().slots == report.slots
            assert theirs.fileno() >= 0
        wait_until(lambda: not any(each.is_foreign for each in look().slots or ()))
        assert ask_tcp(port) == b"ahello"


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_port_of_another_program_is_reported_before_a_claim_wants_it(kind: int) -> None:
    port = free_ports(9)
    start()
    with socket.socket(socket.AF_INET, kind) as theirs:
        theirs.bind((LOCALHOST, port + 4))
        if kind == socket.SOCK_STREAM:
            theirs.listen()
        found = look(ports=(port, port + 8), segment=3).slots
    lane = "tcp" if kind == socket.SOCK_STREAM else "udp"
    assert found is not None
    assert [(each.lane, each.number, each.is_foreign) for each in found] == [(lane, port + 3, True)]


def test_own_ports_are_not_foreign() -> None:
    port = free_ports(4)
    with UdpTarget("a") as target, udp_client(LOCALHOST, port) as client:
        held = slot(port, target.at, lane="udp")
        start(held, slot(port + 1), ports=(port, port + 3))
        client.send(b"x")
        client.recv(10)
        found = look(ports=(port, port + 3)).slots
    assert found is not None
    assert not any(each.is_foreign for each in found)
    assert len(found) == 2


def test_listener_that_a_sync_opens_during_a_look_is_not_foreign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_ports(2)
    ports = (port, port + 1)
    start(slot(port), ports=ports)

    def ask_then_sync(place: Path, request: Mapping[str, object], *more: Any) -> Any:
        answer = ask(place, request, *more)
        if request["do"] == "describe":
            sync(slot(port), slot(port + 1), ports=ports)
        return answer

    monkeypatch.setattr("pools.providers.forwarder.provider.ask", ask_then_sync)
    found = look(ports=ports).slots
    assert found is not None
    assert [(each.number, each.is_foreign) for each in found] == [(port, False)]
    assert counts_of(port + 1)["connections"] == 0


def test_changed_options_of_the_pool_reach_running_forwarders() -> None:
    port = free_ports()
    with TcpTarget() as target:
        start(slot(port, target.at))
        pid = process_id()
        look(options=QUIET | {"proxy_protocol": "v2"})
        ask_tcp(port)
        assert target.received[0].startswith(b"\r\n\r\n\x00\r\nQUIT\n")
    assert process_id() == pid
    kept = json.loads((folder() / "plan.json").read_text())
    assert kept["options"]["is_proxy"] is True


def test_full_disk_changes_no_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_ports(2)
    start(slot(port))
    (folder() / "plan.json.new").mkdir()
    with pytest.raises(ProviderError, match="cannot save"):
        sync(slot(port), slot(port + 1))
    assert is_refused(port + 1)
    (folder() / "plan.json.new").rmdir()
    assert places(sync(slot(port), slot(port + 1))) == [("tcp", port), ("tcp", port + 1)]


def test_unknown_request_is_refused_and_changes_nothing() -> None:
    port = free_ports()
    start(slot(port))
    for request in ({"do": "halt"}, {"do": "apply", "plan": {"incarnation": 1}}, {}):
        with pytest.raises(ProviderError, match="does not understand"):
            ask(folder(), request)
    assert counts_of(port)["connections"] == 0


def test_plan_of_a_segment_beyond_the_last_port_is_refused() -> None:
    start()
    plan = plan_member(pool(segment=2), member("ready", slot(65535)), [LOCALHOST])
    with pytest.raises(ProviderError, match="count"):
        ask(folder(), {"do": "apply", "plan": write_plan(plan)})
