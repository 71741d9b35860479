"""A thousand agents that wait for orders and report every 15 seconds, by polls and by sockets, and
agents that send logs.
"""

import asyncio
import hashlib
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from os import getpid
from pathlib import Path
from typing import Any

from django.db import connection

from claims.allocation.bulk import create_claims
from claims.allocation.requests.claim_request import ClaimRequest
from claims.benches.agent_client import BASE, AsyncLine, OrderHandler, SimulatedAgent, stop
from claims.benches.processes import running, web_server
from claims.benches.rows.seed import WHO, make_agents
from claims.tasks.logs.logs import CHUNK_BYTES, read_text
from claims.tasks.run_spec import RunRequest
from project.kernel.bench.registry import AT_MOST, BenchRun, Goal, NothingMeasured, bench
from project.kernel.db.sql import run as run_sql

POOL = "agents"
SETTLE = 16.0  # seconds until the first wait of every agent is over
LOUD = 12  # agents with a task that prints
# Commands of the server's processes, among the children of this process.
OURS = ("project.kernel.embedded.web", "manage.py")
Way = Callable[[SimulatedAgent, OrderHandler], Coroutine[Any, Any, None]]
SILENT = """
SELECT count(*) AS n FROM pools_member m LEFT JOIN pools_heartbeat h ON h.member_id = m.id
  AND h.incarnation = m.incarnation
WHERE m.state <> 'ready' OR h.at IS NULL OR h.at < now() - interval '20 s'"""


@dataclass
class PrintingTask:
    """A task that prints, with the size and digest of its output."""

    claim: int
    generation: int
    line: AsyncLine
    seq: int = 0
    size: int = 0
    digest: Any = field(default_factory=hashlib.sha256)


@bench(
    "agents",
    (
        "1,000 connected agents that report every 15 s: CPU of the server without PostgreSQL, in "
        "cores; and received logs, in MB a minute"
    ),
    [
        Goal("cpu_share", 0.5, AT_MOST),
        Goal("cpu_share_sockets", 0.5, AT_MOST),
        Goal("log_mb_per_min", 100.0),
    ],
)
def bench_agents(run: BenchRun) -> Mapping[str, object]:
    count, watched, printed = (20, 2.0, 2.0) if run.is_quick else (1000, 60.0, 30.0)
    tokens = make_agents(POOL, count, ["any", "plan", "plan"])
    with (
        run.reference_around() as around,
        web_server() as (host, port),
        running(["manage.py", "controllers"]),
    ):
        found = asyncio.run(play(host, port, tokens, watched, printed, run))
    return {**found, "agents": count, "beat_s": 15, **around}


async def play(
    host: str, port: int, tokens: list[str], watched: float, printed: float, run: BenchRun
) -> Mapping[str, object]:
    agents = [SimulatedAgent(host, port, token, boot="bench") for token in tokens]
    for at in range(0, len(agents), 50):
        await asyncio.gather(*(agent.hello() for agent in agents[at : at + 50]))
    polling, polled = await listen(agents, SimulatedAgent.listen, watched)
    run.log(f"  {len(agents)} agents wait")
    polls, idle = polled[0], await measure(watched)
    polls = polled[0] - polls
    silent = await asyncio.to_thread(count_silent)
    await stop(polling)
    for agent in agents:
        await agent.waiting.close()
    listeners, received = await listen(agents, SimulatedAgent.listen_by_socket, watched)
    run.log(f"  {len(agents)} agents are connected")
    before, connected = received[0], await measure(watched)
    beats = received[0] - before
    silent += await asyncio.to_thread(count_silent)
    tasks = await asyncio.to_thread(make_tasks)
    lines = await begin(host, port, tokens, tasks)
    rate, busy = await print_logs(lines, printed)
    lost = await asyncio.to_thread(find_loss, lines)
    await stop(listeners)
    for each in lines:
        await each.line.close()
    for agent in agents:
        await agent.close()
    if watched > SETTLE and silent:
        raise RuntimeError(f"{silent} agents have no heartbeat")
    if lost:
        raise RuntimeError(f"{lost} logs differ from what was sent")
    if watched > SETTLE and not (polls and beats):
        raise NothingMeasured(f"{polls} polls and {beats} beats were answered.")
    return {
        "cpu_share": round(idle, 3),
        "cpu_share_sockets": round(connected, 3),
        "log_mb_per_min": round(rate * 60 / 1e6, 1),
        "cpu_share_with_logs": round(busy, 3),
        "polls_per_second": round(polls / watched, 1),
        "heard_per_second": round(beats / watched, 1),
        "log_mb": round(sum(each.size for each in lines) / 1e6, 1),
        "logs": len(lines),
    }


