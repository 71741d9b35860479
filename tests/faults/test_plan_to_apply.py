"""kill -9 of any process at any moment of plan -> approve -> apply, with real agents: every claim
ends or waits for a person, and no apply begins twice. What was applied is read from what the
applies wrote.

pytest tests/faults/test_plan_to_apply.py --fault-rounds 200      a longer run
pytest tests/faults/test_plan_to_apply.py --fault-seed 4711       the same victims once more
"""

import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.providers.local import agent_folder
from project.kernel.embedded import detached
from project.kernel.embedded.process import free_port
from tests.end_to_end.stack import Stack
from tests.faults.authors import MOMENTS, Author, Diary
from tests.faults.test_kills import VICTIMS, Draw

# Seconds from a kill until a claim that was asked for after it has been planned, approved
# and applied.
WITHIN = 90.0
AUTHORS = 4
AGENT = "agent"
POOL = """
kind: Pool
name: harbour
provider: local
slots: [any, any]
placement: spread
members: {{list: [{{name: one}}, {{name: two}}, {{name: three}}]}}
liveness: {{heartbeat: 30s, lost: 1m}}
task: {{env: {{HELLO_TARGET: {target}, HELLO_PACE: "0.15"}}}}
"""


@pytest.fixture
def target() -> Iterator[Path]:
    """Where tasks write. They may be other users than we are, so it is everybody's."""
    found = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="berth-test-"))
    found.chmod(0o777)
    yield found
    shutil.rmtree(found)


@pytest.fixture
def stack(tmp_path: Path, target: Path) -> Iterator[Stack]:
    stack = Stack(
        tmp_path / "state", free_port(), BERTH_APART="1", BERTH_TASK_FOLDERS=str(target)
    ).start(120)
    (tmp_path / "pools.yaml").write_text(POOL.format(target=target))
    assert stack.manage("apply", "-f", str(tmp_path / "pools.yaml")).returncode == 0
    yield stack
    stack.stop()
    for folder in (stack.home / agent_folder.FOLDER).glob("*"):
        agent_folder.remove(folder)


@pytest.fixture
def token(stack: Stack) -> str:
    made = stack.manage("token", "create", "admin", "load")
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


class DrawWithAgents(Draw):
    """An agent is as likely as all the others together: it is what this is about."""

    def next(self) -> str:
        return AGENT if self.chance.random() < 0.5 else super().next()


def kill(stack: Stack, victim: str, chance: random.Random) -> str:
    """Whom it was, in words."""
    if victim != AGENT:
        os.kill(stack.wait_for_process(VICTIMS[victim]), signal.SIGKILL)
        return victim
    # As if ten good minutes had passed: what is tried here is not the back-off of restarts.
    stack.execute("update pools_member set restarts = 0, gave_up_at = null where state = 'ready'")
    folders = sorted((stack.home / agent_folder.FOLDER).glob("*"))
    running = [
        (folder, process)
        for folder in folders
        if (process := detached.read(folder)) and detached.is_alive(process)
    ]
    if not running:
        return "an agent, but none was up"
    folder, process = chance.choice(running)
    os.kill(process.pid, signal.SIGKILL)
    return folder.name


def within() -> float:
    return WITHIN * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def test_plans_and_applies_survive_a_kill_of_any_process(
    stack: Stack, token: str, target: Path, request: pytest.FixtureRequest
) -> None:
    rounds = request.config.getoption("--fault-rounds")
    seed = request.config.getoption("--fault-seed") or random.SystemRandom().randrange(1, 10**6)
    print(f"seed {seed}")
    draw, diary = DrawWithAgents(random.Random(seed)), Diary()
    authors = [Author(f"quay-{n}", stack.port, token, "harbour", diary) for n in range(AUTHORS)]
    for author in authors:
        author.start()
    killed: Counter[str] = Counter()
    slowest = 0.0
    try:
        assert diary.wait_whole(0, within()), (
            f"nothing is applied at all: {diary.broken} {diary.events[-20:]}\n{stack.heard[-5000:]}"
        )
        for number in range(rounds):
            moment = draw.chance.choice(MOMENTS)
            diary.wait_moment(moment, time.monotonic(), 10)
            # Somewhere in what follows.
            diary.wait_moment("nothing", time.monotonic(), draw.chance.uniform(0, 0.6))
            victim = kill(stack, draw.next(), draw.chance)
            killed[victim.partition(".")[0]] += 1
            killed_at = time.monotonic()
            where = f"round {number} of seed {seed}, kill -9 of {victim} after {moment}"
            assert diary.wait_whole(killed_at, limit := within()), (
                f"{where}: nothing applied in {limit:.0f} s\n{stack.heard[-5000:]}"
            )
            slowest = max(slowest, time.monotonic() - killed_at)
            assert not diary.broken, f"{where}: {diary.broken}"
            assert applied_twice(target) == {}, where
    finally:
        for author in authors:
            author.stopped.set()
        for author in authors:
            author.join(300)
    print(
        f"killed {dict(killed)}; {dict(Counter(diary.outcomes.values()))}; applied again after at "
        f"most {slowest:.1f} s"
    )
    assert [author.error for author in authors if author.error] == []
    assert diary.broken == []
    check_ends(stack, diary)
    check_pages(stack, diary, target)
    report = stack.manage("doctor", "--json")
    assert report.returncode == 0, report.stdout + report.stderr


def lines_of(target: Path) -> Counter[int]:
    """How often each claim's apply has begun, by what the applies themselves wrote first of all."""
    return Counter(
        int(line.split()[0])
        for log in target.glob("*/applied.log")
        for line in log.read_text().splitlines()
    )


def applied_twice(target: Path) -> dict[int, int]:
    return {claim: count for claim, count in lines_of(target).items() if count > 1}


def check_ends(stack: Stack, diary: Diary) -> None:
    """Every claim has ended as it was told, or waits for a person."""
    rows = {row[0]: row[1:] for row in stack.execute("select id, state, outcome from claims_claim")}
    assert {
        claim: row for claim, row in rows.items() if row[0] not in ("ended", "reserved", "parked")
    } == {}
    assert {
        claim: (outcome, rows[claim])
        for claim, outcome in diary.outcomes.items()
        if rows[claim] != ("ended", outcome)
    } == {}
    assert len(rows) == len(diary.asked_at)


def check_pages(stack: Stack, diary: Diary, target: Path) -> None:
    """What was applied was written once; what began was approved; what failed says why."""
    begun = lines_of(target)
    applied = {claim for claim, outcome in diary.outcomes.items() if outcome == "applied"}
    assert {claim: begun[claim] for claim in applied if begun[claim] != 1} == {}
    assert applied_twice(target) == {}
    unapproved = (
        "select claim_id from claims_plan p where exists (select from claims_approval a where "
        "a.plan_id = p.id and a.is_yes)"
    )
    assert set(begun) <= {row[0] for row in stack.execute(unapproved)}
    failed = "select claim_id, code, reason from claims_run where outcome = 'failed'"
    wrong = [row for row in stack.execute(failed) if "changed since the plan" not in row[2]]
    assert wrong == []
