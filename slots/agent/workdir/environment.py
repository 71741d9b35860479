"""The environment of a task: an allow-list of the agent's, the variables and secrets of the pool,
and facts about the run. The agent's token is not part of it.
"""

from __future__ import annotations

import os

from ..processes.users import User
from ..server.protocol import WorkOrder
from .folders import Folder

INHERITED = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
)
# The folder for Unix sockets of Terraform's providers (go-plugin). The default, TMPDIR, may have
# too long a path.
SOCKETS = "PLUGIN_UNIX_SOCKET_DIR"
# These would change the options and folders that the executor gives to `plan` and `apply`.
REFUSED = ("TF_CLI_ARGS", "TF_DATA_DIR", "TF_INPUT", "TF_WORKSPACE", "BERTH_")


def task_environment(work: WorkOrder, folder: Folder, user: User | None) -> dict[str, str]:
    base = {name: os.environ[name] for name in INHERITED if os.environ.get(name)}
    base.setdefault("PATH", os.defpath)
    base.setdefault("LANG", "C.UTF-8")
    name = f"task-{user.uid}" if user else os.environ.get("USER", "task")
    own = {
        "HOME": str(folder.home),
        "TMPDIR": str(folder.tmp),
        "USER": name,
        "LOGNAME": name,
        "TERM": "xterm-256color",
    }
    if sockets := folder.link_short_tmp():
        own[SOCKETS] = sockets
    given = {
        key: value
        for key, value in {**work.env, **work.secrets}.items()
        if not key.startswith(REFUSED)
    }
    return {
        **base,
        **own,
        **given,
        "BERTH_CLAIM": str(work.claim),
        "BERTH_GENERATION": str(work.generation),
        "BERTH_STEP": work.step,
        "BERTH_TASK": work.task,
        "BERTH_WORKSPACE": work.workspace,
        "BERTH_REQUESTED_BY": work.requested_by,
    }


def isolated_tmp(environment: dict[str, str], folder: Folder) -> dict[str, str]:
    """Changed variables of a program in namespaces, where the task's `tmp` is mounted as /tmp."""
    own = {"TMPDIR": str(folder.tmp), SOCKETS: folder.link_short_tmp()}
    return {name: "/tmp" for name, value in own.items() if value and environment.get(name) == value}  # noqa: S108
