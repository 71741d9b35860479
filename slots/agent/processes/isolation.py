"""Namespaces for the tasks of an agent that is an ordinary user. Such a task runs as the user of
the agent and of Berth itself, so file modes protect no file from it. In its namespaces a task sees

- its own folder and the folders in `writable`, where it may write; its own /tmp; all other folders
  read-only
- no folder in `hidden`: Berth's state contains passwords, keys and tokens
- only its own processes: it cannot read, signal or trace another process
- no sockets of the user's session (/run/user, /tmp) and of container engines, which would run code
  outside

Three processes take part. The relay stays in the agent's namespaces, forwards signals and ends like
the program. `init` is process 1 of the new pid namespace and collects orphans. The calling process
becomes the program. Linux only, standard library only, Python 3.8.
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
from typing import Collection, Iterable, Mapping, NamedTuple, NoReturn

from .process_table import list_children

try:
    import ctypes
except ImportError:  # a Python built without it
    ctypes = None  # type: ignore[assignment]

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384
MS_PRIVATE = 1 << 18
# A remount must keep these flags.
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
# Environment variables with paths of files that a task needs.
FILES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "TF_CLI_CONFIG_FILE")
RESULT = struct.Struct("=i?")  # wait status of the program; whether it left processes


IS_KNOWN = sys.platform.startswith("linux") and ctypes is not None


class View(NamedTuple):
    """The file system as a task sees it."""

    hidden: Collection[str]  # folders and files that the task does not see
    writable: Collection[str]  # folders that the task may write to, also inside of hidden folders
    readable: Collection[str]  # programs that the task needs, also inside of replaced folders
    temporary: str  # the folder that becomes /tmp


class Isolation(NamedTuple):
    """Settings for all tasks of an agent."""

    hidden: tuple[str, ...]
    writable: tuple[str, ...]

    def view(
        self, parts: Iterable[Path], temporary: Path, env: Mapping[str, str], program: str
    ) -> View:
        """The view of one program of a task. `parts` are the folders of the task."""
        folders = env.get("PATH", "").split(os.pathsep)
        files = [program, os.path.realpath(program), *(env[name] for name in FILES if name in env)]
        beside = [str(Path(each).parent) for each in files[:2]]
        readable = [
            each
            for each in (*folders, *beside, *files, sys.prefix, sys.base_prefix)
            if each.startswith("/")
        ]
        writable = [*map(str, parts), *self.writable]
        return View(self.hidden, writable, readable, str(temporary))


class NotPossible(Exception):
    """The kernel or the container does not allow such namespaces."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(f"Namespaces for tasks: {text}")
        self.code = code


def enter(view: View, cwd: str) -> None:
    """Enter new namespaces. Returns in a new process, which becomes the program; the calling
    process becomes its relay and never returns.
    """
    reader, writer = os.pipe()
    unshare()
    try:
        build_view(view)
    except OSError as error:
        raise NotPossible(str(error)) from error
    handles = list_handles()  # before the new namespace mounts its own /proc
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
    """Fork with signals blocked until both sides handle them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (*FORWARDED, signal.SIGCHLD))
    try:
        return os.fork()
    except OSError as error:
        raise NotPossible(f"cannot start the process {name}: {error.strerror}") from error


# -- the processes beside the program --------------------------------------------------------------


def relay(child: int, reader: int, handles: list[int]) -> NoReturn:
    """The process that the agent sees as the program: forwards signals to `init` and ends with the
    status of the program.
    """
    drop_capabilities()
    signals = watch_signals({*handles} - {reader})
    while True:
        readable, _, _ = select.select([signals, reader], [], [])
        if signals in readable:
            for number in os.read(signals, 512):
                if number in FORWARDED:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, number)
        if reader in readable:
            break
    result = os.read(reader, RESULT.size)
    if len(result) < RESULT.size:  # init was killed, and all processes of its namespace with it
        end_as(signal.SIGKILL)
    status, has_left = RESULT.unpack(result)
    if not has_left:
        os.waitpid(child, 0)  # else the reaper would count init as left by the program
    end_as(status)


def become_init(program: int, writer: int, handles: list[int]) -> NoReturn:
    """Collect ended processes. `init` outlives the program until its last child has ended."""
    # The program must not read the memory of this process, which is a copy of the agent's.
    call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    signals = watch_signals({*handles} - {writer})
    has_reported = False
    while True:
        for number in os.read(signals, 512):
            if number in FORWARDED:
                for pid in list_children(os.getpid()) if has_reported else [program]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
        status, has_left = collect(program)
        if status is not None and not has_reported:
            has_reported = True
            os.write(writer, RESULT.pack(status, has_left))
            os.close(writer)
        if has_reported and not has_left:
            os._exit(0)


def collect(program: int) -> tuple[int | None, bool]:
    """Wait status of the program if it has ended now, and whether children are left."""
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


def watch_signals(closed: Iterable[int]) -> int:
    """A pipe with the numbers of received signals. Closes the program's descriptors, so that no
    reader of its output waits for this process.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(null, handle)
    for handle in {*closed, null} - {0, 1, 2}:
        with contextlib.suppress(OSError):
            os.close(handle)
    signals, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    for number in (*FORWARDED, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*FORWARDED, signal.SIGCHLD))
    return signals


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
    """Enter new namespaces as the same user, with the right to mount."""
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


def open_all(paths: Iterable[str]) -> dict[str, int]:
    """Descriptors by real path, without missing files."""
    found: dict[str, int] = {}
    for path in paths:
        real = os.path.realpath(path)
        if real not in found and is_there(real):
            found[real] = os.open(real, OPEN)
    return found


def is_there(path: str) -> bool:
    """Whether the file exists and is accessible to this user, and so to the task."""
    return os.path.exists(path)  # noqa: PTH110  (Path.exists raises for an inaccessible folder)


def is_within(path: str, folders: Iterable[str]) -> bool:
    real = os.path.realpath(path)
    return any(is_below(real, folder) for folder in map(os.path.realpath, folders))


def hide(path: str) -> None:
    if not os.path.lexists(path):  # inside of a folder that is already hidden
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
    """Other paths of the same file or folder, if its file system is mounted more than once."""
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
    """Decode a path of mountinfo, where a space is \\040."""
    return os.fsdecode(
        re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found.group(1), 8)]), text)
    )


def restore_path(handle: int, path: str) -> None:
    """Mount an open file or folder at its path, which may be in a replaced folder now."""
    if not os.path.lexists(path):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            Path(path).mkdir(parents=True, exist_ok=True)
        else:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).touch()
    mount(f"/proc/self/fd/{handle}", path, None, MS_BIND | MS_REC)


def renew_terminals() -> None:
    """Hide the other terminals of this user."""
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


def make_read_only(kept: Collection[str]) -> None:
    for path, flags in list_mounts():
        if path in kept:
            continue
        try:
            mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)
        except NotPossible as error:
            # The mount is not accessible to this user, or below another mount.
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


def call(name: str, *given: object, about: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*given) != 0:
        number = ctypes.get_errno()
        raise NotPossible(f"{name}{f' {about}' if about else ''}: {os.strerror(number)}", number)
