"""Child processes that never outlive us and never run as root."""

import ctypes
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

# Loaded now: between fork and exec, as another user, the standard library may be out of reach.
LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
PR_SET_PDEATHSIG = 1
UNPRIVILEGED = "nobody"
LONGEST_LOG = 20_000_000
CACHE = Path("/var/cache/berth")
STALE = 3600.0  # seconds after which a copy that is not whole is nobody's work any more


class StartupError(Exception):
    """Something the person who started us can mend; the text says what and how."""


def die_with_parent(sig: signal.Signals) -> Callable[[], None]:
    """For `preexec_fn`: the kernel sends `sig` when the thread that forked ends, even by kill -9.

    So children are started from the supervisor's main thread only. It runs after setuid, which
    would clear the flag.
    """
    parent = os.getpid()

    def arm() -> None:
        if LIBC is not None:
            LIBC.prctl(PR_SET_PDEATHSIG, int(sig))
            if os.getppid() != parent:  # it died between fork and here
                os.kill(os.getpid(), signal.SIGKILL)

    return arm


def is_root() -> bool:
    return os.geteuid() == 0


def unprivileged() -> dict[str, Any]:
    """Arguments for Popen: root becomes nobody, everybody else stays."""
    if not is_root():
        return {}
    who = pwd.getpwnam(UNPRIVILEGED)
    return {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}


def chown_to_unprivileged(path: Path | int) -> None:
    """Makes the unprivileged user the owner, when we are root."""
    if is_root():
        who = pwd.getpwnam(UNPRIVILEGED)
        os.chown(path, who.pw_uid, who.pw_gid)


def is_reachable(path: Path) -> bool:
    """May the unprivileged user run this? Not when it lies under a private home (0700)."""
    if not is_root():
        return True
    return (
        subprocess.run(
            ["/usr/bin/env", "test", "-x", str(path)], cwd="/", **unprivileged()
        ).returncode
        == 0
    )


def reachable_copy(root: Path, names: list[str]) -> Path:
    """A copy of `names` under `root` that the unprivileged user can run, made once a version: in a
    place that root alone writes.

    It is there as a whole or not at all, and its modes do not depend on the umask of whoever
    started us.
    """
    stamp = root / names[0]
    digest = sha256(
        f"{root}:{stamp.stat().st_size}:{stamp.stat().st_mtime_ns}".encode()
    ).hexdigest()[:16]
    target = CACHE / f"{stamp.name}-{digest}"
    CACHE.mkdir(parents=True, exist_ok=True)
    if CACHE.is_symlink() or CACHE.stat().st_uid != 0:
        raise StartupError(
            f"{CACHE} does not belong to root, so programs from it are not run. Remove it."
        )
    CACHE.chmod(0o755)
    if target.is_dir() and target.stat().st_uid == 0:
        if not is_reachable(target / names[0]):
            make_readable(target)
        return target
    for left in CACHE.glob(f"{target.name}.*"):  # by a start that was killed
        if time.time() - left.stat().st_mtime > STALE:
            shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(dir=CACHE, prefix=f"{target.name}."))
    for name in names:
        if (root / name).is_dir():
            shutil.copytree(root / name, scratch / name, symlinks=True)
        elif (root / name).exists():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, scratch / name)
    make_readable(scratch)
    try:
        scratch.rename(target)
    except OSError:  # another start made it first
        shutil.rmtree(scratch)
    return target


def make_readable(folder: Path) -> None:
    """Everybody may read it and run what its owner may run; its owner alone may write."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def runs_in(pid: int, folder: Path) -> bool:
    """Is this process alive, with this as its working directory? Numbers of dead processes are
    given out again.
    """
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cwd").samefile(folder)
        except OSError:
            return False
    shown = subprocess.run(
        ["lsof", "-a", "-p", str(pid), "-d", "cwd", "-Fn"], capture_output=True, text=True
    )
    return f"n{folder.resolve()}" in shown.stdout


def write_private(file: Path, text: str) -> None:
    """Replaces a file as a whole; nobody but the owner ever sees a byte of it."""
    scratch = file.with_name(f"{file.name}.{os.getpid()}")
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
    scratch.replace(file)


def open_log(file: Path) -> IO[bytes]:
    """For appending; a large one becomes the old one first."""
    if file.exists() and file.stat().st_size > LONGEST_LOG:
        file.replace(file.with_suffix(".log.old"))
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def tail(file: Path, size: int = 2000) -> str:
    try:
        return file.read_bytes()[-size:].decode(errors="replace")
    except OSError:
        return ""
