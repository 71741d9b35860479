"""Agents as processes on this machine. The provider starts them, finds them again after a restart
of Berth, and ends them with all processes that they started.

Each member has a folder under BERTH_HOME/agents. The processes themselves show what runs
(project.kernel.embedded.detached), so that an agent whose record was lost is found and adopted, and
no incarnation is started twice.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from django.conf import settings

from pools.config.fields import Fields, Option
from pools.config.task_spec import ENV
from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    Provider,
    Seen,
)
from pools.providers.display import ProviderTexts
from pools.providers.local.agent_folder import (
    agents_home,
    end_leftovers,
    end_process,
    find_process,
    folder_of,
    is_planned,
    is_running,
    remove,
    start_process,
    token_file,
    why_ended,
    work_folder,
    write_token,
)
from pools.providers.local.protection import WAY_OUT, find_protection, why_refused
from pools.providers.member_folders import list_strays, start_lock, write_pool
from project.kernel.embedded import detached
from project.kernel.embedded.detached import Process
from project.kernel.outbox.operations import (
    NotFoundOutside,
    PermanentError,
    ProviderError,
)
from project.settings import environment as env

ISOLATED = ("--isolation", "namespaces")
SHARED = "sample-site"  # in BERTH_HOME, for tasks
HIDDEN = ("BERTH_FILES", "BERTH_KUBECONFIG")  # variables that name further state of Berth
POSTGRES_SOCKETS = "/run/postgresql"  # folder of sockets unless the URL names another one
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108  (tasks have their own)
# Seconds after which an idle agent without contact to Berth ends.
AWAY = 120
# Variables that the configuration of a pool may set. An admin of pools need not be the
# administrator of Berth.
SETTABLE = (
    "HTTPS_PROXY", "HTTP_PROXY", "LANG", "LC_ALL", "NO_PROXY", "SSL_CERT_DIR", "SSL_CERT_FILE",
    "TZ", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip


def _fault_of_variable(name: object) -> tuple[str, str] | None:
    """Variables that could make the agent run other code are rejected."""
    if (fault := ENV.fault_of(name)) is not None or name in SETTABLE:
        return fault
    known = ", ".join(SETTABLE)
    return (
        f"{name} cannot be set for agents.",
        f"Use one of {known}, or set variables of tasks in task.env.",
    )


@contextmanager
def _machine_errors() -> Iterator[None]:
    """A full disk or a lack of file descriptors tells nothing about an agent: no member is reported
    down for it, and the call is repeated.
    """
    try:
        yield
    except OSError as error:
        raise ProviderError(
            f"This machine does not let Berth look after its agents: {error}. Berth tries again."
        ) from error


class LocalProvider(Provider):
    kind: ClassVar[str] = "local"
    queue: ClassVar[str] = "local"
    is_owner: ClassVar[bool] = True
    runs_here: ClassVar[bool] = True
    has_agents: ClassVar[bool] = True
    look_every: ClassVar[float] = 5.0
    rotates: ClassVar[bool] = True
    option_fields: ClassVar[Fields] = Fields(
        {
            "env": Option(
                replace(ENV, fault_of=_fault_of_variable),
                "Environment that an agent passes on to its tasks.",
            )
        }
    )
    rolled: ClassVar[tuple[str, ...]] = ("env",)
    texts: ClassVar[ProviderTexts] = ProviderTexts(
        choice="agents that Berth starts on this machine",
        adding="Berth starts an agent for each on this machine.",
        takes_claims="They take claims once their agents have connected.",
        creating="Its agent is being started.",
    )

    @_machine_errors()
    def needs_token(self, pool: PoolSnapshot, member: MemberSnapshot) -> bool:
        folder = folder_of(pool, member)
        if member.state == "ready" and member.is_token_due:
            # The running agent reads the file again and again.
            return token_file(folder, member.incarnation).exists()
        if member.state != "creating" or token_file(folder, member.incarnation).exists():
            return False
        running = find_process(folder, member)
        return running is None or running.mark != member.incarnation

    @_machine_errors()
    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        folder = folder_of(pool, member)
        if member.state == "deleting":
            remove(folder)
            return MemberReport(is_gone=True)
        if member.state == "creating":
            return self._start(folder, member, pool)
        if member.token and folder.exists():
            write_token(folder, member)
        running = find_process(folder, member)
        if running is None and not folder.exists():
            raise NotFoundOutside(f"There is no {folder}: the agent of {member.name} has vanished.")
        seen = _observe(folder, running, member, pool.claimants)
        if not seen.is_down:  # the agent itself reports draining slots as clean
            return MemberReport(is_ready=seen.is_ready, external_id=folder.name, why=seen.why)
        end_leftovers(folder, running)
        draining = frozenset(slot.id for slot in member.slots if slot.state == "draining")
        return replace(_report_down(folder, running, member), clean=draining)

    @_machine_errors()
    def look(self, pool: PoolSnapshot) -> Observation:
        """All members, because an ended process is started again and its member is not gone. A
        `deleting` member is gone once its folder is removed.
        """
        places = [(folder_of(pool, member), member) for member in pool.members]
        return Observation(
            tuple(
                _observe(folder, find_process(folder, member), member, pool.claimants)
                for folder, member in places
                if member.state != "deleting" or folder.exists()
            ),
            strays={
                member_id: f"agent {folder.name}"
                for member_id, folder in list_strays(agents_home(), pool).items()
            },
        )

    def remove_strays(self, pool: PoolSnapshot, member_ids: Collection[int]) -> None:
        """Remove the folders in which no agent runs. Berth rejects the token of a running agent of
        a gone member, so that the agent ends by itself, after its tasks.
        """
        for member_id, folder in list_strays(agents_home(), pool).items():
            if member_id in member_ids and not is_running(folder):
                remove(folder)

    def _start(self, folder: Path, member: MemberSnapshot, pool: PoolSnapshot) -> MemberReport:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        with start_lock(folder):
            write_pool(folder, pool)
            running = find_process(folder, member)
            if running is not None and running.mark == member.incarnation:
                # An incarnation is started once. The finalizer decides on a next incarnation.
                return (
                    MemberReport(external_id=folder.name)
                    if detached.is_alive(running)
                    else _report_down(folder, running, member)
                )
            if running is not None:
                end_process(folder, running)
            if refused := why_refused(find_protection(), pool.claimants):
                raise ProviderError(f"{refused} {WAY_OUT}")
            write_token(folder, member)
            (folder / "ended.json").unlink(missing_ok=True)
            start_agent(folder, member.incarnation, pool.options.get("env") or {})
        return MemberReport(external_id=folder.name)


def start_agent(folder: Path, incarnation: int, chosen: Mapping[str, str]) -> None:
    words = ["--url", find_url(), "--token-file", str(token_file(folder, incarnation))]
    words += ["--state", str(folder), "--exit-when-away", str(AWAY)]
    if (work := work_folder(folder)) is not None:
        words += ["--work", str(work)]
    if find_protection().kind == "namespaces":
        words += isolation_options()
    start_process(folder, incarnation, words, chosen)


def isolation_options() -> list[str]:
    """Options of the agent: paths that its tasks cannot see, and folders that they may write to."""
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
    """Sockets of the database and Valkey. Tasks run as Berth's user, whom PostgreSQL may let in
    without a password (peer).
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
    """Ask an agent to end, after its tasks, if its tasks can read Berth's secrets and must not.
    Returns the reason; empty: the agent stays.
    """
    protection = find_protection()
    why = why_refused(protection, claimants)
    if protection.kind == "namespaces" and is_unprotected(process):
        why = "It was started without the protection that is active now, and is restarted."
    if why:
        detached.request_stop(process)
    return why


