"""`-p tests.boot`: a PostgreSQL and a Valkey for the test run, started before pytest-django reads
the settings.

Each worker of pytest-xdist has a server: the readable end of the log depends on all transactions of
a server, in every database. DATABASE_URL and REDIS_URL, where given, replace them; then run
without -n.
"""

import atexit
import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from project.kernel.embedded.postgres import EmbeddedPostgres
from project.kernel.embedded.process import tail
from project.kernel.embedded.valkey import EmbeddedValkey
from project.kernel.management.startup import resume_collection
from slots.agent.workdir.folders import remove
from tests.database_copy import DATABASE, FAST, PREPARED, copy, find_prepared

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings.test")
MEMORY, ROOM = Path("/dev/shm"), 4_000_000_000  # bytes
servers: list[EmbeddedPostgres | EmbeddedValkey] = []
migrated: list[str] = []  # the name of the database that needs no migration


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fault-rounds",
        type=int,
        default=0,
        help="processes that each test of tests/faults kills; 0: the number of the test",
    )
    parser.addoption("--fault-seed", type=int, default=0, help="which ones; 0: drawn, and printed")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    if not is_worker:
        make_run_folder()
        if not os.environ.get("DATABASE_URL"):
            os.environ[PREPARED] = str(find_prepared())
    # Else this one runs no test.
    if is_worker or not getattr(early_config.known_args_namespace, "numprocesses", None):
        gc.disable()  # until all tests are collected: a third of the CPU time of the collection
        boot()
    return (yield)


def pytest_collection_finish() -> None:
    resume_collection()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A server that has ended is told of once, by the test it ended under: all that come after
    it fail of that alone.
    """
    for server in list(servers):
        code = server.process.poll() if server.process else None
        if code is not None:
            servers.remove(server)
            pytest.fail(
                f"{server.name} of this run has ended ({code}) by the end of {item.nodeid}. Its "
                f"last words:\n{tail(server.log, 3000)}"
            )


def make_run_folder() -> None:
    """All that tests write, in folders of their own, goes with the run. pytest's own folders
    stay where they are: of failed tests.
    """
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="berth-run-"))
    folder.chmod(0o711)  # tasks of agents that are root run as other users
    for name, mode, variable in (("tmp", 0o1777, "TMPDIR"), ("work", 0o711, "BERTH_WORK")):
        (folder / name).mkdir()
        (folder / name).chmod(mode)
        os.environ[variable] = str(folder / name)
    tempfile.tempdir = None  # read TMPDIR again
    atexit.register(remove_run_folder, folder, os.getpid())


def remove_run_folder(folder: Path, pid: int) -> None:
    """Not by children that were forked and never became another program. Tasks may have locked
    folders against themselves.
    """
    if os.getpid() == pid:
        end_left(folder)
        remove(folder)


def end_left(folder: Path) -> None:
    """Processes that tests of this run left: their environment names its folder. The helpers of
    multiprocessing end with this process.
    """
    mark = os.fsencode(folder) + b"/"
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes():
                command = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                if "from multiprocessing." in command:
                    continue
                os.kill(int(entry.name), signal.SIGKILL)
                sys.stderr.write(f"[tests] ended a process that a test left: {command[:100]}\n")


def find_fast(folder: Path) -> Path:
    """A folder in memory if there is room: after each test all tables are written as new files,
    and a disk takes twice as long for that.
    """
    if (
        not MEMORY.is_dir()
        or not os.access(MEMORY, os.W_OK)
        or shutil.disk_usage(MEMORY).free < ROOM
    ):
        return folder
    found = Path(tempfile.mkdtemp(prefix="berth-test-", dir=MEMORY))
    atexit.register(shutil.rmtree, found, ignore_errors=True)
    return found


def boot() -> None:
    if os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL"):
        return
    folder = Path(tempfile.mkdtemp(prefix="berth-test-"))
    os.environ["BERTH_HOME"] = str(folder / "home")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if not os.environ.get("DATABASE_URL"):
        target = find_fast(folder) / "postgres"
        copy(find_prepared(), target)
        migrated.append(DATABASE)
        # Statistics that appear in the middle of a module change the plans that its tests read.
        settings = FAST | {"autovacuum": "off"}
        postgres = EmbeddedPostgres(target, settings=settings).start()
        postgres.stop_signal = signal.SIGQUIT  # at once: the data is not needed again
        atexit.register(postgres.stop)
        os.environ["DATABASE_URL"] = postgres.url()
        servers.append(postgres)
    if not os.environ.get("REDIS_URL"):
        valkey = EmbeddedValkey(folder / "valkey").start()
        atexit.register(valkey.stop)
        os.environ["REDIS_URL"] = valkey.url
        servers.append(valkey)
