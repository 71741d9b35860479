"""Processes of a stack that scenarios kill, and a fair draw among them."""

import os
import random
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pools.providers.local import agent_folder
from project.kernel.embedded import detached
from project.kernel.embedded.detached import Process
from tests.end_to_end.stack import Stack, wait_gone

# The supervisor waits longer and longer with what dies again and again sooner than that.
STEADY = 35.0
IN_A_ROW = 3
AGENT = "agent"
# Name -> a part of its command line.
VICTIMS = {
    "web": "embedded.web",
    "allocate": "manage.py allocate",
    "finalize": "manage.py finalize",
    "relay": "manage.py relay",
    "worker": "celery",
    "postgres": "bin/postgres",
    "valkey": "valkey-server",
}
SCALERS = {"scale": "manage.py scale", "watch": "manage.py watch"}
ALL = VICTIMS | SCALERS
ESTABLISHED = "01"  # in /proc/net/tcp


@dataclass
class Draw:
    """Chooses the next victim. All die once before any dies twice; none dies so often in a row
    that its supervisor rightly delays its restart.
    """

    chance: random.Random
    victims: Mapping[str, str] = field(default_factory=lambda: ALL)
    deaths: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.deaths = {name: [] for name in self.victims}

    def next(self) -> str:
        now = time.monotonic()
        alive = [name for name, times in self.deaths.items() if not times]
        fit = [
            name
            for name, times in self.deaths.items()
            if len(times) < IN_A_ROW or times[-1] < now - STEADY
        ]
        victim = self.chance.choice(alive or fit or list(self.victims))
        times = self.deaths[victim]
        if times and times[-1] < now - STEADY:
            times.clear()
        times.append(now)
        return victim


@dataclass
class DrawWithAgents(Draw):
    """Every fourth victim is an agent."""

    drawn: int = 0

    def next(self) -> str:
        self.drawn += 1
        return super().next() if self.drawn % 4 else AGENT


def kill_process(pid: int) -> None:
    """kill -9, and proof that the process has died."""
    os.kill(pid, signal.SIGKILL)
    assert wait_gone([pid], 10) == [], f"process {pid} lives after kill -9"


def kill(stack: Stack, victim: str, chance: random.Random) -> str:
    """Kills the victim; describes which process it was."""
    if victim != AGENT:
        kill_process(stack.wait_for_process(ALL[victim]))
        return victim
    # As if ten good minutes had passed: what is tried here is not the back-off of restarts.
    stack.execute("update pools_member set restarts = 0, gave_up_at = null where state = 'ready'")
    running = list_agents(stack)
    assert running, "no agent is up that could be killed"
    name, process = chance.choice(running)
    kill_process(process.pid)
    return name


def list_agents(stack: Stack) -> list[tuple[str, Process]]:
    """Agents of the local provider that run, by the name of their folder."""
    folders = sorted((stack.home / agent_folder.FOLDER).glob("*"))
    return [
        (folder.name, process)
        for folder in folders
        if (process := detached.read(folder)) and detached.is_alive(process)
    ]


def list_owners(stack: Stack, ports: Iterable[int]) -> set[str]:
    """Names of the processes of the stack whose connections leave from these TCP ports."""
    wanted = set(ports)
    sockets = {
        f"socket:[{words[9]}]"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if (words := line.split())[3] == ESTABLISHED
        and int(words[1].rpartition(":")[2], 16) in wanted
    }
    found = set()
    for pid, command in stack.list_processes().items():
        if any(target in sockets for target in list_targets(pid)):
            found.add(next((name for name, part in ALL.items() if part in command), command))
    return found


def list_targets(pid: int) -> list[str]:
    """What the file descriptors of a process lead to; nothing if it has ended."""
    found = []
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed since
                found.append(str(file.readlink()))
    return found
