import json
import os
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

PYTHON = os.environ.get("BERTH_AGENT_PYTHON", sys.executable)  # to try all of this on an older one
ROOT = Path(__file__).resolve().parents[3]


class Agent:
    """The agent as a process of its own."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *options: str,
        token: str = TOKEN,
        program: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> None:
        self.folder, self.url, self.options, self.program = (
            folder,
            url,
            options,
            program or (PYTHON, "-m", "slots.agent"),
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
def start_agent(server: Server, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    agents: list[Agent] = []

    def start(*options: str, folder: Path = tmp_path, url: str = "", **more: Any) -> Agent:
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
