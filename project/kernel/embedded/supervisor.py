"""Runs child processes: prefixes their output, restarts them, and ends all of them when it ends.

One loop in the main thread starts all children, because the kernel ties the life of a child to the
thread that started it.
"""

import contextlib
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from project.kernel.embedded import process
from project.kernel.embedded.service import STEADY, EmbeddedService, Restarts

# Seconds between the start of a child and of its spare, which would slow the start down.
SPARE_AFTER = 10.0
# Early ends in a row after which a spare still takes over; later ends wait ever longer.
SPARED = 2
LONGEST_QUEUE = 20_000  # lines
TICK = 15.0
PATIENCE = 3.3  # seconds from SIGTERM to SIGKILL, so that the shutdown takes at most 5
COLOURS = (36, 32, 35, 33, 34)


@dataclass
class Child:
    name: str
    command: Sequence[str]
    environment: dict[str, str]
    pass_fds: tuple[int, ...] = ()
    is_wanted: Callable[[], bool] = lambda: True
    process: "subprocess.Popen[bytes] | None" = None
    restarts: Restarts = field(default_factory=lambda: Restarts(longest=30.0))
    rest: bytes = b""
    # The command accepts --standby FD: it prepares everything and begins at the first byte.
    has_spare: bool = False
    spare: "Spare | None" = None
    spare_at: float = 0.0

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


@dataclass
class Spare:
    """A second process of a child that has imported all modules and waits. It takes over at once,
    while a start takes seconds, mostly for imports.
    """

    child: Child
    start_pipe: int  # a byte lets the spare begin; end of file ends it


class Printer:
    """Writes in a thread of its own, so that a blocked terminal (Ctrl-S, a full pipe) does not
    block the supervisor.
    """

    def __init__(self) -> None:
        self.lines: queue.Queue[str | None] = queue.Queue(LONGEST_QUEUE)
        self.thread = threading.Thread(target=self._run, name="printer", daemon=True)
        self.thread.start()

    def add(self, line: str) -> None:
        with contextlib.suppress(queue.Full):  # drops lines while the terminal is blocked
            self.lines.put_nowait(line)

    def close(self) -> None:
        with contextlib.suppress(queue.Full):
            self.lines.put_nowait(None)
        self.thread.join(1)

    def _run(self) -> None:
        while (line := self.lines.get()) is not None:
            try:
                sys.stdout.write(line)
                if self.lines.empty():
                    sys.stdout.flush()
            except (OSError, ValueError):  # the reader is gone; Berth runs on
                continue


