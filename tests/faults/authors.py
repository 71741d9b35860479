"""Authors plan, read, approve and settle lost applies, each in a workspace of its own, and
record every answer.
"""

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.load import Caller, Ledger

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "hello"
# Seconds that a claim may take from one state to the next while everything dies around it.
PATIENCE = 240.0
OVER = ("applied", "lost", "failed")
MOMENTS = ("asked", "begun", "planned", "approved", "applying", "ended")


@dataclass
class Diary:
    """Shared by all authors: events as callers of the API see them."""

    change: threading.Condition = field(default_factory=threading.Condition)
    events: list[tuple[float, str, int]] = field(default_factory=list)  # when, what, claim
    asked_at: dict[int, float] = field(default_factory=dict)
    approved: set[int] = field(default_factory=set)
    outcomes: dict[int, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def note(self, what: str, claim: int) -> None:
        with self.change:
            now = time.monotonic()
            if what == "asked":
                self.asked_at[claim] = now
            self.events.append((now, what, claim))
            self.change.notify_all()

    def wait_moment(self, what: str, since: float, timeout: float) -> bool:
        """Waits until the claim of any author reaches this moment."""
        with self.change:
            return self.change.wait_for(
                lambda: (
                    any(at > since and said == what for at, said, _ in self.events)
                    or bool(self.broken)
                ),
                timeout,
            )

    def wait_reached(self, what: str, since: float, timeout: float) -> bool:
        """Waits until a claim that was created after `since` reaches this moment."""
        with self.change:
            return self.change.wait_for(
                lambda: (
                    any(
                        said == what and self.asked_at.get(claim, 0.0) > since
                        for _, said, claim in reversed(self.events)
                    )
                    or bool(self.broken)
                ),
                timeout,
            )

    def wait_whole(self, since: float, timeout: float) -> bool:
        """Waits until a claim that was created after `since` is applied."""
        with self.change:
            return self.change.wait_for(lambda: self.is_whole(since) or bool(self.broken), timeout)

    def is_whole(self, since: float) -> bool:
        return any(
            outcome == "applied" and self.asked_at[claim] > since
            for claim, outcome in self.outcomes.items()
        )

    def break_promise(self, words: str) -> None:
        with self.change:
            self.broken.append(words)
            self.change.notify_all()


class Author(Caller):
    def __init__(self, name: str, port: int, token: str, pool: str, diary: Diary) -> None:
        super().__init__(name, port, token, pool, Ledger())
        self.diary = diary
        self.files = {file: (EXAMPLE / file).read_text() for file in ("hello.py", "harbour.json")}
        self.wanted = json.loads(self.files["harbour.json"])
        self.outcome = ""

    def one(self, key: str) -> None:
        run = self.make_run(key)
        body = {"pool": self.pool, "task": "plan_and_apply", "workspace": self.name, "run": run}
        status, claim = self.call("POST", "claims/", body, key)
        assert status in (200, 201, 202), (status, claim)
        self.diary.note("asked", claim["id"])
        self.follow(claim)

    def make_run(self, key: str) -> dict[str, Any]:
        """Another harbour each time, so that each plan has changes."""
        self.wanted["ships"] = {
            f"ship-{n}": {"berth": n, "cargo": key} for n in range(self.chance.randint(1, 4))
        }
        return {
            "executor": "command",
            "commands": {"plan": "python3 hello.py plan", "apply": "python3 hello.py apply"},
            "source": {"files": {**self.files, "harbour.json": json.dumps(self.wanted)}},
        }

    def follow(self, claim: dict[str, Any]) -> None:
        """Follows the claim to its end. The test waits for all authors."""
        number, state, since = claim["id"], "", time.monotonic()
        while claim["state"] != "ended":
            if claim["state"] != state:
                state, since = claim["state"], time.monotonic()
                if state == "bound":
                    self.diary.note(
                        "applying" if number in self.diary.approved else "begun", number
                    )
                if state in ("reserved", "parked"):
                    self.diary.note("planned", number)
            if state in ("reserved", "parked") and number not in self.diary.approved:
                self.approve(number)
            elif time.monotonic() - since > PATIENCE:
                self.diary.break_promise(
                    f"claim {number} has been {state} for {PATIENCE:.0f} s: {claim.get('wait')}"
                )
                return
            others = ",".join(
                s
                for s in ("waiting", "blocked", "bound", "reserved", "parked", "ended")
                if s != state
            )
            status, claim = self.call("GET", f"claims/{number}/?wait=2&until={others}")
            assert status == 200, (status, claim)
        self.end(claim)

    def approve(self, number: int) -> None:
        status, plan = self.call("GET", f"claims/{number}/plan/")
        if status != 200:
            return
        self.stopped.wait(self.chance.uniform(0, 0.3))  # a person reads the plan
        status, answer = self.call(
            "POST", f"claims/{number}/approve/", {"digest": plan["digest"], "comment": "fine"}
        )
        if status == 200 or (status == 409 and any(said["by"] for said in plan["approvals"])):
            self.diary.approved.add(number)
            self.diary.note("approved", number)
        elif status == 409:  # the answer to the first yes was lost, or there is another plan by now
            _, plan = self.call("GET", f"claims/{number}/plan/")
            if plan.get("approvals"):
                self.diary.approved.add(number)
        else:
            self.diary.break_promise(f"approving claim {number}: {status} {answer}")

    def end(self, claim: dict[str, Any]) -> None:
        number, outcome = claim["id"], claim["outcome"]
        with self.diary.change:
            self.diary.outcomes[number] = outcome
        self.diary.note("ended", number)
        if outcome not in OVER:
            self.diary.break_promise(f"claim {number} ended {outcome}: {claim}")
        if outcome == "lost":
            self.settle(number)

    def settle(self, number: int) -> None:
        """A person settles the lost apply; until then no task starts in the workspace."""
        status, workspace = self.call("GET", f"workspaces/{self.name}/")
        if status == 200 and workspace.get("locked_at"):
            body = {"what": "unknown", "reason": f"looked after claim {number}"}
            status, answer = self.call("POST", f"workspaces/{self.name}/settle/", body)
            if status not in (200, 409):
                self.diary.break_promise(f"settling {self.name}: {status} {answer}")
