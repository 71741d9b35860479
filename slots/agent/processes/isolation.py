"""Namespaces of a task's own, where the agent is an ordinary user. The task runs as the same user
as the agent and as Berth itself, so file modes keep nothing from it. In these namespaces it sees

- its own folder and the folders in `writable`, where it may write; /tmp, which is its own;
  everything else read-only
- nothing of the folders in `hidden`: Berth's state, with its passwords, keys and tokens
- no process but its own: no environment, no memory, no descriptor of another process, and nothing
  to signal or trace
- no sockets of the user's session (/run/user, /tmp) and no container engine, through which code
  would run outside

Three processes: the relay stays where the agent sees it, passes signals on and ends as the program
ends; `init` is number 1 of the new process namespace and collects orphans; the program is what the
caller goes on to be. Linux only, standard library only, Python 3.8.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import signal
import stat
import struct
import sys
from pathlib import Path
from typing import Any, Iterable, Mapping, NamedTuple, NoReturn

try:
    import ctypes
except ImportError:  # a Python built without it
    ctypes = None  # type: ignore[assignment]

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384
MS_PRIVATE = 1 << 18
# A remount may not drop them.
KEPT_FLAGS = {"nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC}
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x8000000, 0x10000000, 0x20000000
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
CAPABILITY_VERSION = 0x20080522
OPEN = os.O_CLOEXEC + getattr(os, "O_PATH", 0)  # O_PATH is there on Linux only

TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108  (each is the task's own)
EMPTY = ("/run/user", "/run/screen", "/run/podman", "/run/containerd", "/run/libvirt", "/dev/shm")  # noqa: S108
COVERED = (
    *("/run/docker.sock", "/run/crio/crio.sock"),
    *(
        "/var/lib/incus/unix.socket",
        "/var/lib/lxd/unix.socket",
        "/var/snap/lxd/common/lxd/unix.socket",
    ),
)
FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# Variables that name files for a task.
FILES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "TF_CLI_CONFIG_FILE")
# Of the program: its wait status, and whether processes are left behind it.
RESULT = struct.Struct("=i?")


IS_KNOWN = sys.platform.startswith("linux") and ctypes is not None  # of this system and Python


class View(NamedTuple):
    """What a task sees of the file system."""

    hidden: tuple[str, ...]  # folders and files that are not there for it
    writable: tuple[str, ...]  # folders that it may write to, also inside of hidden ones
    readable: tuple[str, ...]  # programs that it needs, should they lie where it would not see them
    temporary: str  # its own /tmp

    @classmethod
    def read(cls, given: dict[str, Any]) -> View:
        return cls(
            tuple(given["hidden"]),
            tuple(given["writable"]),
            tuple(given["readable"]),
            given["temporary"],
        )


class Isolation(NamedTuple):
    """What holds for all tasks of an agent."""

    hidden: tuple[str, ...]
    writable: tuple[str, ...]

    def view(
        self, parts: Iterable[Path], temporary: Path, env: Mapping[str, str], program: str
    ) -> dict[str, Any]:
        """Of one program of a task: `parts` is its folder. As JSON."""
        folders = env.get("PATH", "").split(os.pathsep)
        files = [program, os.path.realpath(program), *(env[name] for name in FILES if name in env)]
        beside = [str(Path(each).parent) for each in files[:2]]
        readable = [
            each
            for each in (*folders, *beside, *files, sys.prefix, sys.base_prefix)
            if each.startswith("/")
        ]
        writable = [*map(str, parts), *self.writable]
        return {
            "hidden": list(self.hidden),
            "writable": writable,
            "readable": readable,
            "temporary": str(temporary),
        }


class NotPossible(Exception):
    """The kernel, or what confines this process, does not allow such namespaces."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(f"Namespaces for tasks: {text}")
        self.code = code


def enter(view: View, cwd: str) -> None:
    """Returns in the process that is to become the program. The calling process stays behind as
    its relay and never returns.
    """
    reader, writer = os.pipe()
    unshare()
    try:
        build_view(view)
    except OSError as error:
        raise NotPossible(str(error)) from error
    # Now: /proc is the new process namespace's as soon as its first process has mounted it.
    handles = list_handles()
    child = fork("relay")
    if child:
        relay(child, reader, handles)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    drop_capabilities()
    program = fork("init")
    if program:
        become_init(program, writer, handles)
    for number in (*FORWARDED, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*FORWARDED, signal.SIGCHLD))
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # no program gets rights from its file
    for handle in handles:
        with contextlib.suppress(OSError):
            os.set_inheritable(handle, False)
    os.chdir(cwd)


