"""A real `up` with all its processes; each wait ends with a line, an answer or a process exit."""

import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import psycopg

from project.kernel.events.notify import CHANNEL
from tests.database_copy import copy_for_stack
from tests.waiting import LOOK_AGAIN, PATIENCE, slack, stretch, wait_until

ROOT = Path(__file__).resolve().parents[2]
OURS = {
    "DATABASE_URL",
    "REDIS_URL",
    "DJANGO_SETTINGS_MODULE",
    "BERTH_HOME",
    "BERTH_SAMPLE",
    "SECRET_KEY",
    "PYTHONDONTWRITEBYTECODE",
}
# Restarted processes find compiled modules: a third of the start time.
COMPILED = os.environ.get("PYTHONPYCACHEPREFIX") or str(
    Path(tempfile.gettempdir()) / "berth-pycache"
)
READY = r"open (http://\S+)"
Rows = list[tuple[Any, ...]]


class Stack:
    module = "project.kernel.embedded.up"

    def __init__(
        self, home: Path, port: int, python: list[str] | None = None, **environment: str
    ) -> None:
        self.home, self.port, self.python = home, port, python or [sys.executable]
        self.environment = {name: value for name, value in os.environ.items() if name not in OURS}
        self.environment |= {"BERTH_HOME": str(home), "BERTH_PORT": str(port), "BERTH_SAMPLE": "0"}
        self.environment |= {"PYTHONPYCACHEPREFIX": COMPILED, **environment}
        self.process: subprocess.Popen[bytes] | None = None
        self.heard, self.is_silent = "", True
        self.news = threading.Condition()

    # -- running --------------------------------------------------------------
    def start(self, timeout: float = 60) -> "Stack":
        if not self.home.exists() and self.environment["BERTH_SAMPLE"] == "0":
            self.copy_database()
        self.launch()
        self.wait_for(READY, timeout)
        return self

    def copy_database(self) -> None:
        """The migrations of a new database take as long as the rest of the start."""
        if "DATABASE_URL" not in self.environment and self.python == [sys.executable]:
            copy_for_stack(self.home)

    def launch(self) -> None:
        self.heard, self.is_silent, self.news = "", False, threading.Condition()
        self.process = subprocess.Popen(
            [*self.python, "-m", self.module],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self.process.stdout is not None
        threading.Thread(
            target=self.listen, args=(self.process.stdout, self.news), daemon=True
        ).start()

    def refused(self) -> tuple[int, str]:
        """A start that is expected to end by itself, with what it said."""
        self.launch()
        assert self.process is not None
        code = self.process.wait(30)
        with self.news:
            self.news.wait_for(lambda: self.is_silent, 10)
        return code, self.heard

    def wait_for(self, pattern: str, timeout: float = 20) -> str:
        """What was said from now on counts, and what was said since the last wait."""
        with self.news:
            self.news.wait_for(lambda: re.search(pattern, self.heard) or self.is_silent, timeout)
            found = re.search(pattern, self.heard)
            assert found, f"no {pattern!r} in:\n{self.heard}"
            self.heard = self.heard[found.end() :]
        return found[1] if found.groups() else found[0]

    def listen(self, stdout: IO[bytes], news: threading.Condition) -> None:
        """Reads all the time: a process with a full pipe would stand still. Children of a killed
        process may still write when the next process runs: their output is not its output, and
        their silence is not its end."""
        while data := os.read(stdout.fileno(), 65536):
            with news:
                if self.news is news:
                    self.heard += data.decode(errors="replace")
                    news.notify_all()
        with news:
            if self.news is news:
                self.is_silent = True
                news.notify_all()
        stdout.close()

    def stop(self, sig: signal.Signals = signal.SIGINT) -> float:
        """Seconds until it was gone; on a busy machine down to half of them."""
        assert self.process is not None
        begin = time.monotonic()
        self.process.send_signal(sig)
        self.process.wait(30)
        return (time.monotonic() - begin) / slack()

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*self.python, "manage.py", *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=60
        )

    def services(self) -> dict[str, str]:
        """Addresses of the database and of Valkey, by the names of their variables."""
        found: dict[str, str] = json.loads((self.home / "services.json").read_text())
        return found

    def connect(self, timeout: float = 20) -> psycopg.Connection[tuple[Any, ...]]:
        """Also while the server recovers."""
        url = self.services()["DATABASE_URL"]
        end = time.monotonic() + timeout
        while True:
            try:
                return psycopg.connect(url)
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(LOOK_AGAIN)

    def execute(self, statement: str) -> Rows:
        with self.connect() as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def wait_rows(
        self,
        query: str,
        is_wanted: Callable[[Rows], Any],
        patience: float = PATIENCE,
        describe: Callable[[], object] = lambda: "",
        *,
        within: float | None = None,
    ) -> Rows:
        """The first rows that are wanted. The query is repeated when Berth notifies its processes
        of a change, and twice a second for changes without a notification. A test that asserts a
        bound gives `within` instead of `patience`.
        """
        end = time.monotonic() + stretch(patience, within)
        while True:
            try:
                with self.connect() as connection:
                    connection.autocommit = True
                    connection.execute(f"LISTEN {CHANNEL}")
                    while not is_wanted(rows := connection.execute(query).fetchall()):
                        assert time.monotonic() < end, (query, rows, self.heard[-3000:], describe())
                        for _ in connection.notifies(timeout=0.5, stop_after=1):
                            time.sleep(LOOK_AGAIN)  # several notifications are one reason to look
                    return rows
            except psycopg.OperationalError:  # the server restarts
                if time.monotonic() > end:
                    raise

    # -- looking --------------------------------------------------------------
    def status(self, path: str = "/healthz") -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    def list_processes(self) -> dict[int, str]:
        """Children of all depths, with their command lines."""
        assert self.process is not None
        parents: dict[int, int] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parents[int(folder.name)] = int(
                    (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
                )
            except (OSError, IndexError):
                continue
        found: dict[int, str] = {}
        level = {self.process.pid}
        while level:
            level = {pid for pid, parent in parents.items() if parent in level}
            found |= {pid: command_of(pid) for pid in level}
        return found

    def pid_of(self, part: str) -> int:
        return next(
            pid for pid, command in sorted(self.list_processes().items()) if part in command
        )

    def wait_for_process(self, part: str, timeout: float = 20) -> int:
        """Until one with this in its command line is a child again. Only its parent is told of a
        start, so look.
        """

        def find() -> int | None:
            found = sorted(self.list_processes().items())
            return next((pid for pid, command in found if part in command), None)

        return wait_until(find, f"no process with {part!r}", patience=timeout)


def command_of(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""


def wait_gone(pids: list[int], timeout: float) -> list[int]:
    """Those that are still there in the end. A pidfd becomes readable when its process ends."""
    end = time.monotonic() + timeout
    left = []
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(max(0, end - time.monotonic()) * 1000):
            left.append(pid)
        os.close(handle)
    return left
