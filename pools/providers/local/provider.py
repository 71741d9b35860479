"""Agents as processes on this machine: started, found again after a restart of everything, and
ended with all that they started.

Each member has a folder under BERTH_HOME/agents. What runs is read from the processes themselves
(project.kernel.embedded.detached), so a start whose record was lost is found and taken over, and an
incarnation is never started twice.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from django.conf import settings

from pools.config.parsing import Faults, field_path
from pools.config.task_spec import read_env
from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    Provider,
    Seen,
)
from pools.providers.display import ProviderTexts
from pools.providers.local.protection import WAY_OUT, find_protection, why_refused
from project.kernel.embedded import detached
from project.kernel.embedded.detached import Process
from project.kernel.embedded.process import write_private
from project.kernel.outbox.operations import (
    ConflictError,
    NotFoundOutside,
    PermanentError,
    ProviderError,
)
from project.settings import environment as env

AGENT = "slots.agent"  # the module that is run
REMOVER = "slots.agent.workdir.folders"  # likewise
FOLDER = "agents"
ISOLATED = ("--isolation", "namespaces")
SHARED = "sample-site"  # in BERTH_HOME, for tasks
HIDDEN = ("BERTH_FILES", "BERTH_KUBECONFIG")  # variables that name more of Berth's own state
POSTGRES_SOCKETS = "/run/postgresql"  # where it is looked for unless the URL names another folder
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108  (tasks have their own)
# Seconds after which an agent that hears from nobody and has nothing to do ends by itself.
AWAY = 120
# Seconds between asking an agent to end and killing what is left of it; one that is ended
# has no task.
PATIENCE = 5.0
# Seconds for what a dead agent left behind to be found and ended; it asks before it kills.
SWEEP = 50.0
STILL_ENDING = 5  # exit code of a sweep: a reaper still waits for an apply that was interrupted
REMOVAL = 60.0  # seconds for what plain removal leaves; what is done by then stays done
# What an agent gets of our environment. Its tasks get less: the agent has a list of its own.
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
# What a pool may say of it instead of us: whoever configures pools is not who runs Berth.
SETTABLE = (
    "HTTPS_PROXY", "HTTP_PROXY", "LANG", "LC_ALL", "NO_PROXY", "SSL_CERT_DIR", "SSL_CERT_FILE",
    "TZ", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip


class LocalProvider(Provider):
    kind: ClassVar[str] = "local"
    queue: ClassVar[str] = "local"
    is_owner: ClassVar[bool] = True
    runs_here: ClassVar[bool] = True
    has_agents: ClassVar[bool] = True
    look_every: ClassVar[float] = 5.0
    rotates: ClassVar[bool] = True
    option_fields: ClassVar[tuple[str, ...]] = ("env",)
    rolled: ClassVar[tuple[str, ...]] = ("env",)
    texts: ClassVar[ProviderTexts] = ProviderTexts(
        choice="agents that Berth starts on this machine",
        adding="Berth starts an agent for each on this machine.",
        takes_claims="They take claims once their agents have connected.",
        creating="Its agent is being started.",
    )

    @classmethod
    def read_options(
        cls, options: Mapping[str, Any], where: str, faults: Faults
    ) -> Mapping[str, Any]:
        """`env`: other values for what an agent passes on to its tasks. Not for what could make
        a program of it that is not ours.
        """
        given = super().read_options(options, where, faults)
        chosen = read_env(given.get("env"), field_path(where, "env"), faults)
        for name in sorted(set(chosen) - set(SETTABLE)):
            faults.add(
                field_path(f"{where}.env", name),
                f"{name} is not set for agents here.",
                f"Known: {', '.join(SETTABLE)}. Tasks: task.env.",
            )
        return {"env": dict(sorted(chosen.items()))} if chosen else {}

    def needs_token(self, pool: PoolSnapshot, member: MemberSnapshot) -> bool:
        folder = folder_of(pool, member)
        if member.state == "ready" and member.is_token_due:
            # The agent that runs reads it again and again.
            return token_file(folder, member.incarnation).exists()
        if member.state != "creating" or token_file(folder, member.incarnation).exists():
            return False
        running = _find(folder, member)
        return running is None or running.mark != member.incarnation

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        folder = folder_of(pool, member)
        if member.state == "deleting":
            remove(folder)
            return MemberReport(is_gone=True)
        if member.state == "creating":
            return self._start(folder, member, pool)
        if member.token and folder.exists():
            _write_token(folder, member)
        running = _find(folder, member)
        if running is None and not folder.exists():
            raise NotFoundOutside(f"There is no {folder}: the agent of {member.name} has vanished.")
        if running is not None and detached.is_alive(running):
            if why := end_unprotected(running, pool.claimants):
                return MemberReport(external_id=folder.name, why=why)
            # Its slots are clean once it says so itself.
            return MemberReport(is_ready=True, external_id=folder.name)
        end_leftovers(folder, running)
        draining = frozenset(slot.id for slot in member.slots if slot.state == "draining")
        return replace(_report_down(folder, running, member), clean=draining)

    def look(self, pool: PoolSnapshot) -> Observation:
        """All of them: one whose process has ended is started again, it is not gone. One that is
        to go has gone with its folder.
        """
        places = [(folder_of(pool, member), member) for member in pool.members]
        return Observation(
            tuple(
                _observe(folder, member, pool.claimants)
                for folder, member in places
                if member.state != "deleting" or folder.exists()
            )
        )

    def _start(self, folder: Path, member: MemberSnapshot, pool: PoolSnapshot) -> MemberReport:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        with start_lock(folder):
            running = _find(folder, member)
            if running is not None and running.mark == member.incarnation:
                # Started once. Whether it is again, others decide: an incarnation is never
                # started twice.
                return (
                    MemberReport(external_id=folder.name)
                    if detached.is_alive(running)
                    else _report_down(folder, running, member)
                )
            if running is not None and not detached.end(running, PATIENCE):
                raise ProviderError(f"What runs in {folder} does not end.")
            if refused := why_refused(find_protection(), pool.claimants):
                raise ProviderError(f"{refused} {WAY_OUT}")
            _write_token(folder, member)
            (folder / "ended.json").unlink(missing_ok=True)
            start_agent(folder, member.incarnation, pool.options.get("env") or {})
        return MemberReport(external_id=folder.name)


def start_agent(folder: Path, incarnation: int, chosen: Mapping[str, str]) -> Process:
    command = [sys.executable, "-m", AGENT, "--url", find_url()]
    command += [
        "--token-file",
        str(token_file(folder, incarnation)),
        "--state",
        str(folder),
        "--exit-when-away",
        str(AWAY),
    ]
    if (work := work_folder(folder)) is not None:
        command += ["--work", str(work)]
    if find_protection().kind == "namespaces":
        command += isolation_options()
    environment = _environment() | dict(chosen)
    return detached.start(
        command,
        folder,
        log=folder / "agent.log",
        environment=environment,
        cwd=settings.BASE_DIR,
        mark=incarnation,
    )


def isolation_options() -> list[str]:
    """What its tasks do not see, and where they may write besides their own folder."""
    home = Path(settings.BERTH_HOME)
    hidden = [
        home,
        settings.BASE_DIR / ".env",
        *map(Path, filter(None, map(os.environ.get, HIDDEN))),
        *list_sockets(),
    ]
    writable = [home / SHARED]
    for folder in map(Path, settings.BERTH_TASK_FOLDERS):
        if not folder.is_absolute() or any(
            folder.resolve().is_relative_to(each.resolve()) for each in hidden
        ):
            raise ProviderError(
                f"BERTH_TASK_FOLDERS names {folder}. Name whole paths, outside of Berth's own "
                f"state in {home}."
            )
        folder.mkdir(parents=True, exist_ok=True)
        writable.append(folder)
    options = [*ISOLATED]
    for name, paths in (("--hide", hidden), ("--writable", writable)):
        for path in paths:
            options += [name, str(path)]
    return options


def list_sockets() -> list[Path]:
    """By which the database and Valkey are reached here: PostgreSQL may let in whoever runs as
    Berth's user (peer), as tasks do.
    """
    host = str(settings.DATABASES["default"]["HOST"]) or POSTGRES_SOCKETS
    found = [
        Path(folder)
        for folder in host.split(",")
        if folder.startswith("/") and folder not in TEMPORARY
    ]
    at = urlsplit(settings.REDIS_URL)
    return [*found, Path(at.path)] if at.scheme in ("unix", "redis+socket") else found


def end_unprotected(process: Process, claimants: Sequence[str]) -> str:
    """An agent whose tasks could read Berth's secrets, and no longer may, is asked to end; its
    tasks end first. Why; empty: it stays.
    """
    protection = find_protection()
    why = why_refused(protection, claimants)
    if protection.kind == "namespaces" and is_unprotected(process):
        why = "It was started without the protection that is there now, and is started again."
    if why:
        detached.request_stop(process)
    return why


def is_unprotected(process: Process) -> bool:
    """Whether it runs without isolation. A process that is just ending has no command line any
    more, and needs none.
    """
    words = detached.command_line(process)
    return bool(words) and not any(
        words[i : i + len(ISOLATED)] == list(ISOLATED) for i in range(len(words))
    )


def remove(folder: Path) -> None:
    """With everything that runs there. Twice is harmless."""
    for process in (detached.read(folder), detached.find(folder, incarnation_in)):
        if process is not None and not detached.end(process, PATIENCE):
            raise ProviderError(f"What runs in {folder} does not end.")
    if not folder.exists():
        return
    end_leftovers(folder, detached.read(folder))
    if (work := work_folder(folder)) is not None:
        _remove_tree(work)
    _remove_tree(folder)


def end_leftovers(folder: Path, process: Process | None) -> None:
    """Of an agent that has died: what it started may not have. The agent's own module knows how
    to tell its tasks from others.
    """
    if process is not None and not detached.is_of_this_boot(process):
        return
    if (
        process is not None
        and detached.list_session_processes(process)
        and not detached.end(process, PATIENCE)
    ):
        raise ProviderError(f"What was started in {folder} does not end.")
    if not folder.exists():
        return
    command = [sys.executable, "-m", AGENT, "--state", str(folder), "--sweep"]
    try:
        done = subprocess.run(
            command,
            cwd=settings.BASE_DIR,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=SWEEP,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ProviderError(
            f"What was started in {folder} does not end within {SWEEP:.0f} s."
        ) from None
    if done.returncode == STILL_ENDING:
        raise ProviderError(done.stderr.strip()[-300:])
    if done.returncode:
        raise ProviderError(
            f"What was started in {folder} does not end: "
            f"{done.stderr.strip()[-300:] or done.returncode}"
        )


def work_folder(folder: Path) -> Path | None:
    """Where we are root, tasks have users of their own, who can't enter a private state folder.
    None: beside the agent's state.
    """
    if os.geteuid() != 0:
        return None
    # The agent checks its owner.
    return (
        env.work()
        / f"berth-agent-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}"
    )


def agents_home() -> Path:
    return Path(settings.BERTH_HOME) / FOLDER


def folder_of(pool: PoolSnapshot, member: MemberSnapshot) -> Path:
    """Names for people; the number, because a-b and c is not a and b-c."""
    return agents_home() / f"{pool.name}-{member.name}.{member.id}"


def member_of(folder: Path) -> int | None:
    number = folder.name.rpartition(".")[2]
    return int(number) if number.isascii() and number.isdigit() else None


def token_file(folder: Path, incarnation: int) -> Path:
    return folder / f"token-{incarnation}"


def find_url() -> str:
    """Where agents of this machine find us."""
    told = os.environ.get("BERTH_AGENT_URL") or os.environ.get("BERTH_URL", "")
    if not told:
        try:
            told = json.loads((env.home() / "lock").read_text())["url"]
        except (OSError, ValueError, KeyError):
            raise PermanentError(
                "Nobody says where agents find Berth. Set BERTH_AGENT_URL, like "
                "http://127.0.0.1:8000/."
            ) from None
    return told


def incarnation_in(words: Sequence[str]) -> int | None:
    """Of the agent with this command line; None: it is none."""
    if AGENT not in words or "--token-file" not in words:
        return None
    number = words[words.index("--token-file") + 1].rpartition("-")[2]
    return int(number) if number.isdigit() else None


def why_ended(folder: Path, process: Process | None) -> str:
    if process is None:
        return "nothing runs here"
    if not detached.is_of_this_boot(process):
        return "the machine was started anew"
    told = _last_words(folder)
    words = {
        "asked": "it was asked to end",
        "away": "it heard nothing from us for long",
        "refused": "its token was not taken",
    }
    return (
        words.get(str(told.get("why")), "its process has ended")
        if told.get("pid") == process.pid
        else "its process has ended"
    )


def is_planned(folder: Path, process: Process, member: MemberSnapshot) -> bool:
    """Ended on purpose. One that never came and gave up is no such thing: it does not find us."""
    told = _last_words(folder)
    if not detached.is_of_this_boot(process):
        return True
    return told.get("pid") == process.pid and (
        told.get("why") == "asked" or (told.get("why") == "away" and member.state != "creating")
    )


@contextmanager
def start_lock(folder: Path) -> Iterator[None]:
    """Two that start the same at once: the second comes back later and finds it started."""
    with open(os.open(folder / "starting.lock", os.O_RDWR | os.O_CREAT, 0o600), "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConflictError(f"Somebody else is just starting what runs in {folder}.") from None
        yield


def _report_down(folder: Path, process: Process | None, member: MemberSnapshot) -> MemberReport:
    planned = process is not None and is_planned(folder, process, member)
    return MemberReport(
        external_id=folder.name, down=why_ended(folder, process), is_planned=planned
    )


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ} | {
        "PYTHONUNBUFFERED": "1",
        "MALLOC_ARENA_MAX": "2",
    }


def _remove_tree(top: Path) -> None:
    """Also what a task has locked against itself, or nested a thousand deep: the agent's own
    module copes with that.
    """
    with suppress(OSError, RecursionError):
        shutil.rmtree(top)
    if top.exists():
        command = [sys.executable, "-m", REMOVER, str(top)]
        try:
            subprocess.run(
                command,
                cwd=settings.BASE_DIR,
                env=_environment(),
                capture_output=True,
                timeout=REMOVAL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ProviderError(f"{top} is not removed within {REMOVAL:.0f} s.") from None
        if top.exists():
            raise ProviderError(f"{top} cannot be removed.")


def _observe(folder: Path, member: MemberSnapshot, claimants: Sequence[str]) -> Seen:
    process = _find(folder, member)
    if process is None or (process.mark != member.incarnation and member.state == "creating"):
        is_down = member.state != "creating"
        why = "its agent has not been started yet" if not is_down else why_ended(folder, None)
        return Seen(member.id, is_ready=False, external_id=folder.name, why=why, is_down=is_down)
    if detached.is_alive(process) and (why := end_unprotected(process, claimants)):
        return Seen(member.id, is_ready=False, external_id=folder.name, why=why)
    if detached.is_alive(process):  # ready it is from its first word on, not because it runs
        is_here = member.state != "creating"
        return Seen(
            member.id,
            is_ready=is_here,
            external_id=folder.name,
            why="" if is_here else "its agent has not come yet",
        )
    planned = is_planned(folder, process, member)
    return Seen(
        member.id,
        is_ready=False,
        external_id=folder.name,
        why=why_ended(folder, process),
        is_down=True,
        is_planned=planned,
    )


def _find(folder: Path, member: MemberSnapshot) -> Process | None:
    """What runs in a folder, else what ran there last."""
    known = detached.read(folder)
    if known is not None and (detached.is_alive(known) or known.mark == member.incarnation):
        return known
    found = detached.find(folder, incarnation_in)
    if found is None:
        return known
    if folder.exists():
        detached.adopt(folder, found)
    return found


def _write_token(folder: Path, member: MemberSnapshot) -> None:
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


def _last_words(folder: Path) -> Mapping[str, Any]:
    try:
        told = json.loads((folder / "ended.json").read_text())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}