def fork(name: str) -> int:
    """Signals wait until both sides can hear them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (*FORWARDED, signal.SIGCHLD))
    try:
        return os.fork()
    except OSError as error:
        raise NotPossible(f"no process for {name}: {error.strerror}") from error


# -- the processes beside the program --------------------------------------------------------------


def relay(child: int, reader: int, handles: list[int]) -> NoReturn:
    """What the agent knows as the program: passes signals on to `init`, and ends as the program
    has ended.
    """
    drop_capabilities()
    ear = watch_signals({*handles} - {reader})
    while True:
        readable, _, _ = select.select([ear, reader], [], [])
        if ear in readable:
            for number in os.read(ear, 512):
                if number in FORWARDED:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, number)
        if reader in readable:
            break
    told = os.read(reader, RESULT.size)
    if len(told) < RESULT.size:  # init was killed, and all of its namespace with it
        end_as(signal.SIGKILL)
    status, has_left = RESULT.unpack(told)
    if not has_left:
        os.waitpid(child, 0)  # so that nobody takes it for something that the program left
    end_as(status)


def become_init(program: int, writer: int, handles: list[int]) -> NoReturn:
    """Collects what has ended. When the program has, the others stay until they end or are
    ended; without children it ends, too.
    """
    # What this process still remembers of the agent is out of the program's reach.
    call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    ear = watch_signals({*handles} - {writer})
    is_told = False
    while True:
        for number in os.read(ear, 512):
            if number in FORWARDED:
                for pid in [program] if not is_told else list_children():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
        status, has_left = collect(program)
        if status is not None and not is_told:
            is_told = True
            os.write(writer, RESULT.pack(status, has_left))
            os.close(writer)
        if is_told and not has_left:
            os._exit(0)


def collect(program: int) -> tuple[int | None, bool]:
    """How the program has ended, if it has just now; and whether there are children still."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found, False
        if pid == 0:
            return found, True
        if pid == program:
            found = status


def list_children() -> list[int]:
    """Of `init`: orphans of the program."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            text = (entry / "stat").read_bytes() if entry.name.isdigit() else b""
            if int(text[text.rindex(b")") + 2 :].split()[1]) == os.getpid():
                found.append(int(entry.name))
    return found


def watch_signals(closed: Iterable[int]) -> int:
    """A pipe that says which signals came. What the program has open is closed here: no reader
    waits for this process.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(null, handle)
    for handle in {*closed, null} - {0, 1, 2}:
        with contextlib.suppress(OSError):
            os.close(handle)
    ear, mouth = os.pipe()
    os.set_blocking(mouth, False)
    signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
    for number in (*FORWARDED, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*FORWARDED, signal.SIGCHLD))
    return ear


def list_handles() -> list[int]:
    return [int(entry.name) for entry in Path("/proc/self/fd").iterdir() if int(entry.name) > 2]


