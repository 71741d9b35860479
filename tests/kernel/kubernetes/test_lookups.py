"""Name lookups: a silent name server blocks a call no longer than its limit and takes few
threads.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from project.kernel.kubernetes import dns, request
from project.kernel.kubernetes.dns import MAX_LOOKUPS, NameLookups, Target, is_address
from project.kernel.outbox.operations import ProviderError
from tests.kernel.kubernetes.slow_server import Begin, api, at_once
from tests.waiting import load

SOON = 30.0
NAME = "api.lab.example"
LOCAL = (socket.AF_INET, ("127.0.0.1", 443))


class Server:
    """Stands in for the system's resolver."""

    def __init__(self) -> None:
        self.asked = list[str]()
        self.answers = threading.Event()
        self.found: Callable[[str, int], list[str]] = lambda host, port: ["127.0.0.1"]
        self.system = socket.getaddrinfo

    def look_up(self, host: Any, port: Any, *more: Any, **named: Any) -> Any:
        if not str(host).endswith(".example"):
            return self.system(host, port, *more, **named)
        self.asked.append(host)
        assert self.answers.wait(SOON)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in self.found(host, port)
        ]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    monkeypatch.setattr(socket, "getaddrinfo", server.look_up)
    yield server
    server.answers.set()


def test_silent_name_server_times_out_after_its_limit(
    begin: Begin, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns, "PATIENCE", 0.2)
    begin(at_once, name=NAME)
    found = api()
    with pytest.raises(
        ProviderError,
        match=rf"not reachable .*Failed to resolve '{NAME}'.*no name server answers within 0.2 s",
    ):
        found.list_pods("a=b")
    server.answers.set()  # a late answer, which the next call uses
    assert found.list_pods("a=b") == []


def test_silent_name_server_ends_with_the_timeout_of_the_call(
    begin: Begin, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "TOTAL", 0.3)
    begin(at_once, name=NAME)
    found = api()
    with pytest.raises(ProviderError, match="not reachable|not complete after 0.3 s"):
        found.list_pods("a=b")


def test_lookups_of_one_name_are_shared_and_concurrent_names_are_limited(
    server: Server,
) -> None:
    names = NameLookups()
    for number in range(MAX_LOOKUPS):
        for _ in range(3):
            with pytest.raises(socket.gaierror, match="no name server answers within 0.001 s"):
                names.find(f"{number}.example", 443, 0.001)
    assert len(server.asked) == MAX_LOOKUPS
    asked = {f"look-up {number}.example" for number in range(MAX_LOOKUPS)}
    assert sorted(
        thread.name for thread in threading.enumerate() if thread.name in asked
    ) == sorted(asked), "one thread each"
    with pytest.raises(socket.gaierror, match="16 other names are being looked up"):
        names.find("one-more.example", 443, SOON)
    found = list[list[Target]]()
    waiting = threading.Thread(target=lambda: found.append(names.find("3.example", 443, SOON)))
    waiting.start()
    server.answers.set()
    waiting.join(SOON * load())
    assert found == [[LOCAL]]
    assert names.find("one-more.example", 443, SOON) == [LOCAL], "there is room again"


def test_lookup_whose_thread_does_not_start_blocks_no_later_one(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    names = NameLookups()
    server.answers.set()
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(threading.Thread, "start", refuse)
        names.find(NAME, 443, SOON)
    assert names.find(NAME, 443, SOON) == [LOCAL]


def test_unknown_host_name_is_reported(server: Server) -> None:
    def nobody(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    server.found = nobody
    server.answers.set()
    with pytest.raises(socket.gaierror, match="Name or service not known"):
        NameLookups().find("nobody.example", 443, SOON)


def test_first_of_several_addresses_that_accepts_is_used(begin: Begin, server: Server) -> None:
    server.found = lambda host, port: ["127.0.0.2", "127.0.0.1"]  # no server at the first address
    server.answers.set()
    slow = begin(at_once, name=NAME)
    assert api().list_pods("a=b") == []
    assert len(slow.asked) == 1


def test_certificate_is_verified_against_the_host_name(begin: Begin, server: Server) -> None:
    server.answers.set()
    begin(at_once, is_secure=True)
    assert api().list_pods("a=b") == [], "by the address that it vouches for"
    begin(at_once, is_secure=True, name=NAME)
    with pytest.raises(ProviderError, match=f"certificate.*{NAME}"):
        api().list_pods("a=b")


@pytest.mark.parametrize("host", ["10.0.0.1", "::1", "[::1]", "fe80::1%lo"])
def test_ip_address_needs_no_lookup(host: str, server: Server) -> None:
    assert is_address(host)
    ((_, target),) = NameLookups().find(host, 443, 0.0)
    assert str(target[0]).partition("%")[0] == host.strip("[]").partition("%")[0]
    assert target[1] == 443
    assert server.asked == []


def test_invalid_host_name_is_reported(begin: Begin) -> None:
    begin(at_once, name="a" * 64 + ".example")
    with pytest.raises(ProviderError, match="label empty or too long"):
        api().list_pods("a=b")
