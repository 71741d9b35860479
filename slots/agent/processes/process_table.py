"""Finds and ends processes. A pid and a start time identify a process; a mark in the environment,
which every process of a task inherits, identifies the task.
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
from typing import IO, Callable, Container, Iterable, Iterator, NamedTuple, Sequence

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
ENDED = (b"Z", b"X")  # states of a zombie
SHELLS = ("sh", "dash", "bash", "ash", "busybox", "ksh", "mksh", "zsh")
KILLING = 5.0  # seconds; the processes to be killed may stop the killer
BECOME = (
    "import os, sys; u, g = map(int, sys.argv[1:]); os.setgroups([]); os.setgid(g); os.setuid(u)"
)
# Kills all processes of a user at once, and never those of root.
KILL = f"{BECOME}; os.getuid() == os.geteuid() == u > 999 and os.kill(-1, 9)"


class Owned(NamedTuple):
    pid: int
    uid: int
    is_elsewhere: bool  # in a container, where another agent may use the same user ids


class Children:
    """Processes that this agent has started, each in its own session. Any other child in another
    session is an orphan of a task: while the program of the task runs, its orphans are its own
    descendants.
    """

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.known: set[int] = set()
        self.left: dict[int, str] = {}  # processes that not even KILL ended: pid -> start
        self.is_adopting = os.getpid() == 1

    def adopt(self) -> None:
        """Adopt orphans. An orphan of a task becomes a child of its program, later of its reaper,
        and then of this agent, also with a new session or environment.
        """
        self.is_adopting = adopt_orphans() or self.is_adopting

    def start(
        self,
        command: list[str],
        *,
        env: dict[str, str],
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        with self.guard:  # list_strays must not see the process before `known` has it
            process = subprocess.Popen(
                command,
                env=env,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=pass_fds,
                cwd="/",
                start_new_session=True,
            )
            self.known.add(process.pid)
        return process

    def forget(self, pid: int) -> None:
        """Call this after the process was waited for."""
        with self.guard:
            self.known.discard(pid)

    def give_up(self, left: Iterable[tuple[int, str]]) -> None:
        """Ignore processes that cannot be ended, so that the next task does not wait for them."""
        with self.guard:
            kept = {pid: since for pid, since in self.left.items() if started_at(pid) == since}
            self.left = {**kept, **{pid: since for pid, since in left if since}}

    def list_strays(self) -> set[int]:
        # Without adoption, an unknown child was started by other code of this process.
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
    """Make this process the parent of its orphaned descendants. False: the system cannot do it."""
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
    """Whether SIGINT has no effect, as on programs that a shell starts in the background."""
    ignored = read_status(pid).get(b"SigIgn", [b"0"])[0]
    return bool(int(ignored, 16) >> (signal.SIGINT - 1) & 1)


def is_shell(pid: int) -> bool:
    """Whether the executable is a shell; the name of a script does not tell."""
    try:
        executable = os.path.realpath(str(PROC / str(pid) / "exe"))
    except OSError:  # the process has ended, or is not ours
        return False
    return executable.rpartition("/")[2] in SHELLS


def list_copies(pids: Iterable[int]) -> set[int]:
    """Processes with the same command as an older one: forks that have not yet called exec."""
    eldest: dict[bytes, int] = {}
    return {pid for pid in sorted(pids) if eldest.setdefault(read_proc(pid, "cmdline"), pid) != pid}


def pause_all(pids: Iterable[int]) -> None:
    """Stop processes and wait for that, but not long: a process that waits for a disk stops
    later.
    """
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


def list_pids() -> Iterator[int]:
    entries = PROC.iterdir() if PROC.is_dir() else iter(())
    return (int(entry.name) for entry in entries if entry.name.isdigit())


def read_proc(pid: int, name: str) -> bytes:
    """A file of /proc/<pid>; empty if it cannot be read."""
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def read_stat(pid: int) -> list[bytes]:
    """The fields of /proc/<pid>/stat from the state on, see proc(5). Empty without the process."""
    stat = read_proc(pid, "stat")
    return stat[stat.rindex(b")") + 2 :].split() if stat else []


def read_status(pid: int) -> dict[bytes, list[bytes]]:
    """The fields of /proc/<pid>/status. Empty without the process."""
    lines = (line.partition(b":") for line in read_proc(pid, "status").splitlines())
    return {name: value.split() for name, _, value in lines}


def list_stats() -> Iterator[tuple[int, list[bytes]]]:
    """Every process with its `read_stat`."""
    return ((pid, fields) for pid in list_pids() if (fields := read_stat(pid)))


def list_tree(root: int) -> set[int]:
    """Descendants of this process."""
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
    """Parent and session of all living processes."""
    return {
        pid: (int(fields[1]), int(fields[3]))
        for pid, fields in list_stats()
        if fields[0] not in ENDED
    }


def started_at(pid: int) -> str:
    """Start of a process and id of the machine's boot, which identify it together with its pid.
    Empty without the process.
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
    """Processes with a mark that ends so: those of a run, or all of an agent."""
    sign, needle = f"{MARK}=".encode(), ending.encode()
    return [
        pid
        for pid in list_pids()
        if pid != os.getpid()
        and any(
            value.startswith(sign) and value.endswith(needle)
            for value in read_proc(pid, "environ").split(b"\0")
        )
    ]