def end_as(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


# -- the view --------------------------------------------------------------------------------------


def unshare() -> None:
    """The same user in new namespaces, in which this process may mount."""
    uid, gid = os.geteuid(), os.getegid()
    call("unshare", CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        try:
            Path("/proc/self", name).write_text(text)
        except OSError as error:
            raise NotPossible(f"/proc/self/{name}: {error.strerror}") from error
    mount(None, "/", None, MS_REC | MS_PRIVATE)


def build_view(view: View) -> None:
    writable = open_all(view.writable)
    temporary = os.open(view.temporary, OPEN | os.O_DIRECTORY)
    hidden = sorted({os.path.realpath(path) for path in view.hidden if is_there(path)}, key=len)
    for path in hidden:
        for alias in (path, *list_aliases(path)):
            hide(alias)
    own = [path for path in map(os.path.realpath, TEMPORARY) if Path(path).is_dir()]
    readable = open_all(
        [path for path in view.readable if is_within(path, own) and not is_within(path, hidden)]
    )
    for path in (*EMPTY, *COVERED):
        if is_there(path):
            hide(os.path.realpath(path))
    renew_terminals()
    for path in own:
        mount(f"/proc/self/fd/{temporary}", path, None, MS_BIND)
    for path, handle in (*readable.items(), *writable.items()):
        if path not in own:
            restore_path(handle, path)
    make_read_only({*own, *writable, "/dev/shm", "/dev/pts"})  # noqa: S108
    for handle in (temporary, *readable.values(), *writable.values()):
        os.close(handle)


def open_all(paths: Any) -> dict[str, int]:
    """By the path without links; what does not exist is left out."""
    found: dict[str, int] = {}
    for path in paths:
        real = os.path.realpath(path)
        if real not in found and is_there(real):
            found[real] = os.open(real, OPEN)
    return found


def is_there(path: str) -> bool:
    """False also where this user cannot get to, and so no task can."""
    return os.path.exists(path)  # noqa: PTH110  (Path.exists raises for a folder that is shut)


def is_within(path: str, folders: Any) -> bool:
    real = os.path.realpath(path)
    return any(is_below(real, folder) for folder in map(os.path.realpath, folders))


def hide(path: str) -> None:
    if not os.path.lexists(path):  # it was in a folder that is hidden as a whole
        return
    if Path(path).is_dir():
        mount(
            "tmpfs",
            path,
            "tmpfs",
            MS_NOSUID | MS_NODEV,
            "mode=1777" if path == "/dev/shm" else "mode=755,size=1m",  # noqa: S108
        )
    else:
        mount(os.devnull, path, None, MS_BIND)


def list_aliases(path: str) -> list[str]:
    """Other paths that lead to the same folder or file, where its file system is mounted more
    than once.
    """
    mounts = [line.split(b" ") for line in Path("/proc/self/mountinfo").read_bytes().splitlines()]
    places = [(fields[2], unescape(fields[3]), unescape(fields[4])) for fields in mounts]
    above = [place for place in places if is_below(path, place[2])]
    device, root, at = max(enumerate(above), key=lambda each: (len(each[1][2]), each[0]))[1]
    inside = Path(root) / Path(path).relative_to(at)
    found = []
    for other, other_root, other_at in places:
        if other == device and other_at != at and is_below(str(inside), other_root):
            alias = Path(other_at) / inside.relative_to(other_root)
            with contextlib.suppress(OSError):
                if str(alias) != path and alias.samefile(path):
                    found.append(str(alias))
    return found


def is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def unescape(text: bytes) -> str:
    """Of mountinfo, where a space is \\040."""
    return os.fsdecode(
        re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found.group(1), 8)]), text)
    )


def restore_path(handle: int, path: str) -> None:
    """What was opened before, at its own path, which may lie in an empty folder now."""
    if not os.path.lexists(path):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            Path(path).mkdir(parents=True, exist_ok=True)
        else:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).touch()
    mount(f"/proc/self/fd/{handle}", path, None, MS_BIND | MS_REC)


def renew_terminals() -> None:
    """Other terminals of this user are not there to be read or written."""
    if Path("/dev/pts").is_dir():
        mount(
            "devpts",
            "/dev/pts",
            "devpts",
            MS_NOSUID | MS_NOEXEC,
            "newinstance,ptmxmode=0666,mode=620",
        )
        if Path("/dev/ptmx").exists() and not Path("/dev/ptmx").is_symlink():
            mount("/dev/pts/ptmx", "/dev/ptmx", None, MS_BIND)


def make_read_only(kept: Any) -> None:
    for path, flags in list_mounts():
        if path in kept:
            continue
        try:
            mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)
        except NotPossible as error:
            # Out of this user's reach, or below another mount.
            if error.code not in (errno.EACCES, errno.ENOENT, errno.EINVAL):
                raise


def list_mounts() -> list[tuple[str, int]]:
    found = []
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        fields = line.split(b" ")
        options = fields[5].decode().split(",")
        found.append(
            (unescape(fields[4]), sum(flag for name, flag in KEPT_FLAGS.items() if name in options))
        )
    return found


# -- system calls ----------------------------------------------------------------------------------


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    call("mount", *texts, ctypes.c_ulong(flags), data.encode() or None, about=target)


def drop_capabilities() -> None:
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    call("capset", header, bytes(24))


def call(name: str, *given: Any, about: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*given) != 0:
        number = ctypes.get_errno()
        raise NotPossible(f"{name}{f' {about}' if about else ''}: {os.strerror(number)}", number)
