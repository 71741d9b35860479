"""The tasks of the sample. The user `sample` creates them, real agents run them, and the user `ben`
approves or rejects plans. Some plans are left for people.
"""

import secrets
import time
from collections.abc import Callable
from random import Random
from typing import Any

from project.sample.client import SampleClient, log_line
from project.sample.scenario import (
    HARBOUR,
    TASKS,
    VISITORS,
    TaskWork,
    count_tasks_at,
    key_of,
    task_of,
)
from project.settings import environment as env

PROGRAM = env.ROOT / "examples" / "hello" / "hello.py"
PAUSE = (4.0, 9.0)  # seconds between two requests
WAITS = ("reserved", "parked")
TRIES = 4  # to find a workspace without a claim

After = Callable[[float, Callable[[], None]], None]


class Planner:
    """Creates tasks and decides on plans. A claim's key determines the decision; the delay of the
    decision begins when the planner first sees the plan wait.
    """

    def __init__(
        self, client: SampleClient, ben: SampleClient, after: After, chance: Random
    ) -> None:
        self.client, self.ben, self.after, self.chance = client, ben, after, chance
        self.started = time.monotonic()
        self.program = PROGRAM.read_text()
        self.known: dict[int, str] = {}
        self.places: dict[int, str] = {}  # claim -> workspace
        self.visitors: set[int] = set()

    def begin(self) -> None:
        for n in range(max(TASKS) - len(self.known)):
            self.after(0.4 * n, self.create_claim)
        self.after(self.chance.uniform(*PAUSE), self.arrive)

    def arrive(self) -> None:
        if len(self.known) < count_tasks_at(time.monotonic() - self.started):
            self.create_claim()
        self.after(self.chance.uniform(*PAUSE), self.arrive)

    def create_claim(self) -> None:
        key, work = self.draw()
        answer = self.client.call("POST", "claims/", work.body(self.program), key)
        if answer.is_success:
            self.track_claim(answer.body, work)
        else:
            log_line(f"{HARBOUR} rejects a task ({answer.status}): {answer.body}")

    def draw(self) -> tuple[str, TaskWork]:
        """A new task, mostly in a workspace without a claim. In a workspace with a claim it is
        blocked.
        """
        taken, tries = set(self.places.values()), TRIES
        while True:
            key = key_of(HARBOUR, secrets.token_hex(6))
            work = task_of(key)
            assert work is not None
            if work.workspace not in taken or not tries:
                return key, work
            tries -= 1

    def track_claim(self, claim: dict[str, Any], work: TaskWork) -> None:
        number, state = claim["id"], claim["state"]
        if self.known.get(number) == state:
            return
        begins_to_wait = state in WAITS and self.known.get(number) not in WAITS
        self.known[number], self.places[number] = state, work.workspace
        if not begins_to_wait:
            return
        if len(self.visitors) < VISITORS:
            self.visitors.add(number)
            self.after(work.visitors_for, lambda: self.decide(number, work))
        else:
            self.after(work.decide_after, lambda: self.decide(number, work))

    def forget(self, claim: int) -> None:
        self.known.pop(claim, None)
        self.places.pop(claim, None)
        self.visitors.discard(claim)

    def decide(self, claim: int, work: TaskWork) -> None:
        """Approve or reject the plan, unless it no longer waits."""
        if self.known.get(claim) not in WAITS:
            return
        plan = self.ben.call("GET", f"claims/{claim}/plan/")
        if plan.is_success:
            verb = "approve" if work.is_approved else "reject"
            self.ben.call(
                "POST",
                f"claims/{claim}/{verb}/",
                {"digest": plan.body["digest"], "comment": work.comment},
            )
        self.visitors.discard(claim)
