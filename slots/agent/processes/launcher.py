"""Turns a forked process into a task's program: the steps between fork and exec."""

from __future__ import annotations

import json
import os
import resource
import signal

# os.execvpe imports it, when the task's user may have no access to Python's folder.
import warnings  # noqa: F401
from typing import Any, TypedDict

from .isolation import View, enter
from .process_table import adopt_orphans

DEFAULTS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE", "SIGXFSZ", "SIGCHLD")


class LaunchOrder(TypedDict):
    """The agent's order to a reaper, as JSON."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    uid: int | None
    gid: int | None
    view: dict[str, Any] | None  # of View; None: the task sees the whole machine
    users: list[int]
    limits: list[tuple[str, int, int]]
    mark: str
    wait_s: float
    grace_s: float
    secrets: list[str]
    log: str


def launch(order: LaunchOrder, out: int, err: int, failed: int) -> None:
    """Start the program; does not return. An error is written to `failed`, which exec closes."""
    try:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(err, 2)
        for name in DEFAULTS:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        become(order)
        leave_out_shut(order["env"])
        os.execvpe(order["argv"][0], order["argv"], order["env"])  # noqa: S606
    except BaseException as error:  # no other code may run in the child
        os.write(failed, json.dumps([getattr(error, "errno", 0), str(error)]).encode())
    finally:
        os._exit(127)


def become(order: LaunchOrder) -> None:
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
        # If the machine is short of memory, the kernel kills the task and not the agent.
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:
        pass
    os.chdir(order["cwd"])
    if order["uid"] is not None and order["gid"] is not None:
        os.setgroups([])
        os.setgid(order["gid"])
        os.setuid(order["uid"])
    adopt_orphans()  # orphans of the program stay its descendants
    if order["view"] is not None:
        enter(View(**order["view"]), order["cwd"])


def leave_out_shut(env: dict[str, str]) -> None:
    """Remove inaccessible folders from PATH. With such a folder, a shell reports a missing program
    as `Permission denied`.
    """
    folders = env.get("PATH", "").split(os.pathsep)
    env["PATH"] = (
        os.pathsep.join(each for each in folders if os.access(each or os.curdir, os.X_OK))
        or os.defpath
    )
