"""What runs on this machine: told apart by number and start, and by the mark that every process
of a task inherits.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Container, Iterable, Iterator, NamedTuple

try:
    import ctypes
except ImportError:  # a Python built without it
    ctypes = None  # type: ignore[assignment]

PR_SET_CHILD_SUBREAPER = 36
MARK = "BERTH_RUN"
PROC = Path("/proc")
LOOK_EVERY = 0.05
PAUSING = 1.0  # seconds
RUNNING = ([b"R"], [b"S"], [b"D"])
ENDED = (b"Z", b"X")  # states of a process that is only a name, waiting to be collected
SHELLS = ("sh", "dash", "bash", "ash", "busybox", "ksh", "mksh", "zsh")
KILLING = 5.0  # seconds; it may be stopped by those it is to kill
BECOME = (
    "import os, sys; u, g = map(int, sys.argv[1:]); os.setgroups([]); os.setgid(g); os.setuid(u)"
)
# All of that user, at once, and never of root.
KILL = f"{BECOME}; os.getuid() == os.geteuid() == u > 999 and os.kill(-1, 9)"


class Owned(NamedTuple):
    pid: int
    uid: int
    # In a container of this machine, where another agent may give out the same numbers.
    is_elsewhere: bool


class Children:
    """Processes in sessions of their own that this agent has started itself. Whoever else in
    another session is its child was let go of by a task whose program has ended: while that runs,
    they are that program's."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.known: set[int] = set()
        # Not even KILL ends them, and who waits for them knows that; with their start.
        self.left: dict[int, str] = {}
        self.is_adopting = os.getpid() == 1

    def adopt(self) -> None:
        """What a task lets go of comes back to its program, then to its reaper, and after that to
        us, whatever session or environment it has by then."""
        self.is_adopting = adopt_orphans() or self.is_adopting

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        with self.guard:  # nobody looks between its first moment and our knowing it
            process = subprocess.Popen(command, start_new_session=True, **options)
            self.known.add(process.pid)
        return process

    def forget(self, pid: int) -> None:
        """Once it was waited for."""
        with self.guard:
            self.known.discard(pid)

    def give_up(self, left: Iterable[tuple[int, str]]) -> None:
        """They are one task's: the next one that ends does not wait for them as well."""
        with self.guard:
            kept = {pid: since for pid, since in self.left.items() if started_at(pid) == since}
            self.left = {**kept, **{pid: since for pid, since in left if since}}

    def list_strays(self) -> set[int]:
        # Then children that we do not know are no task's: somebody else in this process has
        # started them.
        if not self.is_adopting:
            return set()
        with self.guard:
            parents = read_parents()
            own = os.getsid(0)
            first = {
                pid
                for pid, (parent, session) in parents.items()
                if parent == os.getpid() and session != own and pid not in self.known
            }
            known = {pid for pid, since in self.left.items() if started_at(pid) == since}
        return (first | list_descendants(first, parents)) - known


children = Children()


def adopt_orphans() -> bool:
    """Descendants whose parents have ended become children of this process. False: the system
    has no such call.
    """
    if ctypes is None:
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False


def list_children(parent: int) -> set[int]:
    return {pid for pid, (known, _) in read_parents().items() if known == parent}


def list_dead_children() -> set[int]:
    """Children of this process that have ended and were not waited for."""
    return {
        pid for pid, fields in list_stats() if fields[0] == b"Z" and int(fields[1]) == os.getpid()
    }


def ignores_interrupt(pid: int) -> bool:
    """Whether SIGINT would have no effect, as on what a shell starts in the background."""
    try:
        status = (PROC / str(pid) / "status").read_bytes()
    except OSError:
        return False
    ignored = next(
        (line.split()[1] for line in status.splitlines() if line.startswith(b"SigIgn:")), b"0"
    )
    return bool(int(ignored, 16) >> (signal.SIGINT - 1) & 1)


def is_shell(pid: int) -> bool:
    """By its program: a script's own name is no help."""
    return os.path.realpath(str(PROC / str(pid) / "exe")).rpartition("/")[2] in SHELLS


def list_copies(pids: Iterable[int]) -> set[int]:
    """Those that run the same command as an older one of them: forks that have not started a
    command of their own.
    """
    eldest: dict[bytes, int] = {}
    return {pid for pid in sorted(pids) if eldest.setdefault(read_command(pid), pid) != pid}


def pause_all(pids: Iterable[int]) -> None:
    """Returns when they have stopped, or after a moment: one that waits for a disk stops later."""
    waiting = set(pids)
    for pid in waiting:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + PAUSING
    while time.monotonic() < until:
        waiting = {pid for pid in waiting if read_stat(pid)[:1] in RUNNING}
        if not waiting:
            return
        time.sleep(LOOK_EVERY / 10)


def read_stat(pid: int) -> list[bytes]:
    """The fields of /proc/<pid>/stat from the state on, see proc(5). Empty: there is no such
    process.
    """
    try:
        stat = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return []
    return stat[stat.rindex(b")") + 2 :].split()


def list_stats() -> Iterator[tuple[int, list[bytes]]]:
    """Of every process: its number and `read_stat`."""
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if entry.name.isdigit() and (fields := read_stat(int(entry.name))):
            yield int(entry.name), fields


