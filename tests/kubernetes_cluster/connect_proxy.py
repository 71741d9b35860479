"""A small CONNECT proxy that forwards a tunnel or fails as a test orders."""

import base64
import select
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

from tests.kernel.kubernetes.slow_server import LASTS, PACE, read_head
from tests.slots.agent.fake_websocket import make_certificate

TICK = 0.2


class Proxy:
    def __init__(self, folder: Path, *, is_secure: bool = False) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.url = f"http{'s' * is_secure}://{self.address}"
        self.context: ssl.SSLContext | None = None
        self.authority = ""
        if is_secure:
            certificate, key = make_certificate(folder)
            self.authority, self.context = str(certificate), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate, key)
        self.asked = list[str]()  # targets of the calls
        self.leads = dict[str, tuple[str, int]]()  # names that only this proxy resolves
        self.refusal = ""  # the answer to every call, such as "403 Forbidden"
        self.wants = ""  # user:password
        self.trickles = self.is_mute = self.hangs_up = False
        self.has_given_up = False  # no client ended the call before LASTS
        self.stopped = threading.Event()
        self.tunnels = set[socket.socket]()
        self.threads = [threading.Thread(target=self.listen)]
        self.threads[0].start()

    def listen(self) -> None:
        with suppress(OSError):  # closed
            while True:
                raw, _ = self.listener.accept()
                thread = threading.Thread(target=self.serve, args=(raw,))
                self.threads.append(thread)
                thread.start()

    def serve(self, raw: socket.socket) -> None:
        raw.settimeout(LASTS)
        with (
            suppress(OSError),
            self.context.wrap_socket(raw, server_side=True) if self.context else raw as client,
        ):
            head = read_head(client)
            if not head:
                return
            target = head.split()[1]
            self.asked.append(target)
            if self.hangs_up:
                return
            if self.is_mute:
                self.has_given_up = not self.stopped.wait(LASTS)
                return
            if self.trickles:
                for _ in range(int(LASTS / PACE)):
                    client.sendall(b"H")
                    if self.stopped.wait(PACE):
                        return
                self.has_given_up = True
                return
            if self.wants and f"Basic {base64.b64encode(self.wants.encode()).decode()}" not in head:
                client.sendall(
                    b"HTTP/1.1 407 Proxy Authentication Required\r\n"
                    b"Proxy-Authenticate: Basic\r\n\r\n"
                )
                return
            if self.refusal:
                client.sendall(f"HTTP/1.1 {self.refusal}\r\n\r\n".encode())
                return
            host, _, port = target.rpartition(":")
            with socket.create_connection(
                self.leads.get(target, (host, int(port))), timeout=LASTS
            ) as server:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                self.pass_on(client, server)

    def pass_on(self, client: socket.socket, server: socket.socket) -> None:
        self.tunnels.add(client)
        try:
            while not self.stopped.is_set():
                is_read = isinstance(client, ssl.SSLSocket) and client.pending()
                ready = [client] if is_read else select.select([client, server], [], [], TICK)[0]
                for each in ready:
                    piece = each.recv(65536)
                    if not piece:
                        return
                    (server if each is client else client).sendall(piece)
        finally:
            self.tunnels.discard(client)

    def cut(self) -> None:
        """All that goes through it ends."""
        for tunnel in list(self.tunnels):
            with suppress(OSError):
                socket.socket.shutdown(tunnel, socket.SHUT_RDWR)

    def close(self) -> None:
        self.stopped.set()
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()
        for thread in self.threads:
            thread.join()
