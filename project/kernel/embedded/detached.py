"""Processes that outlive their parent. Each is found again by its folder and ended with all of its
descendants.

A folder belongs to one process, which leads a session of its own and has the path of the folder in
its command line. The running processes are the truth; `process.json` only saves the search. The
file names the process by pid, start time and boot, because pids are reused, and start times repeat
after a reboot.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from project.kernel.embedded.process import open_log
from project.kernel.security.private_files import write_private

RECORD = "process.json"
# A process with this file in its folder ends with `make up`; otherwise it goes on.
STOPS_WITH_BERTH = "stops-with-berth"
PROC = Path("/proc")
TICK = 0.05  # seconds between two checks: only a parent is notified of an end
# The process or its file does not exist, or /proc hides it because it is another user's. Any other
# error, such as no free file descriptor, says nothing about the process and is raised.
GONE = (FileNotFoundError, NotADirectoryError, ProcessLookupError, PermissionError)


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a folder. `mark` is a number of the caller, such as the incarnation of a
    member.
    """

    pid: int
    started: str
    boot: str
    mark: int = 0


# Children of this process, reaped whenever processes are started or listed.
_children: list["subprocess.Popen[bytes]"] = []


def start(
    command: Sequence[str],
    folder: Path,
    *,
    log: Path,
    environment: Mapping[str, str],
    cwd: Path,
    mark: int,
) -> Process:
    """Starts the command in a session of its own, so that the end of a terminal or supervisor
    does not reach it.
    """
    with open_log(log) as out:
        child = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    _children.append(child)
    process = Process(child.pid, start_time(child.pid), boot_id(), mark)
    _wait_for_command_line(process)
    adopt(folder, process)
    return process


def _wait_for_command_line(process: Process) -> None:
    """/proc shows an empty one for a moment after the start, in which `find` would miss a process
    whose record could not be written.
    """
    while PROC.joinpath("self").exists() and is_alive(process) and not command_line(process):
        time.sleep(0.001)


def read(folder: Path) -> Process | None:
    """The process that was started last for this folder, running or not."""
    try:
        return Process(**json.loads((folder / RECORD).read_text()))
    except (*GONE, ValueError, TypeError):
        return None


def is_alive(process: Process) -> bool:
    _reap()
    return (
        bool(process.started)
        and process.boot == boot_id()
        and start_time(process.pid) == process.started
    )


def is_of_this_boot(process: Process) -> bool:
    return process.boot == boot_id()


def find(folder: Path, mark_of: Callable[[Sequence[str]], int | None]) -> Process | None:
    """A live process of this folder that is not in `process.json`, because its parent died before
    it wrote the file.
    """
    _reap()
    wanted = str(folder)
    for pid, words in _list_commands():
        if (
            wanted in words
            and pid != os.getpid()
            and (mark := mark_of(words)) is not None
            and (started := start_time(pid))
        ):
            return Process(pid, started, boot_id(), mark)
    return None


def adopt(folder: Path, process: Process) -> None:
    write_private(folder / RECORD, json.dumps(asdict(process)))


def mark_stop(folder: Path, *, with_berth: bool) -> None:
    """Keep whether the process of this folder ends with `make up`."""
    file = folder / STOPS_WITH_BERTH
    if file.exists() == with_berth:
        return
    if with_berth:
        file.touch(0o600)
    else:
        file.unlink(missing_ok=True)


def list_session_processes(process: Process) -> list[int]:
    """The live processes of its session, also after the process itself has died. A pid is not
    reused while a session has this number, so the session belongs to the process unless another
    leader has the number now.
    """
    _reap()
    if process.boot != boot_id() or (start_time(process.pid) not in ("", process.started)):
        return []
    return [pid for pid, session in _list_sessions() if session == process.pid]


def command_line(process: Process) -> list[str]:
    """Its command line. Empty if the process has ended or is ending, or without /proc."""
    if not is_alive(process):
        return []
    with contextlib.suppress(*GONE):
        text = PROC.joinpath(str(process.pid), "cmdline").read_bytes().decode(errors="replace")
        return text.split("\0") if text else []
    return []


def request_stop(process: Process) -> bool:
    """Sends SIGTERM. False if the process does not run."""
    if not is_alive(process):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    return True


def end(process: Process, patience: float) -> bool:
    """Sends SIGTERM, then SIGKILL to the whole session. True if no process of it is left."""
    request_stop(process)
    left = list_session_processes(process)
    for pid in left:
        # The leader is dead and cannot pass the signal on.
        if pid != process.pid and not is_alive(process):
            _signal(pid, signal.SIGTERM)
    wait_until_gone(left, patience)
    for pid in list_session_processes(process):
        _signal(pid, signal.SIGKILL)
    return not wait_until_gone(list_session_processes(process), 5.0)


def wait_until_gone(pids: Sequence[int], patience: float) -> list[int]:
    """The processes that still run after `patience` seconds."""
    deadline = time.monotonic() + patience
    left = [pid for pid in pids if start_time(pid)]
    while left and time.monotonic() < deadline:
        time.sleep(TICK)
        _reap()
        left = [pid for pid in left if start_time(pid)]
    return left


def start_time(pid: int) -> str:
    """The start time tells a process from others with the same pid. Empty if the process is dead
    or a zombie.
    """
    if PROC.joinpath("self").exists():
        fields = _stat(pid)
        return "" if not fields or fields[0] in "ZX" else fields[19]
    shown = _ps("-o", "stat=,lstart=", "-p", str(pid)).split(None, 1)
    return "" if len(shown) < 2 or shown[0].startswith("Z") else shown[1].strip()


def boot_id() -> str:
    try:
        return PROC.joinpath("sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return "" if sys.platform == "linux" else "unknown"


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; the command name before may contain any
    character.
    """
    try:
        return PROC.joinpath(str(pid), "stat").read_text().rsplit(")", 1)[1].split()
    except (*GONE, IndexError):
        return []


def _ps(*options: str) -> str:
    """For systems without /proc."""
    return subprocess.run(["ps", *options], capture_output=True, text=True).stdout


def _list_sessions() -> Iterator[tuple[int, int]]:
    if PROC.joinpath("self").exists():
        for place in PROC.glob("[0-9]*"):
            fields = _stat(int(place.name))
            if fields and fields[0] not in "ZX":
                yield int(place.name), int(fields[3])
        return
    for line in _ps("-axo", "pid=,sess=,stat=").splitlines():
        pid, session, state = line.split(None, 2)
        if session.isdigit() and not state.startswith("Z"):
            yield int(pid), int(session)


def _list_commands() -> Iterator[tuple[int, list[str]]]:
    if PROC.joinpath("self").exists():
        for place in PROC.glob("[0-9]*"):
            with contextlib.suppress(*GONE):
                if _is_own(place):  # other users control their command lines
                    yield (
                        int(place.name),
                        place.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0"),
                    )
        return
    for line in _ps("-axo", "uid=,pid=,command=").splitlines():
        owner, pid, *words = line.split()
        if int(owner) == os.geteuid():
            yield int(pid), words


def _is_own(place: Path) -> bool:
    """Reads the uids from `status`: the /proc folder of an undumpable process belongs to root."""
    line = next(
        line
        for line in place.joinpath("status").read_bytes().splitlines()
        if line.startswith(b"Uid:")
    )
    return {int(user) for user in line.split()[1:]} == {os.geteuid()}


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _reap() -> None:
    """Reaps ended children, so that no zombie is taken for a live process."""
    _children[:] = [child for child in _children if child.poll() is None]
