"""What runs a container stands between the kubelet and it: all that the container starts is below
this process, and ends with it.

python -m tests.kubernetes_cluster.container_init COMMAND...     TERM is passed on; the container's
                                                                 end is ours, once all of it has
                                                                 ended; KILL of all: USR1.
Ends everything when its parent is gone.
"""

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: what loses its parent below us becomes our child
LOOK = 0.5  # seconds after which we see whether our parent is still there


def list_below() -> list[int]:
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            if fields[0] != "Z":
                parents[int(folder.name)] = int(fields[1])
    found: list[int] = []
    level = {os.getpid()}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found += level
    return found


def end_all() -> None:
    """Repeats, because a process may be forking."""
    while below := list_below():
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
    reap()


def reap() -> dict[int, int]:
    codes: dict[int, int] = {}
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    return codes


def main() -> int:
    parent = os.getppid()
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    heard = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    unblock = (
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_SETMASK, []); "
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", unblock, *sys.argv[1:]], stdin=subprocess.DEVNULL
    ).pid
    while True:
        got = signal.sigtimedwait(heard, LOOK)
        if got is not None and got.si_signo == signal.SIGTERM:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        code = reap().get(child)
        if (
            code is not None
            or os.getppid() != parent
            or (got is not None and got.si_signo == signal.SIGUSR1)
        ):
            end_all()
            return 137 if code is None else code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
