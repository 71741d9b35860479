"""What runs on this machine: told apart by number and start, and by the mark that every process of a task inherits."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Callable

MARK = "BERTH_RUN"
PROC = Path("/proc")
LOOK_EVERY = 0.05


def started_at(pid: int) -> str:
    """Since when this process is that process: its start, and which boot of the machine. Empty: there is none."""
    try:
        stat = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return "" if PROC.is_dir() else started_at_by_ps(pid)
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return ""
    return f"{fields[19].decode()}@{boot_of_machine()}"


def started_at_by_ps(pid: int) -> str:
    shown = subprocess.run(["ps", "-o", "lstart=,stat=", "-p", str(pid)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    text = " ".join(shown.stdout.decode("utf-8", "replace").split())
    return "" if not text or text.split()[-1].startswith("Z") else text.rsplit(" ", 1)[0]


def boot_of_machine() -> str:
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def list_marked(ending: str) -> list[int]:
    """Processes whose mark ends so: one run's, or all of one agent's."""
    needle, found = ending.encode(), []
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        begin = environment.find(f"{MARK}=".encode())
        if begin >= 0 and environment[begin:].split(b"\0", 1)[0].endswith(needle):
            found.append(int(entry.name))
    return found


def list_group(group: int) -> list[int]:
    """Members of the process group that are more than a name waiting to be collected."""
    found = []
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_bytes()
        except OSError:
            continue
        fields = stat[stat.rindex(b")") + 2 :].split()
        if int(fields[2]) == group and fields[0] not in (b"Z", b"X"):
            found.append(int(entry.name))
    if not PROC.is_dir() and is_group_there(group):
        found.append(group)
    return found


def collect_orphans(own: set[int], seen: set[int]) -> set[int]:
    """Where this process is the container's first, what tasks left becomes its child: the dead ones are taken off the list of processes.

    Only those seen dead before, and never one that a run waits for. Returns the dead ones of now.
    """
    dead = set()
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_bytes() if entry.name.isdigit() else b""
            fields = stat[stat.rindex(b")") + 2 :].split()
            if fields[0] == b"Z" and int(fields[1]) == os.getpid():
                dead.add(int(entry.name))
    for pid in (dead & seen) - own:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return dead


def is_group_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_all(group: int | None, mark: str, number: int) -> None:
    if group is not None and group > 1:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid in list_marked(mark) if mark else ():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def who_is_left(group: int | None, mark: str) -> list[int]:
    return sorted({*(list_group(group) if group is not None and group > 1 else ()), *(list_marked(mark) if mark else ())})


def end_all(group: int | None, mark: str, grace: float, patience: float = 10.0, pause: Callable[[float], None] = time.sleep) -> bool:
    """TERM, some grace, KILL, until nobody is left. False: somebody cannot be killed (not even by KILL)."""
    if not who_is_left(group, mark):
        return True
    signal_all(group, mark, signal.SIGTERM)
    until = time.monotonic() + grace
    while time.monotonic() < until:
        if not who_is_left(group, mark):
            return True
        pause(LOOK_EVERY)
    until = time.monotonic() + patience
    while who_is_left(group, mark):
        signal_all(group, mark, signal.SIGKILL)
        if time.monotonic() > until:
            return False
        pause(LOOK_EVERY)
    return True