@dataclass
class Supervisor:
    folder: Path
    children: list[Child] = field(default_factory=list)
    services: list[EmbeddedService] = field(default_factory=list)  # they stop last
    explain: Callable[[str], str] = lambda name: ""
    on_ready: Callable[[], None] = lambda: None
    on_tick: Callable[[], None] = lambda: None  # every TICK seconds
    on_ended: Callable[[], None] = lambda: None  # after the children, before the services end
    is_stopping: bool = False

    def __post_init__(self) -> None:
        self.printer, self.is_coloured = Printer(), sys.stdout.isatty()
        self.selector = selectors.DefaultSelector()
        self.waker, waked = os.pipe()
        os.set_blocking(self.waker, False)
        os.set_blocking(waked, False)
        signal.set_wakeup_fd(waked, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._ask_to_stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(self.waker, selectors.EVENT_READ, self._drain_wakes)
        self.signals = 0
        self.tick_at = 0.0

    # -- output ---------------------------------------------------------------
    def announce(self, text: str) -> None:
        for line in text.splitlines():
            self._print("up", line)

    def _print(self, name: str, line: str) -> None:
        mark = f"{name:>11} |"
        if self.is_coloured:
            mark = f"\x1b[{COLOURS[sum(name.encode()) % len(COLOURS)]}m{mark}\x1b[0m"
        self.printer.add(f"{mark} {line}\n")

    # -- running --------------------------------------------------------------
    def run_once(self, name: str, command: Sequence[str], environment: dict[str, str]) -> int:
        """Runs a step of the start to its end, prints its output and returns its exit code."""
        child = Child(name, command, environment)
        self.start(child)
        while child.is_running() and not self.is_stopping:
            self._turn(0.5)
        if self.is_stopping:
            self._end([child])
        assert child.process is not None
        code = child.process.wait()
        self._flush(child)
        return code

    def watch_ready(self, reader: int) -> None:
        def ready() -> None:
            self.selector.unregister(reader)
            if os.read(reader, 1):
                self.on_ready()
            os.close(reader)

        self.selector.register(reader, selectors.EVENT_READ, ready)

    def run(self) -> None:
        """Returns after a signal to stop."""
        while not self.is_stopping:
            now = time.monotonic()
            waits = [self._tend(child, now) for child in self.children] + [
                self._tend_service(service, now) for service in self.services
            ]
            if now >= self.tick_at:
                self.tick_at = now + TICK
                self.on_tick()
            self._turn(min([1.0, *waits]))

    def stop(self) -> None:
        begin = time.monotonic()
        self.is_stopping = True
        running = [child for child in (*self.children, *self._spares()) if child.is_running()]
        self._end(running)
        self.on_ended()
        for service in reversed(self.services):
            service.stop()
        self.announce(f"stopped after {time.monotonic() - begin:.1f} s")
        self.printer.close()

    # -- inside ---------------------------------------------------------------
    def _tend(self, child: Child, now: float) -> float:
        """Starts, restarts or ends the child. Returns the seconds until the next check."""
        if not child.is_wanted():
            if child.is_running():
                self._end([child])
            child.process, child.restarts.ends = None, 0
            return 1.0
        if child.is_running():
            if child.has_spare:
                self._tend_spare(child, now)
            return 1.0
        if child.process is not None:
            self._flush(child)
            wait = child.restarts.count_end(now)
            how = _how(child.process.returncode)
            if child.restarts.ends <= SPARED and self._promote_spare(child, now):
                self.announce(f"{child.name} ended ({how}); its spare takes over")
                return 1.0
            self.announce(f"{child.name} ended ({how}); it starts again in {wait:g} s")
            child.process = None
        if now < child.restarts.again_at:
            return child.restarts.again_at - now
        self.start(child)
        return 1.0

    def _tend_spare(self, child: Child, now: float) -> None:
        """Starts the spare of a child that runs steadily."""
        if child.spare is not None and not child.spare.child.is_running():
            self._flush(child.spare.child)
            os.close(child.spare.start_pipe)
            child.spare, child.spare_at = None, now + STEADY
        if child.spare is None and now >= child.spare_at:
            wait, start_pipe = os.pipe()
            spare = Child(
                child.name,
                [*child.command, "--standby", str(wait)],
                child.environment,
                (*child.pass_fds, wait),
            )
            self.start(spare)
            os.close(wait)
            child.spare = Spare(spare, start_pipe)

    def _promote_spare(self, child: Child, now: float) -> bool:
        """Makes the spare the child. False if no spare runs."""
        if child.spare is None or not child.spare.child.is_running():
            return False
        spare, promoted = child.spare, child.spare.child.process
        assert promoted is not None and promoted.stdout is not None
        try:
            is_told = not promoted.stdout.closed and os.write(spare.start_pipe, b"x") == 1
        except BrokenPipeError:
            is_told = False
        # The spare dies at this moment, for example if the kernel kills both for their memory;
        # `_tend_spare` removes it.
        if not is_told:
            promoted.kill()
            return False
        child.spare = None
        os.close(spare.start_pipe)
        child.process, child.rest = promoted, spare.child.rest
        child.restarts.started, child.spare_at = now, now + 1.0
        self.selector.modify(promoted.stdout, selectors.EVENT_READ, lambda: self._read(child))
        return True

    def _spares(self) -> list[Child]:
        return [child.spare.child for child in self.children if child.spare is not None]

    def _tend_service(self, service: EmbeddedService, now: float) -> float:
        if service.process is not None and service.process.poll() is None:
            return 1.0
        if service.process is not None:
            wait = service.restarts.count_end(now)
            why = self.explain(service.name)
            self.announce(
                f"{service.name} ended ({_how(service.process.returncode)}); it starts again in "
                f"{wait:g} s.{' ' if why else ''}{why}"
            )
            service.process = None
        if now >= service.restarts.again_at:
            service.respawn()
            service.restarts.started = now
        return max(0.05, service.restarts.again_at - now)

    def start(self, child: Child) -> None:
        child.process = subprocess.Popen(
            child.command,
            cwd=self.folder,
            env=child.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the supervisor only, which ends them in order
            pass_fds=child.pass_fds,
            # A kill at any moment is safe, and no child may outlive the supervisor.
            preexec_fn=process.die_with_parent(signal.SIGKILL),
        )
        child.restarts.started = time.monotonic()
        child.spare_at = child.restarts.started + SPARE_AFTER
        assert child.process.stdout is not None
        os.set_blocking(child.process.stdout.fileno(), False)
        self.selector.register(
            child.process.stdout, selectors.EVENT_READ, lambda: self._read(child)
        )

    def _read(self, child: Child) -> None:
        assert child.process is not None and child.process.stdout is not None
        try:
            data = os.read(child.process.stdout.fileno(), 65536)
        except BlockingIOError:
            return
        if not data:
            self.selector.unregister(child.process.stdout)
            child.process.stdout.close()
        *lines, child.rest = (child.rest + data).split(b"\n")
        for line in lines:
            self._print(child.name, line.decode(errors="replace"))

    def _flush(self, child: Child) -> None:
        """Prints the last output."""
        stdout = child.process.stdout if child.process else None
        while stdout is not None and not stdout.closed:
            before = child.rest
            self._read(child)
            if not stdout.closed and child.rest == before:
                with contextlib.suppress(KeyError):
                    self.selector.unregister(stdout)
                stdout.close()
        if child.rest:
            self._print(child.name, child.rest.decode(errors="replace"))
            child.rest = b""

    def _end(self, children: list[Child]) -> None:
        end = time.monotonic() + PATIENCE
        for child in children:
            if child.process is not None:
                child.process.terminate()
        while (
            any(child.is_running() for child in children)
            and time.monotonic() < end
            and self.signals < 3
        ):
            self._turn(0.1)
        for child in children:
            if child.is_running() and child.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.process.pid, signal.SIGKILL)
                child.process.wait()
                self.announce(f"{child.name} did not stop in time and was ended")
            self._flush(child)

    def _turn(self, timeout: float) -> None:
        for key, _ in self.selector.select(max(0.0, timeout)):
            key.data()

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.waker, 4096)

    def _ask_to_stop(self, *_: object) -> None:
        self.is_stopping = True
        self.signals += 1


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"
