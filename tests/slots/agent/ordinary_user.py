"""An ordinary user of this machine: tests started by root run an agent or Berth as this user."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

# A user that most machines know, for programs that insist on a name, like initdb; no other process
# runs as this user.
NAMED = "games"
# One for each worker of a run: what this user runs is this worker's. Root agents do not give these
# numbers to tasks.
UID = 63_901 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def named_uid() -> int | None:
    try:
        return pwd.getpwnam(NAMED).pw_uid
    except KeyError:
        return None


def options() -> dict[str, Any]:
    """Options of Popen: root becomes the ordinary user; another user stays."""
    return {"user": UID, "group": UID, "extra_groups": []} if os.geteuid() == 0 else {}


@cache
def python() -> str:
    """An interpreter that this user may run: that of the tests may lie in root's private home."""
    for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        with suppress(OSError):
            if (
                subprocess.run(
                    [path, "-c", "import ctypes"], cwd="/", check=False, **options()
                ).returncode
                == 0
            ):
                return path
    raise AssertionError("no python3 here can be run by an ordinary user")


@cache
def has_namespaces() -> bool:
    """Whether namespaces work, by the system's own tool instead of the code under test."""
    with suppress(OSError):
        return (
            subprocess.run(
                ["unshare", "-Urmpf", "--mount-proc", "true"], cwd="/", check=False, **options()
            ).returncode
            == 0
        )
    return False


def may_read(path: Path) -> bool:
    return (
        subprocess.run(
            ["/usr/bin/env", "test", "-r", str(path)], cwd="/", check=False, **options()
        ).returncode
        == 0
    )


def may_enter(folder: Path) -> bool:
    return (
        subprocess.run(
            ["/usr/bin/env", "test", "-x", str(folder)], cwd="/", check=False, **options()
        ).returncode
        == 0
    )


@contextmanager
def own_folder(uid: int = UID) -> Iterator[Path]:
    """Outside of pytest's own folders, which belong to root alone, and of /tmp, of which a task
    has one of its own.
    """
    folder = Path(
        tempfile.mkdtemp(dir="/var/lib" if os.geteuid() == 0 else Path.home(), prefix="berth-test-")
    )
    folder.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(folder, uid, uid)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def list_processes() -> dict[int, str]:
    """Command lines of all that this user runs. One that has ended and waits to be collected
    runs no more.
    """
    uid, found = (UID if os.geteuid() == 0 else os.geteuid()), {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status = (entry / "status").read_text()
            if f"\nUid:\t{uid}\t" in status and "\nState:\tZ" not in status:
                found[int(entry.name)] = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
        except OSError:
            continue
    return found
