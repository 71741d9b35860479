"""A server from a wheel as a supervised child: what PostgreSQL and Valkey have in common."""

import importlib.util
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from project.kernel.embedded import process
from project.kernel.embedded.process import StartupError
from project.kernel.security.private_files import read_secret

STEADY = 5.0  # seconds; a process that ends earlier probably cannot run


@dataclass
class Restarts:
    """When a process starts again: each early end doubles the wait."""

    longest: float  # seconds
    started: float = 0.0
    ends: int = 0  # early ends in a row
    again_at: float = 0.0

    def count_end(self, now: float) -> float:
        """The seconds until the next start."""
        self.ends = 1 if now - self.started > STEADY else self.ends + 1
        wait = min(self.longest, 0.25 * 2 ** (self.ends - 1))
        self.again_at = now + wait
        return wait


class EmbeddedService(ABC):
    """Its log, password and process. A subclass knows the program and its settings."""

    name: ClassVar[str]
    product: ClassVar[str]  # its name in errors
    patience: ClassVar[float]  # seconds for the start
    port_in_use: ClassVar[str]  # the text in the log if another program has the port
    # SIGINT or SIGTERM shuts down; `kill_signal` follows if that takes too long.
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    kill_signal: ClassVar[signal.Signals] = signal.SIGKILL
    stop_patience: ClassVar[float] = 10.0  # seconds

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.log = self.folder / f"{self.name}.log"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = Restarts(longest=15.0)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.password = read_secret(self.folder / "password", 24)

    def start(self) -> Self:
        for attempt in range(3):
            self.port = self.port or process.free_port()
            self.respawn()
            if self._wait():
                return self
            if self.port_in_use not in process.tail(self.log) or attempt == 2:
                break
            self.port = 0  # another program took the port before the start
        raise StartupError(
            f"{self.product} does not start. The end of {self.log}:\n{process.tail(self.log, 1500)}"
        )

    @abstractmethod
    def respawn(self) -> None:
        """Starts the server on its port, also after it died."""

    @abstractmethod
    def answers(self) -> bool: ...

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(self.stop_patience)
        except subprocess.TimeoutExpired:
            self.process.send_signal(self.kill_signal)
            self.process.wait(5)

    def _spawn(
        self, command: Sequence[str], *, stdin: int, pass_fds: Sequence[int] = ()
    ) -> "subprocess.Popen[bytes]":
        with process.open_log(self.log) as log:
            self.process = subprocess.Popen(
                command,
                cwd="/",
                env=process.BARE_ENVIRONMENT,
                stdin=stdin,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=pass_fds,
                preexec_fn=process.die_with_parent(self.stop_signal),
                **process.unprivileged(),
            )
        return self.process

    def _wait(self) -> bool:
        """True once the server answers, False after the timeout or its end."""
        assert self.process is not None
        end = time.monotonic() + self.patience
        while self.process.poll() is None and time.monotonic() < end:
            if self.answers():
                return True
            time.sleep(0.03)
        return False


def find_in_wheel(package: str, pattern: str, product: str, variable: str) -> Path:
    """A file of an installed package. It is located without an import of the package, which has
    side effects.
    """
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or []) if spec else []:
        for found in Path(place).glob(pattern):
            return found
    raise StartupError(
        f"There is no {product} for this platform in the installed packages. Set {variable} to a "
        "server of your own."
    )
