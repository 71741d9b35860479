import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slots.agent.common.state import FINISHED, REPORTED
from slots.agent.processes.process_table import list_marked
from tests.waiting import PATIENCE, load

from .fake_berth import TOKEN, Server


def read_version(python: Path) -> tuple[int, ...]:
    """Such as (3, 8, 18), of a Python in a folder of pyenv."""
    return tuple(int(part) for part in re.findall(r"\d+", python.parts[-3]))


OLDEST = (3, 8)  # the oldest version that the agent supports
OTHER_PYTHONS = [
    path
    for path in Path.home().glob(".pyenv/versions/3.*/bin/python3")
    if read_version(path) >= OLDEST
]
CHOSEN = os.environ.get("BERTH_AGENT_PYTHON")  # to try all of this on one Python
PYTHON = CHOSEN or sys.executable
# Tests marked `oldest_python` run the agent on this one.
OLD_PYTHON = CHOSEN or str(min(OTHER_PYTHONS, key=read_version, default=sys.executable))
ROOT = Path(__file__).resolve().parents[3]


class Agent:
    """The agent as a process of its own."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *options: str,
        token: str = TOKEN,
        program: tuple[str, ...] = (PYTHON, "-m", "slots.agent"),
        env: dict[str, str] | None = None,
    ) -> None:
        self.folder, self.url, self.options, self.program = (
            folder,
            url,
            options,
            program,
        )
        self.env = {**os.environ, **(env or {})}
        self.token = folder / "token"
        self.token.write_text(token)
        self.token.chmod(0o600)
        self.state = folder / "state"
        self.said = folder / "agent.log"
        self.start()

    def start(self) -> None:
        command = [
            *self.program,
            "--url",
            self.url,
            "--token-file",
            str(self.token),
            "--state",
            str(self.state),
            *self.options,
        ]
        with self.said.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=self.env, stderr=log, stdin=subprocess.DEVNULL
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE * load())

    @property
    def log(self) -> str:
        return self.said.read_text()


def has_left(folder: Path) -> bool:
    """Whether an agent left a run that has not ended, or a process: else a sweep has no work."""
    identity = folder / "id"
    try:
        phases = {json.loads(path.read_text())["phase"] for path in folder.glob("runs/*.json")}
    except (ValueError, KeyError, TypeError):  # a test has torn it
        return True
    return not phases <= {FINISHED, REPORTED} or (
        identity.exists() and list_marked(f".{identity.read_text()}") != []
    )


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def start_agent(
    request: pytest.FixtureRequest, server: Server, tmp_path: Path
) -> Iterator[Callable[..., Agent]]:
    agents: list[Agent] = []
    is_old = request.node.get_closest_marker("oldest_python") is not None
    usual = (OLD_PYTHON if is_old else PYTHON, "-m", "slots.agent")

    def start(*options: str, folder: Path = tmp_path, url: str = "", **more: Any) -> Agent:
        more.setdefault("program", usual)
        agent = Agent(url or server.url, folder, "--task-user", "same", *options, **more)
        agents.append(agent)
        return agent

    yield start
    for agent in agents:
        agent.process.kill()
        agent.process.wait()
        if has_left(agent.state):
            subprocess.run(
                [sys.executable, "-m", "slots.agent", "--sweep", "--state", str(agent.state)],
                cwd=ROOT,
                check=False,
            )


@pytest.fixture
def agent(start_agent: Callable[..., Agent]) -> Agent:
    return start_agent()