def read_command(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def list_tree(root: int) -> set[int]:
    """Who descends from this process."""
    return list_descendants({root}, read_parents())


def list_descendants(roots: set[int], parents: dict[int, tuple[int, int]]) -> set[int]:
    found: set[int] = set()
    fresh = roots
    while fresh:
        fresh = {
            pid for pid, (parent, _) in parents.items() if parent in fresh and pid not in found
        }
        found |= fresh
    return found


def read_parents() -> dict[int, tuple[int, int]]:
    """Of all that live: parent and session."""
    return {
        pid: (int(fields[1]), int(fields[3]))
        for pid, fields in list_stats()
        if fields[0] not in ENDED
    }


def no_processes() -> set[int]:
    return set()


def started_at(pid: int) -> str:
    """Since when this process is that process: its start, and which boot of the machine. Empty:
    there is none.
    """
    fields = read_stat(pid)
    if not fields:
        return "" if PROC.is_dir() else started_at_by_ps(pid)
    if fields[0] in ENDED:
        return ""
    return f"{fields[19].decode()}@{boot_of_machine()}"


def started_at_by_ps(pid: int) -> str:
    shown = subprocess.run(
        ["ps", "-o", "lstart=,stat=", "-p", str(pid)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    text = " ".join(shown.stdout.decode("utf-8", "replace").split())
    return "" if not text or text.split()[-1].startswith("Z") else text.rsplit(" ", 1)[0]


def boot_of_machine() -> str:
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def list_marked(ending: str) -> list[int]:
    """Processes whose mark ends so: one run's, or all of one agent's."""
    sign, needle, found = f"{MARK}=".encode(), ending.encode(), []
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if any(
            value.startswith(sign) and value.endswith(needle) for value in environment.split(b"\0")
        ):
            found.append(int(entry.name))
    return found


def list_group(group: int) -> list[int]:
    """Members of the process group that are more than a name waiting to be collected."""
    found = [
        pid for pid, fields in list_stats() if int(fields[2]) == group and fields[0] not in ENDED
    ]
    if not PROC.is_dir() and is_group_there(group):
        found.append(group)
    return found


def list_owned(users: Container[int]) -> Iterator[Owned]:
    """Living processes of these users, as who they are or were: what such a user may kill."""
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "status").read_bytes()
        except OSError:
            continue
        fields = {
            name: value.split()
            for name, _, value in (line.partition(b":") for line in status.splitlines())
        }
        real, _effective, saved = map(int, fields[b"Uid"][:3])
        if (real in users or saved in users) and fields[b"State"][0] not in ENDED:
            is_nested = len(fields.get(b"NSpid", ())) > 1
            yield Owned(
                int(entry.name),
                real if real in users else saved,
                is_nested and is_in_our_user_namespace(entry),
            )


def is_in_our_user_namespace(entry: Path) -> bool:
    """What a task makes for itself, to hide there, has another one: only root makes a
    container without.
    """
    try:
        return (entry / "ns/user").stat().st_ino == (PROC / "self/ns/user").stat().st_ino
    except OSError:
        return True


def kill_user(number: int) -> None:
    """Everything of this user at once, however fast it multiplies."""
    command = [sys.executable, "-I", "-S", "-c", KILL, str(number), str(number)]
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            env=environment,
            timeout=KILLING,
            check=False,
        )  # where there is nobody it fails


def collect_orphans(own: set[int], seen: set[int]) -> set[int]:
    """Where this process is the container's first, what tasks left becomes its child: the dead ones
    are taken off the list of processes.

    Only those seen dead before, and never one that a run waits for. Returns the dead ones of now.
    """
    dead = list_dead_children()
    for pid in (dead & seen) - own:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return dead


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Without collecting it, where the system can: until that, nobody else gets its number, nor
    its group's.
    """
    if not PROC.is_dir() or not hasattr(os, "waitid"):
        return process.poll() is not None
    if process.returncode is not None:
        return True
    try:
        return has_child_ended(process.pid)
    except ChildProcessError:
        return process.poll() is not None


def has_child_ended(pid: int) -> bool:
    """Without collecting it: its number is not given out again."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def is_group_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_all(
    group: int | None,
    mark: str,
    number: int,
    users: frozenset[int] = frozenset(),
    others: Callable[[], set[int]] = no_processes,
) -> None:
    if group is not None and group > 1:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid in {*(list_marked(mark) if mark else ()), *others()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    owned = list(list_owned(users)) if users else []
    if number == signal.SIGKILL:
        for user in {one.uid for one in owned} - {one.uid for one in owned if one.is_elsewhere}:
            kill_user(user)
    for one in owned:
        if not one.is_elsewhere:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one.pid, number)


def list_remaining(
    group: int | None,
    mark: str,
    users: frozenset[int] = frozenset(),
    others: Callable[[], set[int]] = no_processes,
) -> list[int]:
    found = {
        *(list_group(group) if group is not None and group > 1 else ()),
        *(list_marked(mark) if mark else ()),
        *others(),
    }
    return sorted(
        found | {one.pid for one in (list_owned(users) if users else ()) if not one.is_elsewhere}
    )


def end_all(
    group: int | None,
    mark: str,
    grace: float,
    patience: float = 10.0,
    pause: Callable[[float], None] = time.sleep,
    users: frozenset[int] = frozenset(),
    others: Callable[[], set[int]] = no_processes,
) -> bool:
    """TERM, some grace, KILL, until nobody is left. False: somebody cannot be killed (not
    even by KILL).

    `users`: numbers that are this task's alone. What it let go of all marks is known by them.
    `others`: who else is meant, at each look.
    """
    if not list_remaining(group, mark, users, others):
        return True
    signal_all(group, mark, signal.SIGTERM, users, others)
    until = time.monotonic() + grace
    while time.monotonic() < until:
        if not list_remaining(group, mark, users, others):
            return True
        pause(LOOK_EVERY)
    until = time.monotonic() + patience
    while list_remaining(group, mark, users, others):
        signal_all(group, mark, signal.SIGKILL, users, others)
        if time.monotonic() > until:
            return False
        pause(LOOK_EVERY)
    return True
