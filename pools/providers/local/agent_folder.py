"""Folders of local agents: tokens, the processes that run there, and removal."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from django.conf import settings

from pools.providers.base import MemberSnapshot, PoolSnapshot
from pools.providers.member_folders import member_of as member_of
from pools.providers.member_folders import name_folder
from project.kernel.embedded import detached
from project.kernel.embedded.detached import Process
from project.kernel.outbox.operations import ProviderError
from project.kernel.security.private_files import write_private
from project.settings import environment as env

AGENT = "slots.agent"  # module to run
REMOVER = "slots.agent.workdir.folders"  # module to run
FOLDER = "agents"
# Seconds between asking an agent to end and killing the rest; such an agent has no task.
PATIENCE = 5.0
# Seconds to end the processes that a dead agent left; the sweep asks before it kills.
SWEEP = 50.0
STILL_ENDING = 5  # exit code of a sweep: a reaper still waits for an interrupted apply
REMOVAL = 60.0  # seconds for files that plain removal leaves; a retry continues the removal
# Variables that an agent gets from Berth's environment. The agent passes fewer to its tasks.
PASSED_ON = (
    "BERTH_WORK",
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "PYTHONPYCACHEPREFIX",
    "PYTHONDONTWRITEBYTECODE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "TF_CLI_CONFIG_FILE",
    "TF_PLUGIN_CACHE_DIR",
)


def agents_home() -> Path:
    return Path(settings.BERTH_HOME) / FOLDER


def folder_of(pool: PoolSnapshot, member: MemberSnapshot) -> Path:
    return name_folder(agents_home(), pool, member)


def is_running(folder: Path) -> bool:
    known = (detached.read(folder), detached.find(folder, incarnation_in))
    return any(process is not None and detached.is_alive(process) for process in known)


def token_file(folder: Path, incarnation: int) -> Path:
    return folder / f"token-{incarnation}"


def write_token(folder: Path, member: MemberSnapshot) -> None:
    file = token_file(folder, member.incarnation)
    if member.token:
        write_private(file, f"{member.token}\n")
    elif not file.exists():
        raise ProviderError(
            f"There is no token yet for incarnation {member.incarnation} of {member.name}."
        )
    for old in folder.glob("token-*"):
        if old != file:
            old.unlink(missing_ok=True)


def work_folder(folder: Path) -> Path | None:
    """The working folder of an agent that runs as root: its tasks run as other users, who cannot
    enter the private state folder. None: in the state folder.
    """
    if os.geteuid() != 0:
        return None
    digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    return env.work() / f"berth-agent-{digest}"  # the agent checks the owner


def find_process(folder: Path, member: MemberSnapshot) -> Process | None:
    """The running agent of a folder, else the last one."""
    known = detached.read(folder)
    if known is not None and (detached.is_alive(known) or known.mark == member.incarnation):
        return known
    found = detached.find(folder, incarnation_in)
    if found is None:
        return known
    if folder.exists():
        detached.adopt(folder, found)
    return found


def start_process(
    folder: Path, incarnation: int, words: Sequence[str], chosen: Mapping[str, str]
) -> None:
    """Start an agent with these options. `chosen`: variables that the pool sets."""
    detached.start(
        [sys.executable, "-m", AGENT, *words],
        folder,
        log=folder / "agent.log",
        environment=_environment() | dict(chosen),
        cwd=settings.BASE_DIR,
        mark=incarnation,
    )


def read_end(folder: Path) -> Mapping[str, object]:
    """The reason of its end that an agent wrote."""
    try:
        ended = json.loads((folder / "ended.json").read_text())
    except (*detached.GONE, ValueError):
        return {}
    return ended if isinstance(ended, dict) else {}


def why_ended(folder: Path, process: Process | None) -> str:
    if process is None:
        return "no process runs"
    if not detached.is_of_this_boot(process):
        return "the machine was restarted"
    ended = read_end(folder)
    words = {
        "asked": "it was asked to end",
        "away": "it had no contact to Berth for long",
        "refused": "its token was rejected",
    }
    why = str(ended.get("why")) if ended.get("pid") == process.pid else ""
    return words.get(why, "its process has ended")


def is_planned(folder: Path, process: Process, member: MemberSnapshot) -> bool:
    """True if the process ended on purpose. An agent that never connected and gave up does not
    count, because it cannot reach Berth.
    """
    if not detached.is_of_this_boot(process):
        return True
    ended = read_end(folder)
    return ended.get("pid") == process.pid and (
        ended.get("why") == "asked" or (ended.get("why") == "away" and member.state != "creating")
    )


def incarnation_in(words: Sequence[str]) -> int | None:
    """The incarnation of the agent with this command line; None: the process is no agent."""
    if AGENT not in words or "--token-file" not in words:
        return None
    number = words[words.index("--token-file") + 1].rpartition("-")[2]
    return int(number) if number.isdigit() else None


def end_process(folder: Path, process: Process) -> None:
    if not detached.end(process, PATIENCE):
        raise ProviderError(f"The processes in {folder} do not end.")


def remove(folder: Path) -> None:
    """Remove an agent's folder, and end the processes in it. Idempotent."""
    for process in (detached.read(folder), detached.find(folder, incarnation_in)):
        if process is not None:
            end_process(folder, process)
    if not folder.exists():
        return
    end_leftovers(folder, detached.read(folder))
    if (work := work_folder(folder)) is not None:
        _remove_tree(work)
    _remove_tree(folder)


def end_leftovers(folder: Path, process: Process | None) -> None:
    """End processes that outlived their agent. The agent's own module recognises its tasks."""
    if process is not None and not detached.is_of_this_boot(process):
        return
    if (
        process is not None
        and detached.list_session_processes(process)
        and not detached.end(process, PATIENCE)
    ):
        raise ProviderError(f"Processes that an agent left in {folder} do not end.")
    if not folder.exists():
        return
    try:
        done = _run_module(AGENT, "--state", str(folder), "--sweep", timeout=SWEEP)
    except subprocess.TimeoutExpired:
        raise ProviderError(
            f"Processes that an agent left in {folder} do not end within {SWEEP:.0f} s."
        ) from None
    if done.returncode == STILL_ENDING:
        raise ProviderError(done.stderr.strip()[-300:])
    if done.returncode:
        raise ProviderError(
            f"Processes that an agent left in {folder} do not end: "
            f"{done.stderr.strip()[-300:] or done.returncode}"
        )


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ} | {
        "PYTHONUNBUFFERED": "1",
        "MALLOC_ARENA_MAX": "2",
    }


def _run_module(name: str, *words: str, timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", name, *words],
        cwd=settings.BASE_DIR,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def _remove_tree(top: Path) -> None:
    """Remove a folder. The agent's own module removes files that a task has locked, and folders
    that are nested a thousand deep.
    """
    with suppress(OSError, RecursionError):
        shutil.rmtree(top)
    if top.exists():
        try:
            _run_module(REMOVER, str(top), timeout=REMOVAL)
        except subprocess.TimeoutExpired:
            raise ProviderError(f"{top} is not removed within {REMOVAL:.0f} s.") from None
        if top.exists():
            raise ProviderError(f"{top} cannot be removed.")
