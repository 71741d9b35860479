"""The probe server of controllers and workers stays reachable beside silent connections."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest

from project.kernel.controllers import probe
from project.kernel.controllers.probe import Probe, ProbeServer
from project.kernel.embedded.process import free_port

PATIENCE = 20.0  # seconds; a test that waits so long has failed


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    # A client that sends a byte now and then is never silent for so long.
    monkeypatch.setattr(Probe, "timeout", None)
    server = ProbeServer(free_port(), lambda: "", lambda: "")
    yield server.server_address[1]
    server.close()


def test_silent_connections_make_room_for_probes(port: int) -> None:
    """Each has a thread and a descriptor of a process that needs them for its work: the oldest
    is closed.
    """
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
            for _ in range(probe.MOST_OPEN + 1)
        ]
        for each in silent:
            each.sendall(b"GET /hea")
        client = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        stack.callback(client.close)
        client.request("GET", "/healthz")
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (200, b"ok")
        assert silent[0].recv(1) == b"", "closed by the server"
