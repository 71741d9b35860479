"""The proxy that cuts networks in the campaign of faults."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from project.kernel.embedded.process import free_port
from tests.faults.tcp_proxy import PASS, RESET, STALL, TcpProxy
from tests.waiting import wait_until

BLOCK = 100


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def answer(client: socket.socket) -> None:
        with suppress(OSError), client:
            while piece := client.recv(BLOCK):
                client.sendall(piece)

    def listen() -> None:
        with suppress(OSError):  # closed
            while True:
                threads.append(threading.Thread(target=answer, args=(listener.accept()[0],)))
                threads[-1].start()

    threads.append(threading.Thread(target=listen))
    threads[0].start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for thread in threads:
        thread.join(10)


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[TcpProxy]:
    proxy = TcpProxy(("127.0.0.1", free_port()), echo)  # no process listens on the first port
    yield proxy
    proxy.close()


def connect(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def test_target_that_does_not_answer_is_left_out(proxy: TcpProxy, echo: tuple[str, int]) -> None:
    with connect(proxy) as client:
        client.sendall(b"a")
        assert client.recv(BLOCK) == b"a"
    assert proxy.served[echo] == 1


def test_stalled_bytes_arrive_after_the_stall(proxy: TcpProxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"a")
        assert client.recv(BLOCK) == b"a"
        proxy.mode = STALL
        client.sendall(b"b")
        wait_until(lambda: proxy.met == 1, "the stall meets no connection")
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(BLOCK)
        client.settimeout(10)
        proxy.mode = PASS
        assert client.recv(BLOCK) == b"b"


def test_reset_ends_open_connections_and_refuses_new_ones(proxy: TcpProxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"a")
        assert client.recv(BLOCK) == b"a"
        proxy.mode = RESET
        with pytest.raises(ConnectionResetError):
            client.recv(BLOCK)
    # A new connection meets the reset when it reads, or already while it connects.
    with pytest.raises(ConnectionResetError), connect(proxy) as refused:
        refused.recv(BLOCK)
    assert proxy.met == 2
