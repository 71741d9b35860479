"""A TCP proxy that passes on, stalls or resets the connections through it, as a test orders."""

import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.kubernetes_cluster.connect_proxy import Proxy

BLOCK = 65536
TICK = 0.05
PASS, STALL, RESET = "pass", "stall", "reset"
ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: the end of a connection is a RST


class TcpProxy(Proxy):
    """`mode` applies to each open and each new connection: PASS; STALL, which stops reading, so
    that all bytes arrive after the end of the stall, as after lost packets; RESET.

    New connections go to the targets in turn; a target that does not answer is left out.
    """

    def __init__(self, *targets: tuple[str, int]) -> None:
        self.targets, self.turn = list(targets), 0
        self.mode = PASS
        self.met = 0  # connections that the fault has met
        self.served = dict.fromkeys(targets, 0)
        self.counting = threading.Lock()
        super().__init__(Path())

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def serve(self, raw: socket.socket) -> None:
        with suppress(OSError), raw:
            if self.mode == RESET or (server := self.connect()) is None:
                self.abort(raw)
                return
            with server:
                self.pass_on(raw, server)

    def connect(self) -> socket.socket | None:
        for _ in self.targets:
            with self.counting:
                target = self.targets[self.turn % len(self.targets)]
                self.turn += 1
            with suppress(OSError):
                server = socket.create_connection(target, timeout=2)
                server.settimeout(None)
                with self.counting:
                    self.served[target] += 1
                return server
        return None

    def pass_on(self, client: socket.socket, server: socket.socket) -> None:
        self.tunnels.add(client)
        client.settimeout(None)
        threads = [
            threading.Thread(target=self.pump, args=pair, daemon=True)
            for pair in ((client, server), (server, client))
        ]
        try:
            for thread in threads:
                thread.start()
            is_counted = False
            while all(thread.is_alive() for thread in threads) and not self.stopped.is_set():
                if self.mode == PASS:
                    is_counted = False
                elif not is_counted:
                    is_counted = True
                    with self.counting:
                        self.met += 1
                if self.mode == RESET:
                    break
                threads[0].join(TICK)
        finally:
            self.tunnels.discard(client)
            is_reset = self.mode == RESET
            for end in (client, server):
                with suppress(OSError):
                    if is_reset:
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
                    # Wakes the thread that reads it: a close alone would wait for that thread.
                    end.shutdown(socket.SHUT_RD if is_reset else socket.SHUT_RDWR)
            for thread in threads:
                thread.join(5)
            for end in (client, server):
                end.close()

    def pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(BLOCK):
                while self.mode == STALL and not self.stopped.is_set():
                    time.sleep(TICK)
                sink.sendall(piece)

    def abort(self, client: socket.socket) -> None:
        """Refuse a new connection."""
        with self.counting:
            self.met += 1
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        client.close()
