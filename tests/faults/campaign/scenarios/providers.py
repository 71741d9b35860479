"""Injected faults for the providers `local` and `agents`, whose worlds are processes."""

import fcntl
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

from pools.providers.local import agent_folder
from project.kernel.embedded import detached
from tests.end_to_end.stack import command_of
from tests.faults.campaign.scenario import NotInjectedError, Outcome, scenario
from tests.faults.campaign.scenarios.twins import state_of
from tests.faults.campaign.site import WITHIN, Site, SiteScenario
from tests.faults.campaign.tasks import LOCAL, Plans, sleepy
from tests.faults.victims import kill_process
from tests.pools.providers.local.helpers import agents_in
from tests.slots.agent.conftest import Agent
from tests.waiting import wait_until

READY = "select count(*) from pools_member where state = 'ready'"
RUNS = 3  # a plan whose agent died returns to the queue


def freeze(pid: int, chance: random.Random) -> None:
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: state_of(pid) == "T", "the agent does not stop")
        time.sleep(chance.uniform(1, 4))  # how long it is frozen
    finally:
        os.kill(pid, signal.SIGCONT)


class Providers(SiteScenario):
    counts_from = "the fault, or its end"
    plans: Plans

    def do(self, chance: random.Random, number: int) -> str:
        raise NotImplementedError

    def round(self, chance: random.Random, number: int) -> Outcome:
        # As if ten good minutes had passed: the back-off of restarts has tests of its own.
        self.site.stack.execute("update pools_member set restarts = 0, gave_up_at = null")
        claims = [self.plans.ask(sleepy(chance)) for _ in range(2)]
        if chance.random() < 0.7:
            self.plans.wait_begun(claims[0])
        fault = self.do(chance, number)
        again = self.plans.wait_served(time.monotonic())
        for claim in claims:
            self.plans.wait_ended(claim)
        self.site.stack.wait_rows(READY, lambda rows: rows == [(2,)], within=WITHIN)
        return Outcome(fault, again, findings=[*self.plans.find_broken(runs=RUNS), *self.look()])

    def look(self) -> list[str]:
        return []


