"""Becomes a task's process. Runs as `python -I -S -c <this text> <go> <said>` in a session of its own, before the task's program.

It waits for a line that says what to run: the agent has written down by then that this process exists. An agent that died before has run
nothing. No imports beyond the standard library, none from the package.
"""

import json
import os
import resource
import signal
import sys
import warnings  # noqa: F401  (os.execvpe asks for it, when Python's own folder may be out of the user's reach)

try:
    import ctypes
except ImportError:  # a Python built without it
    ctypes = None  # type: ignore[assignment]

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def become(order):  # type: ignore[no-untyped-def]
    os.umask(0o077)
    for name, soft, hard in order["limits"]:
        number = getattr(resource, name, None)
        if number is not None:
            most = resource.getrlimit(number)[1]
            fits = [value if most == resource.RLIM_INFINITY else min(value, most) for value in (soft, hard)]
            resource.setrlimit(number, (fits[0], fits[1]))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:  # short of memory, the task goes and not the agent
            file.write("500")
    except OSError:
        pass
    os.chdir(order["cwd"])
    if order["uid"] is not None:
        os.setgroups([])
        os.setgid(order["gid"])
        os.setuid(order["uid"])
    try:
        if ctypes is not None:
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what it lets go of stays below it
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # an agent that is killed takes its task along
    except (AttributeError, OSError):
        pass
    if os.getppid() != order["parent"]:
        os._exit(125)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if order["view"] is not None:
        enter(View.read(order["view"]), order["cwd"])  # type: ignore[name-defined]  # noqa: F821  (isolation.py stands before this text)


def leave_out_shut(env):  # type: ignore[no-untyped-def]
    """A shell that looks into a folder it may not enter calls a program that is nowhere `Permission denied`."""
    folders = env.get("PATH", "").split(os.pathsep)
    env["PATH"] = os.pathsep.join(each for each in folders if os.access(each or os.curdir, os.X_OK)) or os.defpath


def main():  # type: ignore[no-untyped-def]
    go, said = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(said, False)
    with os.fdopen(go, "rb") as stream:
        line = stream.readline()
    if not line.endswith(b"\n"):
        os._exit(125)
    order = json.loads(line)
    try:
        become(order)  # type: ignore[no-untyped-call]
        leave_out_shut(order["env"])  # type: ignore[no-untyped-call]
        os.execvpe(order["argv"][0], order["argv"], order["env"])  # noqa: S606
    except Exception as error:
        os.write(said, json.dumps([getattr(error, "errno", 0), str(error)]).encode())
    os._exit(127)


if __name__ == "__main__":
    main()  # type: ignore[no-untyped-call]
