"""kill -9 of any process at any moment of plan -> approve -> apply, with real agents: every claim
ends or waits for a person, and no apply begins twice. What was applied is read from what the
applies wrote.

pytest tests/faults/test_plan_to_apply.py --fault-rounds 200      a longer run
pytest tests/faults/test_plan_to_apply.py --fault-seed 4711       the same victims once more
"""

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.providers.local import agent_folder
from project.kernel.embedded.process import free_port
from tests.end_to_end.stack import Stack
from tests.faults.authors import MOMENTS, Author, Diary
from tests.faults.checks import applied_twice, check_doctor, check_ends, check_pages
from tests.faults.victims import AGENT, ALL, DrawWithAgents, kill
from tests.waiting import slack

# Seconds from a kill until a claim that was made after it has been planned, approved and applied;
# twice as many on a busy machine.
WITHIN = 90.0
AUTHORS = 3
ROUNDS = 12  # each process dies once, agents three times
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
    """The folder that tasks write to. They may run as other users, so all users may write there."""
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


def within() -> float:
    return WITHIN * slack()


def test_plans_and_applies_survive_a_kill_of_any_process(
    stack: Stack, token: str, target: Path, request: pytest.FixtureRequest
) -> None:
    rounds = request.config.getoption("--fault-rounds") or ROUNDS
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
    dead = {name if name in ALL else AGENT for name in killed}
    assert dead == {*ALL, AGENT} or rounds < ROUNDS
    assert [author.error for author in authors if author.error] == []
    assert diary.broken == []
    check_ends(stack, diary)
    check_pages(stack, diary, target)
    check_doctor(stack)
