"""What a task finds in its environment: an allow-list, the pool's, its secrets, and the agent's
own words. Never the agent's token.
"""

from __future__ import annotations

import os

from ..processes.users import User
from ..server.protocol import WorkOrder
from .folders import Folder

INHERITED = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *(
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "all_proxy",
    ),
)
# Where Terraform's providers make their Unix sockets (go-plugin). Without it they use TMPDIR, whose
# path may be too long.
SOCKETS = "PLUGIN_UNIX_SOCKET_DIR"
# They change what `plan` and `apply` are told to do, or where they look, behind the
# executor's back.
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
    if sockets := folder.name_sockets():
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
    """What changes for a program in namespaces: the folder's `tmp` is its own /tmp there."""
    own = {"TMPDIR": str(folder.tmp), SOCKETS: folder.name_sockets()}
    return {name: "/tmp" for name, value in own.items() if value and environment.get(name) == value}  # noqa: S108