def is_unprotected(process: Process) -> bool:
    """True if the agent runs without isolation. A process that is ending has no command line and
    needs no protection.
    """
    words = detached.command_line(process)
    return bool(words) and not any(
        words[i : i + len(ISOLATED)] == list(ISOLATED) for i in range(len(words))
    )


def find_url() -> str:
    """The address of Berth for agents on this machine."""
    url = os.environ.get("BERTH_AGENT_URL") or os.environ.get("BERTH_URL", "")
    if not url:
        try:
            url = json.loads((env.home() / "lock").read_text())["url"]
        except (FileNotFoundError, ValueError, KeyError):
            raise PermanentError(
                "The address of Berth for agents is unknown. Set BERTH_AGENT_URL, like "
                "http://127.0.0.1:8000/."
            ) from None
    return url


def _report_down(folder: Path, process: Process | None, member: MemberSnapshot) -> MemberReport:
    planned = process is not None and is_planned(folder, process, member)
    return MemberReport(
        external_id=folder.name, down=why_ended(folder, process), is_planned=planned
    )


def _observe(
    folder: Path, process: Process | None, member: MemberSnapshot, claimants: Sequence[str]
) -> Seen:
    seen = Seen(member.id, is_ready=False, external_id=folder.name)
    if process is None or (process.mark != member.incarnation and member.state == "creating"):
        if member.state == "creating":
            return replace(seen, why="its agent has not been started yet")
        return replace(seen, why=why_ended(folder, None), is_down=True)
    if not detached.is_alive(process):
        planned = is_planned(folder, process, member)
        return replace(seen, why=why_ended(folder, process), is_down=True, is_planned=planned)
    if why := end_unprotected(process, claimants):
        return replace(seen, why=why)
    if member.state == "creating":  # the first heartbeat, not the process, makes a member ready
        return replace(seen, why="its agent has not connected yet")
    return replace(seen, is_ready=True)
