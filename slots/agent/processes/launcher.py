"""Becomes a task's program: the last steps of its process, between fork and exec."""

from __future__ import annotations

import json
import os
import resource
import signal

# os.execvpe asks for it, when Python's own folder may be out of the user's reach.
import warnings  # noqa: F401
from typing import Any

from .isolation import View, enter
from .process_table import adopt_orphans

DEFAULTS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE", "SIGXFSZ", "SIGCHLD")


def launch(order: dict[str, Any], out: int, err: int, failed: int) -> None:
    """Does not return. What keeps the program from starting is written to `failed`, which
    exec closes.
    """
    try:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(err, 2)
        for name in DEFAULTS:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        become(order)
        leave_out_shut(order["env"])
        os.execvpe(order["argv"][0], order["argv"], order["env"])  # noqa: S606
    except BaseException as error:  # whatever it is, nothing after this runs in the child
        os.write(failed, json.dumps([getattr(error, "errno", 0), str(error)]).encode())
    finally:
        os._exit(127)


def become(order: dict[str, Any]) -> None:
    os.umask(0o077)
    for name, soft, hard in order["limits"]:
        number = getattr(resource, name, None)
        if number is not None:
            most = resource.getrlimit(number)[1]
            fits = [
                value if most == resource.RLIM_INFINITY else min(value, most)
                for value in (soft, hard)
            ]
            resource.setrlimit(number, (fits[0], fits[1]))
    try:
        # Short of memory, the task goes and not the agent.
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:
        pass
    os.chdir(order["cwd"])
    if order["uid"] is not None:
        os.setgroups([])
        os.setgid(order["gid"])
        os.setuid(order["uid"])
    adopt_orphans()  # what it lets go of stays below it
    if order["view"] is not None:
        enter(View.read(order["view"]), order["cwd"])


def leave_out_shut(env: dict[str, str]) -> None:
    """A shell that looks into a folder it may not enter calls a program that is nowhere
    `Permission denied`.
    """
    folders = env.get("PATH", "").split(os.pathsep)
    env["PATH"] = (
        os.pathsep.join(each for each in folders if os.access(each or os.curdir, os.X_OK))
        or os.defpath
    )