@scenario
class LocalFaults(Providers):
    name = "provider-local"
    breaks = "agents of `local` die, freeze, or cannot start; their records are lost or damaged"

    def prepare(self) -> None:
        self.site = Site(self.folder, LOCAL)
        self.plans = Plans(self.site)
        self.plans.wait_served(0.0)
        self.site.stack.wait_rows(READY, lambda rows: rows == [(2,)], within=WITHIN)

    def do(self, chance: random.Random, number: int) -> str:
        way = self.pick(tuple(self.ways), number)
        folders = sorted((self.site.stack.home / agent_folder.FOLDER).glob("*"))
        folder = chance.choice(folders)
        self.ways[way](self, folder, chance)
        return f"{way} ({folder.name})"

    def look(self) -> list[str]:
        """One process for each member, and none besides."""
        home = self.site.stack.home
        running = agents_in(home)
        pids = {process.pid for process in running.values()}
        found = [f"{len(running)} agents run for 2 members"] if len(running) != 2 else []
        marked = [
            pid
            for pid in (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
            if (words := command_of(pid))
            and f"-m {agent_folder.AGENT} " in words
            and str(home) in words
            and detached.start_time(pid)
            and os.getsid(pid) == pid
        ]
        return found + [f"agent {pid} runs besides" for pid in marked if pid not in pids]

    # -- ways -------------------------------------------------------------------------------------
    def pid_in(self, folder: Path) -> int:
        process = detached.read(folder)
        if process is None or not detached.is_alive(process):
            raise NotInjectedError(f"no agent runs in {folder.name}")
        return process.pid

    def damage(self, folder: Path, text: str | None) -> None:
        """The agent runs on, and is adopted instead of started again."""
        pid, record = self.pid_in(folder), folder / detached.RECORD
        if text is None:
            record.unlink()
        else:
            record.write_text(text)

        def is_adopted() -> bool:
            found = detached.read(folder)
            return found is not None and found.pid == pid

        wait_until(is_adopted, "the agent is not adopted", within=WITHIN)

    def kill_while(self, folder: Path, chance: random.Random) -> None:
        """Kill the agent, and wait until an attempt to start it has failed."""
        kill_process(self.pid_in(folder))
        self.site.stack.wait_rows(
            "select id, attempts, error from kernel_operation where done_at is null "
            "and error <> ''",
            lambda rows: rows,
            within=WITHIN,
        )
        time.sleep(chance.uniform(0, 1))  # how long it stays so

    def hold_start(self, folder: Path, chance: random.Random) -> None:
        file = os.open(folder / "starting.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.kill_while(folder, chance)
        finally:
            os.close(file)

    def block_token(self, folder: Path, chance: random.Random) -> None:
        """Folders lie where the tokens of the next incarnations belong."""
        present = max(int(file.name.rpartition("-")[2]) for file in folder.glob("token-*"))
        blocks = [folder / f"token-{present + n}" for n in (1, 2, 3)]
        for block in blocks:
            (block / "in-the-way").mkdir(parents=True)
        try:
            self.kill_while(folder, chance)
        finally:
            for block in blocks:
                if block.is_dir():
                    shutil.rmtree(block)

    ways: ClassVar[Mapping[str, Callable[..., None]]] = {
        "agent killed": lambda self, folder, chance: kill_process(self.pid_in(folder)),
        "agent frozen": lambda self, folder, chance: freeze(self.pid_in(folder), chance),
        "record lost": lambda self, folder, chance: self.damage(folder, None),
        "record damaged": lambda self, folder, chance: self.damage(folder, '{"pid": 1'),
        "start in progress elsewhere": lambda self, folder, chance: self.hold_start(folder, chance),
        "token cannot be written": lambda self, folder, chance: self.block_token(folder, chance),
    }


AGENTS = """
kind: Pool
name: lab
provider: agents
slots: [any, any]
members: {list: [{name: one}, {name: two}]}
liveness: {heartbeat: 30s, lost: 1m}
"""


class OperatorAgent(Agent):
    """An agent as an operator starts it, with a token and a state folder."""

    def __init__(self, site: Site, folder: Path, member: int) -> None:
        self.site, self.member = site, member
        folder.mkdir()
        url = f"http://127.0.0.1:{site.stack.port}/"
        # Without a server it ends, also after a kill of the campaign.
        super().__init__(url, folder, "--exit-when-away", "120", token=self.make_token())

    def make_token(self) -> str:
        made = self.site.call("POST", f"members/{self.member}/token/", {})
        return f"{made['token']}\n"


@scenario
class AgentsFaults(Providers):
    name = "provider-agents"
    breaks = "agents of `agents` die, end, freeze, lose their state, or their token"

    def prepare(self) -> None:
        self.site = Site(self.folder, AGENTS)
        members = self.site.stack.execute("select id from pools_member order by id")
        self.agents = [
            OperatorAgent(self.site, self.folder / f"agent-{member}", member)
            for (member,) in members
        ]
        self.plans = Plans(self.site)
        self.plans.wait_served(0.0)
        self.site.stack.wait_rows(READY, lambda rows: rows == [(2,)], within=WITHIN)

    def do(self, chance: random.Random, number: int) -> str:
        way = self.pick(tuple(self.ways), number)
        agent = chance.choice(self.agents)
        self.ways[way](self, agent, chance)
        return f"{way} (member {agent.member})"

    def restart(self, agent: OperatorAgent, number: signal.Signals, *, forgets: bool) -> None:
        agent.end(number)
        if agent.process.returncode is None:
            raise NotInjectedError("the agent does not end")
        if forgets:
            shutil.rmtree(agent.state)
        agent.start()

    def replace_token(self, agent: OperatorAgent, chance: random.Random) -> None:
        """The old token is refused; the agent reads the new one from its file."""
        old = agent.token.read_text()
        agent.token.write_text(agent.make_token())
        if agent.token.read_text() == old:
            raise NotInjectedError("the token is the same")

    ways: ClassVar[Mapping[str, Callable[..., None]]] = {
        "agent killed": lambda self, agent, chance: self.restart(
            agent, signal.SIGKILL, forgets=False
        ),
        "agent ended by TERM": lambda self, agent, chance: self.restart(
            agent, signal.SIGTERM, forgets=False
        ),
        "agent killed, state lost": lambda self, agent, chance: self.restart(
            agent, signal.SIGKILL, forgets=True
        ),
        "agent frozen": lambda self, agent, chance: freeze(agent.process.pid, chance),
        "token replaced": lambda self, agent, chance: self.replace_token(agent, chance),
    }

    def close(self) -> None:
        super().close()
        for agent in getattr(self, "agents", []):
            agent.kill()