async def listen(
    agents: list[SimulatedAgent], way: Way, watched: float
) -> tuple[list["asyncio.Task[None]"], list[int]]:
    """Starts the agents one after the other over the time of a wait. Returns their tasks and the
    count of received messages.
    """
    received, listeners = [0], list["asyncio.Task[None]"]()

    def count(agent: SimulatedAgent, answer: Mapping[str, Any]) -> None:
        received[0] += 1

    for agent in agents:
        listeners.append(asyncio.create_task(way(agent, count)))
        await asyncio.sleep(min(SETTLE, watched) / len(agents))
    return listeners, received


async def measure(seconds: float) -> float:
    """Cores that the server uses during this time."""
    first, began = cpu_seconds(), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_seconds() - first) / (time.monotonic() - began)


def cpu_seconds() -> float:
    """CPU time of the server's processes (children of this process) and of their children.
    Read from their CPU clocks: the ticks of /proc/<pid>/stat last 10 ms, too long for a quick run.
    """
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = int(fields[1])
                used[int(folder.name)] = time.clock_gettime(cpu_clock(int(folder.name)))
    roots = {pid for pid, parent in parents.items() if parent == getpid() and is_ours(pid)}
    return sum(
        seconds for pid, seconds in used.items() if pid in roots or parents.get(pid) in roots
    )


def cpu_clock(pid: int) -> int:
    """The clock id of clock_getcpuclockid(3), which counts all threads, also ended ones."""
    return (~pid << 3) | 2


def is_ours(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
    return any(each in command for each in OURS)


def make_tasks() -> list[tuple[int, int, int]]:
    """Creates bound claims with tasks: claim, generation, member."""
    run = RunRequest("command", (("plan", "make plan"),))
    wanted = [
        ClaimRequest(
            pools=(POOL,), kind="plan", task="plan", owner=f"run:{i}", requested_by=WHO, work=run
        )
        for i in range(LOUD)
    ]
    found = []
    for claim in create_claims(wanted):
        if isinstance(claim, Exception) or claim.state != "bound":
            raise RuntimeError(f"not bound: {claim}")
        found.append((claim.id, claim.generation, claim.slots[0].member_id))
    connection.close()
    return found


async def begin(
    host: str, port: int, tokens: list[str], tasks: list[tuple[int, int, int]]
) -> list[PrintingTask]:
    by_member = {int(token.split("_")[1]): token for token in tokens}
    lines = []
    for claim, generation, member in tasks:
        line = AsyncLine(host, port, by_member[member])
        status, answer = await line.call(
            "POST", f"{BASE}tasks/{claim}/{generation}/started/", {"boot": "bench"}
        )
        if status != 200:
            raise RuntimeError(f"started: {status} {answer}")
        lines.append(PrintingTask(claim, generation, line))
    return lines


async def print_logs(lines: list[PrintingTask], seconds: float) -> tuple[float, float]:
    """Received bytes per second, and the cores that they cost. Each task prints as fast as it may,
    up to the size limit of a log, in pieces like those of an agent.
    """
    texts = make_texts()
    end = time.monotonic() + seconds
    share = asyncio.create_task(measure(seconds))
    began = time.monotonic()
    await asyncio.gather(*(print_log(each, texts, end) for each in lines))
    took = time.monotonic() - began
    return sum(each.size for each in lines) / took, await share


async def print_log(printing: PrintingTask, texts: list[str], end: float) -> None:
    most = 7_500_000  # a log stores 8 MB
    pace = most / max(1.0, end - time.monotonic())
    began = time.monotonic()
    while time.monotonic() < end and printing.size < most:
        text = texts[(printing.claim + printing.seq) % len(texts)]
        where = f"{BASE}tasks/{printing.claim}/{printing.generation}/log/"
        status, answer = await printing.line.call(
            "POST", where, {"seq": printing.seq, "text": text, "lines": text.count("\n")}
        )
        if status != 200 or answer["next"] != printing.seq + 1:
            raise RuntimeError(f"log: {status} {answer}")
        printing.seq += 1
        printing.size += len(text)
        printing.digest.update(text.encode())
        await asyncio.sleep(max(0.0, began + printing.size / pace - time.monotonic()))


def make_texts() -> list[str]:
    """Distinct pieces of Terraform output."""
    draw = random.Random(1)
    texts = []
    for _ in range(16):
        lines, size = [], 0
        while size < CHUNK_BYTES - 200:
            lines.append(
                f"module.net[{draw.randrange(999)}].aws_subnet.a: Refreshing state... "
                f'[id="subnet-{draw.getrandbits(64):016x}"]\n'
            )
            size += len(lines[-1])
        texts.append("".join(lines))
    return texts


def find_loss(lines: list[PrintingTask]) -> int:
    """The number of logs that differ from what was sent."""
    lost = 0
    for each in lines:
        kept = hashlib.sha256()
        for part in read_text(each.claim, each.generation):
            kept.update(part)
        lost += kept.digest() != each.digest.digest()
    connection.close()
    return lost


def count_silent() -> int:
    found = int(run_sql(SILENT, prepare=False)[0].n)
    connection.close()
    return found
