"""Agents of the local provider in the test's own folder, and waits for a condition."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pools.providers.base import MemberSnapshot, PoolSnapshot
from pools.providers.local import agent_folder
from project.kernel.embedded import detached

PATIENCE = 20.0
POOL = PoolSnapshot(id=7, name="lab", provider="local")


def member(
    state: str = "creating",
    *,
    incarnation: int = 1,
    number: int = 1,
    token: str = "berthm_1_x",
    slots: Any = (),
) -> MemberSnapshot:
    return MemberSnapshot(
        id=number,
        name=f"m{number}",
        state=state,
        incarnation=incarnation,
        is_owned=True,
        token=token,
        slots=tuple(slots),
    )


def folder(number: int = 1) -> Path:
    return agent_folder.folder_of(POOL, member(number=number))


def is_up(number: int = 1) -> int:
    """The number of the process that is up in this folder, if it is the one on record; else 0."""
    process = detached.read(folder(number))
    try:
        told = int((folder(number) / "up").read_text())
    except (OSError, ValueError):
        return 0
    return told if process is not None and told == process.pid and detached.is_alive(process) else 0


def agents_in(home: Path) -> dict[str, detached.Process]:
    """Agents that are up, by pool and member."""
    found = {
        place.name.rpartition(".")[0]: detached.read(place)
        for place in sorted((home / agent_folder.FOLDER).glob("*"))
    }
    return {
        name: process
        for name, process in found.items()
        if process is not None and detached.is_alive(process)
    }


def end_agents(home: Path) -> None:
    for place in (home / agent_folder.FOLDER).glob("*"):
        if process := detached.read(place):
            detached.end(process, 1)


def list_marked(home: Path) -> list[int]:
    """What stand-ins started, wherever the records of them went."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if os.fsencode(f"STAND_IN_STATE={home}/") in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def processes_of(home: Path) -> list[int]:
    """Everything that runs because of a folder there, agents and what they started."""
    found = list_marked(home)
    for place in (home / agent_folder.FOLDER).glob("*"):
        process = detached.read(place)
        found += detached.list_session_processes(process) if process else []
        outsider = int((place / "outsider").read_text()) if (place / "outsider").exists() else 0
        found += [outsider] if outsider and detached.start_time(outsider) else []
    return sorted(set(found))


@contextmanager
def own_home(
    settings: Any,
    home: Path,
    *,
    agent: str = "tests.pools.providers.local.stand_in_agent",
    url: str = "http://127.0.0.1:9/",
) -> Iterator[Path]:
    """A state folder for one test; processes left at its end are killed and named."""
    before, told = agent_folder.AGENT, os.environ.get("BERTH_AGENT_URL")
    settings.BERTH_HOME, agent_folder.AGENT, os.environ["BERTH_AGENT_URL"] = home, agent, url
    try:
        yield home
    finally:
        for pid in (left := processes_of(home)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        detached.wait_until_gone(left, PATIENCE)
        agent_folder.AGENT = before
        os.environ.pop("BERTH_AGENT_URL")
        if told is not None:
            os.environ["BERTH_AGENT_URL"] = told
