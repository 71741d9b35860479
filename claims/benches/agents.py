"""A thousand agents that wait for orders, each heard every 15 seconds, by polls and over open
connections; and logs that come in.
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
from claims.benches.agent_client import BASE, AsyncLine, Heard, SimulatedAgent
from claims.benches.processes import running, web_server
from claims.benches.seed import WHO
from claims.tasks.logs.logs import CHUNK_BYTES, read_text
from claims.tasks.run_spec import RunRequest
from pools.lifecycle.services import create_pool
from pools.models import Member
from project.kernel.bench.registry import AT_MOST, BenchRun, Goal, NothingMeasured, bench
from slots.members.liveness import mark_ready
from slots.members.services import activate_pool
from slots.members.tokens import issue_token

POOL = "agents"
SETTLE = 16.0  # seconds until everybody's first wait is over
LOUD = 12  # agents whose tasks print
# Processes of the server, among those this one has started.
OURS = ("project.kernel.embedded.web", "manage.py")
Way = Callable[[SimulatedAgent, Heard], Coroutine[Any, Any, None]]
SILENT = """
SELECT count(*) FROM pools_member m LEFT JOIN pools_heartbeat h ON h.member_id = m.id
  AND h.incarnation = m.incarnation
WHERE m.state <> 'ready' OR h.at IS NULL OR h.at < now() - interval '20 s'"""


@dataclass
class PrintingTask:
    """A task that prints, and what it has printed."""

    claim: int
    generation: int
    line: AsyncLine
    seq: int = 0
    size: int = 0
    digest: Any = field(default_factory=hashlib.sha256)


@bench(
    "agents",
    (
        "1,000 agents on the line, each heard every 15 s: CPU of the server without PostgreSQL, in "
        "cores; and logs taken in, in MB a minute"
    ),
    [
        Goal("cpu_share", 0.5, AT_MOST),
        Goal("cpu_share_sockets", 0.5, AT_MOST),
        Goal("log_mb_per_min", 100.0),
    ],
)
def bench_agents(run: BenchRun) -> Mapping[str, Any]:
    count, watched, printed = (20, 2.0, 2.0) if run.is_quick else (1000, 60.0, 30.0)
    tokens = make_agents(count)
    before = run.reference.measure(run.seconds(1.0))
    with web_server() as (host, port), running(["manage.py", "controllers"]):
        found = asyncio.run(play(host, port, tokens, watched, printed, run))
    after = run.reference.measure(run.seconds(1.0))
    return {
        **found,
        "agents": count,
        "beat_s": 15,
        "r_before": round(before),
        "r_after": round(after),
    }


def make_agents(count: int) -> list[str]:
    names = [f"agent-{i}" for i in range(count)]
    pool = create_pool(
        {
            "name": POOL,
            "provider": "agents",
            "slots": ["any", "plan", "plan"],
            "members": {"max": count, "list": names},
        }
    )
    activate_pool(pool_id=pool.pk)
    members = list(Member.objects.filter(pool=pool).order_by("position"))
    for member in members:
        mark_ready(member_id=member.pk, incarnation=member.incarnation)
    return [issue_token(member_id=member.pk) for member in members]


async def play(
    host: str, port: int, tokens: list[str], watched: float, printed: float, run: BenchRun
) -> Mapping[str, Any]:
    agents = [SimulatedAgent(host, port, token, boot="bench") for token in tokens]
    for at in range(0, len(agents), 50):
        await asyncio.gather(*(agent.hello() for agent in agents[at : at + 50]))
    polling, polled = await listen(agents, SimulatedAgent.listen, watched)
    run.log(f"  {len(agents)} agents wait")
    polls, idle = polled[0], await measure(watched)
    polls = polled[0] - polls
    silent = await asyncio.to_thread(query_number, SILENT)
    await stop(polling)
    for agent in agents:
        await agent.waiting.close()
    listeners, heard = await listen(agents, SimulatedAgent.listen_by_socket, watched)
    run.log(f"  {len(agents)} agents are connected")
    before, connected = heard[0], await measure(watched)
    beats = heard[0] - before
    silent += await asyncio.to_thread(query_number, SILENT)
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
        raise RuntimeError(f"{silent} agents were not heard")
    if lost:
        raise RuntimeError(f"{lost} logs are not what was sent")
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
    """Who listens, and how often something was heard so far. Spread over the time of a wait:
    agents are not all started at once.
    """
    heard, listeners = [0], list["asyncio.Task[None]"]()

    def count(agent: SimulatedAgent, told: Mapping[str, Any]) -> None:
        heard[0] += 1

    for agent in agents:
        listeners.append(asyncio.create_task(way(agent, count)))
        await asyncio.sleep(min(SETTLE, watched) / len(agents))
    return listeners, heard


async def stop(listeners: list["asyncio.Task[None]"]) -> None:
    for listener in listeners:
        if listener.done():
            listener.result()
        listener.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)


async def measure(seconds: float) -> float:
    """Cores that the server used meanwhile."""
    first, began = cpu_seconds(), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_seconds() - first) / (time.monotonic() - began)


def cpu_seconds() -> float:
    """Of the server's processes, which are children of this one, and of their children. By each
    process's CPU clock: the ticks of /proc/<pid>/stat last 10 ms, and a quick run may use less."""
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
    """As clock_getcpuclockid(3) has it, with nanoseconds of all threads, ended ones too."""
    return (~pid << 3) | 2


def is_ours(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
    return any(each in command for each in OURS)


def make_tasks() -> list[tuple[int, int, int]]:
    """Claims with tasks, bound: claim, generation, member."""
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
    """Bytes a second that were taken in, and the cores that it took. Below what a pool keeps of one
    log, each task prints as fast as it may, in pieces as an agent sends them."""
    texts = make_texts()
    end = time.monotonic() + seconds
    share = asyncio.create_task(measure(seconds))
    began = time.monotonic()
    await asyncio.gather(*(print_log(each, texts, end) for each in lines))
    took = time.monotonic() - began
    return sum(each.size for each in lines) / took, await share


async def print_log(printing: PrintingTask, texts: list[str], end: float) -> None:
    most = 7_500_000  # of the 8 MB that are kept of a log
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
    """Pieces of what Terraform prints, no two alike."""
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
    """Logs that are read back otherwise than they were sent."""
    lost = 0
    for each in lines:
        kept = hashlib.sha256()
        for part in read_text(each.claim, each.generation):
            kept.update(part)
        lost += kept.digest() != each.digest.digest()
    connection.close()
    return lost


def query_number(statement: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        found = int(cursor.fetchone()[0])
    connection.close()
    return found
