"""`make up`: all processes of Berth on one machine, under one supervisor.

The supervisor imports no Django; `manage.py prepare`, a child process, prepares the database.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from project.kernel.embedded import detached
from project.kernel.embedded.detached import Process
from project.kernel.embedded.home import Home, bind
from project.kernel.embedded.postgres import EmbeddedPostgres
from project.kernel.embedded.process import StartupError
from project.kernel.embedded.service import EmbeddedService
from project.kernel.embedded.supervisor import Child, Supervisor
from project.kernel.embedded.valkey import EmbeddedValkey
from project.settings import environment as env

# Without a limit, malloc reserves a heap for each thread.
SMALL = {"MALLOC_ARENA_MAX": "2", "PYTHONUNBUFFERED": "1"}
# With BERTH_APART=1, each of these is a process of its own, as in larger installations.
APART = ["allocate", "finalize", "scale", "watch", "relay"]
# Children with a spare process: while the controllers are down, no waiting claim is served.
WITH_SPARE = ["controllers"]
# Threads suffice, because the worker mostly waits for providers. The banner is not needed.
WORKER = [
    "-W",
    "ignore:You're running the worker",
    "-m",
    "celery",
    "--quiet",
    "-A",
    "project.celery",
    "worker",
    "--pool",
    "threads",
    "--concurrency",
    "4",
    "--loglevel",
    "WARNING",
    "--hostname",
    "worker@berth",
    "--without-mingle",
    "--without-gossip",
    "--without-heartbeat",
]
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104
LOOPBACK = ("127.0.0.1", "::1", "localhost")  # as in project.settings.local
PATIENCE = 20.0  # seconds that the other children wait for the web process
SHORT = 150_000_000  # bytes of free disk
FORWARDER_PATIENCE = 1.0  # seconds from SIGTERM to SIGKILL
AGENT_PATIENCE = 1.0  # seconds for idle agents after all other processes have ended


class Up:
    def __init__(self) -> None:
        self.began = time.monotonic()
        self.is_short = self.is_ready = False
        self.asked: set[Process] = set()
        self.home = Home(env.home())
        self.address = os.environ.get("BERTH_BIND") or "127.0.0.1"
        self.port = os.environ.get("BERTH_PORT") or "8000"
        shown = ANYWHERE.get(self.address, self.address)
        self.url = (
            f"http://{f'[{shown}]' if ':' in shown and '[' not in shown else shown}:{self.port}/"
        )
        self.environment = {**os.environ, **SMALL, "BERTH_HOME": str(self.home.path)}
        self.environment.setdefault("DJANGO_SETTINGS_MODULE", "project.settings.local")

    def main(self) -> int:
        self.home.open()
        listener = bind(self.address, self.port)
        self.home.write_address(self.url)
        self.supervisor = Supervisor(
            env.ROOT, explain=self.explain, on_ready=self.announce_ready, on_tick=self.check_space
        )
        self.supervisor.on_ended = self.end_detached
        self.supervisor.announce(
            f"starting; the page will be at {self.url} (Ctrl-C stops, state in {self.home.path})"
        )
        try:
            self.start_services()
            start_pipe = self.add_children(listener.fileno())
            # Web loads while the database is prepared.
            self.supervisor.start(self.supervisor.children[0])
            code = self.supervisor.run_once(
                "prepare",
                self.python("manage.py", "prepare", *self.embedded_flag),
                self.environment,
            )
            os.close(start_pipe)
            if code == 0:
                self.supervisor.run()
            return code if not self.supervisor.is_stopping else 0
        finally:
            self.ask_agents_to_end()
            self.supervisor.stop()
            self.home.forget_services()

    # -- steps ----------------------------------------------------------------
    def start_services(self) -> None:
        services: list[EmbeddedService] = self.supervisor.services
        self.embedded_flag: list[str] = []
        if not os.environ.get("DATABASE_URL"):
            postgres = EmbeddedPostgres(self.home.path / "postgres")
            self.check_major(postgres)
            services.append(postgres)
            postgres.start()
            postgres.create_database()
            self.environment["DATABASE_URL"] = postgres.url()
            self.embedded_flag = ["--embedded"]
        if not os.environ.get("REDIS_URL"):
            valkey = EmbeddedValkey(self.home.path / "valkey")
            services.append(valkey)
            self.environment["REDIS_URL"] = valkey.start().url
        self.home.write_services(
            {name: self.environment[name] for name in ("DATABASE_URL", "REDIS_URL")}
        )
        names = " and ".join(service.name for service in services)
        self.supervisor.announce(
            f"{names} ready after {self.elapsed()}"
            if names
            else "uses the services of DATABASE_URL and REDIS_URL"
        )

    def check_major(self, postgres: EmbeddedPostgres) -> None:
        wrote, brings = postgres.major_of_data(), postgres.major()
        if wrote and wrote != brings:
            raise StartupError(
                f"The data in {postgres.data} is of PostgreSQL {wrote}; this Berth brings "
                f"PostgreSQL {brings}. Nothing was touched.\n"
                "With the Berth that wrote it, run: make up, and beside it: make dump "
                "FILE=berth.dump\nThen here: make restore FILE=berth.dump"
            )

    def add_children(self, listener: int) -> int:
        """Returns a file descriptor; the web process serves once it is closed. The other children
        start after that, so that the first page appears early.
        """
        waits, start_pipe = os.pipe()
        reader, ready = os.pipe()
        started = time.monotonic()
        # `sample load` writes the file, `sample remove` deletes it.
        token = self.home.path / "sample-token"
        with_sample = env.is_on("BERTH_SAMPLE", True)

        def may_start() -> bool:
            return self.is_ready or time.monotonic() > started + PATIENCE

        handles = (listener, waits, ready)
        web = self.child(
            "web", "-m", "project.kernel.embedded.web", *map(str, handles), fds=handles
        )
        others = [
            self.child(name, "manage.py", name)
            for name in (APART if env.is_on("BERTH_APART") else ["controllers"])
        ]
        for child in others:
            child.has_spare = child.name in WITH_SPARE and env.is_on("BERTH_SPARE", True)
        others.append(self.child("worker", *WORKER))
        sample = self.child("sample", "-m", "project.sample.driver", self.url)
        for child in others:
            child.is_wanted = may_start
        sample.is_wanted = lambda: may_start() and with_sample and token.exists()
        self.supervisor.children += [web, *others, sample]
        self.supervisor.watch_ready(reader)
        return start_pipe

    def child(self, name: str, *arguments: str, fds: tuple[int, ...] = ()) -> Child:
        return Child(
            name, self.python(*arguments), {**self.environment, "BERTH_URL": self.url}, fds
        )

    # -- agents of the local provider: not children, so that their tasks outlive the supervisor --
    def list_agents(self) -> dict[Path, Process]:
        return {
            folder: process
            for folder in sorted((self.home.path / "agents").glob("*"))
            if (process := detached.read(folder)) and detached.is_alive(process)
        }

    def ask_agents_to_end(self) -> None:
        """Runs while the web process still answers, so that agents can sign off. A busy agent
        ends after its task.
        """
        self.asked = set(self.list_agents().values())
        for process in self.asked:
            detached.request_stop(process)

    def end_agents(self) -> None:
        """Also stops agents that the worker has started since. Waits a moment for idle agents."""
        agents = self.list_agents()
        for process in set(agents.values()) - self.asked:
            detached.request_stop(process)
        left = detached.wait_until_gone(
            [process.pid for process in agents.values()], AGENT_PATIENCE
        )
        busy = [
            folder.name.rpartition(".")[0]
            for folder, process in agents.items()
            if process.pid in left
        ]
        if busy:
            self.supervisor.announce(
                f"still busy with a task: {', '.join(busy)}. Each agent ends after its task and "
                "reports the result to the next `make up`"
            )

    # -- forwarders: they go on without the supervisor, unless their pool says otherwise --
    def list_forwarders(self) -> list[Process]:
        """Those that end with `make up`. A worker may have died before it recorded a process."""
        folders = [
            file.parent
            for file in (self.home.path / "forwarders").glob(f"*/{detached.STOPS_WITH_BERTH}")
        ]
        found = [
            process
            for folder in folders
            for process in (detached.read(folder), detached.find(folder, is_forwarder))
            if process is not None and detached.is_alive(process)
        ]
        return list({process.pid: process for process in found}.values())

    def end_forwarders(self) -> None:
        """Runs when no process is left that would start them again."""
        forwarders = self.list_forwarders()
        for process in forwarders:
            detached.request_stop(process)
        for process in forwarders:
            detached.end(process, FORWARDER_PATIENCE)

    def end_detached(self) -> None:
        self.end_forwarders()
        self.end_agents()

    # -- output ---------------------------------------------------------------
    def announce_ready(self) -> None:
        self.is_ready = True
        file = self.home.path / "admin-password"
        shown = self.home.path / "admin-password-shown"
        self.supervisor.announce(f"ready after {self.elapsed()}")
        if self.address not in LOOPBACK:
            names = [
                socket.gethostname(),
                *([] if self.address in ANYWHERE else [self.address]),
                *env.list_words("BERTH_HOSTS"),
            ]
            self.supervisor.announce(
                f"accepted host names: {', '.join(names)}; add others in BERTH_HOSTS, separated by "
                "commas"
            )
        if not file.exists():
            self.supervisor.announce(f"open {self.url}")
        elif shown.exists():
            self.supervisor.announce(
                f"open {self.url} and sign in as admin, with the password in {file}"
            )
        else:
            shown.touch(mode=0o600)
            self.supervisor.announce(
                f"open {self.url} and sign in as admin, password {file.read_text().strip()} (shown "
                f"once, kept in {file})"
            )

    def check_space(self) -> None:
        """Warns once whenever free space becomes short, before the database fails."""
        is_short = self.home.count_free() < SHORT
        if is_short and not self.is_short:
            self.supervisor.announce(
                f"The disk of {self.home.path} is nearly full: {self.home.count_free() // 10**6} "
                "MB are free. Free some space."
            )
        self.is_short = is_short

    def explain(self, name: str) -> str:
        """The likely reason for the end of a service, or where its log is."""
        if self.home.is_full():
            return (
                f"The disk of {self.home.path} is full. Free some space; acknowledged changes are "
                "not lost."
            )
        return f"Its log is {self.home.path / name / f'{name}.log'}."

    def elapsed(self) -> str:
        return f"{time.monotonic() - self.began:.1f} s"

    @staticmethod
    def python(*arguments: str) -> list[str]:
        return [sys.executable, *arguments]


def is_forwarder(words: Sequence[str]) -> int | None:
    """0 for the command line of a forwarder, not for that of `--show`."""
    return 0 if "--incarnation" in words else None


def main() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return Up().main()
    except StartupError as trouble:
        sys.stderr.write(f"{trouble}\n")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
