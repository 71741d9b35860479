"""Child processes that end with their parent and never run as root."""

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

# Loaded at import: between fork and exec, as another user, the library may be unreadable.
LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
PR_SET_PDEATHSIG = 1
UNPRIVILEGED = "nobody"
BARE_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
LONGEST_LOG = 20_000_000
CACHE = Path("/var/cache/berth")
STALE = 3600.0  # seconds after which an incomplete copy is abandoned


class StartupError(Exception):
    """A fault that the person at the terminal can correct. The text names fault and way out."""


def die_with_parent(sig: signal.Signals) -> Callable[[], None]:
    """For `preexec_fn`: the kernel sends `sig` when the forking thread ends, even by kill -9.

    Children are therefore started from the supervisor's main thread only. `preexec_fn` runs after
    setuid, which would clear the flag.
    """
    parent = os.getpid()

    def arm() -> None:
        if LIBC is not None:
            LIBC.prctl(PR_SET_PDEATHSIG, int(sig))
            if os.getppid() != parent:  # the parent died after the fork
                os.kill(os.getpid(), signal.SIGKILL)

    return arm


def is_root() -> bool:
    return os.geteuid() == 0


def unprivileged() -> dict[str, Any]:
    """Arguments for Popen: root starts the child as the user nobody; other users keep their
    identity.
    """
    if not is_root():
        return {}
    user = pwd.getpwnam(UNPRIVILEGED)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def chown_to_unprivileged(path: Path | int) -> None:
    """As root, makes the unprivileged user the owner."""
    if is_root():
        user = pwd.getpwnam(UNPRIVILEGED)
        os.chown(path, user.pw_uid, user.pw_gid)


def is_reachable(path: Path) -> bool:
    """Whether the unprivileged user can execute the file. False below a private home (0700)."""
    if not is_root():
        return True
    return (
        subprocess.run(
            ["/usr/bin/env", "test", "-x", str(path)], cwd="/", **unprivileged()
        ).returncode
        == 0
    )


def reachable_copy(root: Path, names: list[str]) -> Path:
    """A copy of `names` under `root` that the unprivileged user can execute, made once for each
    version, in a folder that only root can write.

    The copy appears complete or not at all, and its modes do not depend on the umask.
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
    for left in CACHE.glob(f"{target.name}.*"):  # of a start that was killed
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
    """All users may read the files and execute what the owner may execute; only the owner may
    write.
    """
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
    """Whether the process is alive with this working directory. Pids are reused, so a live pid
    alone proves too little.
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


def open_log(file: Path) -> IO[bytes]:
    """Opens the log for appending. A large log is rotated to `.log.old` first."""
    if file.exists() and file.stat().st_size > LONGEST_LOG:
        file.replace(file.with_suffix(".log.old"))
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def tail(file: Path, size: int = 2000) -> str:
    try:
        return file.read_bytes()[-size:].decode(errors="replace")
    except OSError:
        return ""