def list_group(group: int) -> list[int]:
    """Members of a process group, without zombies."""
    found = [
        pid for pid, fields in list_stats() if int(fields[2]) == group and fields[0] not in ENDED
    ]
    if not PROC.is_dir() and is_group_there(group):
        found.append(group)
    return found


def list_owned(users: Container[int]) -> Iterator[Owned]:
    """Living processes with a real or saved id of these users, which such a user may kill."""
    for pid in list_pids():
        fields = read_status(pid)
        if not fields:
            continue
        real, _effective, saved = map(int, fields[b"Uid"][:3])
        if (real in users or saved in users) and fields[b"State"][0] not in ENDED:
            is_nested = len(fields.get(b"NSpid", ())) > 1
            yield Owned(
                pid,
                real if real in users else saved,
                is_nested and is_in_our_user_namespace(pid),
            )


def is_in_our_user_namespace(pid: int) -> bool:
    """Whether a process in another pid namespace belongs to a container that root made. A task that
    makes a pid namespace to hide there also needs a user namespace.
    """
    try:
        return (PROC / str(pid) / "ns/user").stat().st_ino == (PROC / "self/ns/user").stat().st_ino
    except OSError:
        return True


def kill_user(number: int) -> None:
    """Kill all processes of a user at once, however fast they fork."""
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
        )  # fails if the user has no process


def collect_orphans(own: set[int], seen: set[int]) -> set[int]:
    """Collect zombies that tasks left, which this process has adopted; returns the zombies of now.

    A zombie is collected at its second sight, and never if a run waits for it (`own`).
    """
    dead = list_dead_children()
    for pid in (dead & seen) - own:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return dead


def has_child_ended(pid: int) -> bool:
    """Whether a child has ended. It is not collected, so that its pid is not used again."""
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
    others: Callable[[], set[int]] = set,
) -> None:
    if group is not None and group > 1:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid in {*(list_marked(mark) if mark else ()), *others()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    owned = list(list_owned(users)) if users else []
    if number == signal.SIGKILL:
        shared = {each.uid for each in owned if each.is_elsewhere}
        for user in {each.uid for each in owned} - shared:
            kill_user(user)
    for each in owned:
        if not each.is_elsewhere:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each.pid, number)


def list_remaining(
    group: int | None,
    mark: str,
    users: frozenset[int] = frozenset(),
    others: Callable[[], set[int]] = set,
) -> list[int]:
    found = {
        *(list_group(group) if group is not None and group > 1 else ()),
        *(list_marked(mark) if mark else ()),
        *others(),
    }
    owned = list_owned(users) if users else ()
    return sorted(found | {each.pid for each in owned if not each.is_elsewhere})


def end_all(
    group: int | None,
    mark: str,
    grace: float,
    patience: float = 10.0,
    pause: Callable[[float], None] = time.sleep,
    users: frozenset[int] = frozenset(),
    others: Callable[[], set[int]] = set,
) -> bool:
    """Send TERM, wait for `grace` seconds, then send KILL until no process is left. False: not even
    KILL ended all of them.

    `users` are user ids that only this task has; they find processes without a mark. The
    last parameter lists further processes at each look.
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
