"""Runs the rounds of scenarios that a state file does not have yet."""

import os
import random
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.faults.campaign.scenario import (
    FAKE,
    NotInjectedError,
    Outcome,
    Scenario,
    choose_rounds,
)
from tests.faults.campaign.state import Round, State, Verification

ENOUGH = 5  # rounds after which the median decides on the number of rounds
ATTEMPTS = 3  # of a round whose fault has no effect
LONGEST = 6_000  # characters of a finding


class Runner:
    def __init__(
        self,
        state: State,
        seed: int,
        *,
        most: int = 0,
        only: int | None = None,
        say: Callable[[str], None] = print,
        until: float = float("inf"),
    ) -> None:
        """`most`: rounds of each scenario, 0: by its median. `only`: this round once more, whether
        it is in the state file or not. `until`: no round starts after this monotonic time.
        """
        self.state, self.seed, self.most, self.only, self.say = state, seed, most, only, say
        self.until = until

    def run(self, scenarios: Iterable[type[Scenario]]) -> None:
        before: Scenario | None = None  # its stack runs, and may be taken over
        try:
            for kind in scenarios:
                if time.monotonic() > self.until:
                    return
                if why := kind.why_skipped():
                    self.say(f"SKIPPED {kind.name}: {why}")
                    self.state.write_skipped(kind.name, why)
                else:
                    # The next scenario ends the stack of this one, also where it fails.
                    handed, before = before, None
                    run = self.run_all if self.only is None else self.run_one
                    before = run(kind, handed)
        finally:
            self.end(before)

    def run_all(self, kind: type[Scenario], before: Scenario | None) -> Scenario | None:
        """A failed round ends the session, and another stack runs the rounds that are left."""
        while self.next_round(kind) is not None and time.monotonic() < self.until:
            done = len(self.state.rounds)
            handed, before = before, None
            before = self.run_one(kind, handed)
            if len(self.state.rounds) == done:
                break
        return before

    def end(self, scenario: Scenario | None) -> None:
        if scenario is None:
            return
        try:
            scenario.close()
        except Exception:
            findings = [shorten(f"the end failed: {traceback.format_exc()}")]
            self.write_verification(scenario, 0, 0.0, findings)
        shutil.rmtree(scenario.folder, ignore_errors=True)

    def next_round(self, kind: type[Scenario]) -> int | None:
        """The first round that is not finished; None: enough rounds are."""
        done = {each.number for each in self.state.rounds_of(kind.name)}
        if len(done) >= self.goal(kind):
            return None
        return next(number for number in range(len(done) + 1) if number not in done)

    def goal(self, kind: type[Scenario]) -> int:
        if self.most:
            return self.most
        done = self.state.rounds_of(kind.name)
        usual = self.state.median_seconds(kind.name)
        if usual is None or len(done) < ENOUGH:
            return ENOUGH
        return max(choose_rounds(usual), len(kind.list_pairs()))

    def run_one(self, kind: type[Scenario], before: Scenario | None = None) -> Scenario | None:
        """Returns the scenario if its stack runs on."""
        began, rounds, findings = time.monotonic(), 0, list[str]()
        scenario = kind(before.folder if before else Path(), self.seed)
        self.say(f"{kind.name}: starts")
        try:
            if before is None or not scenario.adopt(before):
                self.end(before)
                scenario.folder = Path(tempfile.mkdtemp(prefix="berth-faults-"))
                scenario.folder.chmod(0o711)
                scenario.prepare()
            self.say(f"{kind.name}: prepared in {time.monotonic() - began:.1f} s")
            if scenario.api_server == FAKE:
                self.say(f"WARNING {kind.name}: {FAKE} serves, not a real API server")
            while time.monotonic() < self.until:
                number = self.next_round(kind) if self.only is None else self.only
                if number is None or (self.only is not None and rounds):
                    break
                done = self.run_round(scenario, number)
                self.state.write_round(done)
                rounds += 1
                findings += done.findings
                if done.findings:
                    self.state.write_logs(f"{kind.name}-{number}", scenario.read_logs())
                if any(text.startswith("the round failed") for text in done.findings):
                    break  # a broken stack proves no other round
            began, found = time.monotonic(), scenario.verify()
        except Exception as error:
            text = f"the scenario failed: {type(error).__name__}: {error}"
            found = [f"{shorten(text)}\n{shorten(traceback.format_exc())}"]
        except BaseException:  # Ctrl-C
            self.end(scenario)
            raise
        took = time.monotonic() - began
        self.write_verification(scenario, rounds, took, found)
        if found:
            self.state.write_logs(f"{kind.name}-audit", scenario.read_logs())
        if findings or found:
            self.end(scenario)
            return None
        return scenario

    def write_verification(
        self, scenario: Scenario, rounds: int, took: float, findings: list[str]
    ) -> None:
        done = Verification(scenario.name, self.seed, rounds, round(took, 2), findings)
        self.state.write_verification(done)
        self.say(f"{scenario.name}: {rounds} rounds, audit {took:.1f} s, findings {findings}")

    def run_round(self, scenario: Scenario, number: int) -> Round:
        began = time.monotonic()
        chance = random.Random(f"{self.seed}/{scenario.name}/{number}")
        for attempt in range(1, ATTEMPTS + 1):
            try:
                outcome = scenario.round(chance, number)
                break
            except NotInjectedError as error:
                self.say(f"{scenario.name} {number}: not injected: {error}")
                if attempt == ATTEMPTS:
                    outcome = Outcome("", 0.0, 0, [f"the round failed, no fault: {error}"])
            except Exception as error:
                cause = shorten(f"{type(error).__name__}: {error}")
                text = f"the round failed: {cause}\n{shorten(traceback.format_exc())}"
                outcome = Outcome("", 0.0, 0, [text])
                break
        seconds = time.monotonic() - began
        self.say(
            f"{scenario.name} {number}: {outcome.fault}; again {outcome.again:.1f} s, "
            f"{seconds:.1f} s{'; FINDINGS ' if outcome.findings else ''}"
            f"{'; '.join(outcome.findings)}"
        )
        return Round(
            scenario.name,
            number,
            self.seed,
            outcome.fault,
            outcome.faults,
            round(outcome.again, 2),
            round(seconds, 2),
            outcome.findings,
            round(os.getloadavg()[0], 1),
            outcome.pair,
            scenario.api_server,
        )


def shorten(text: str) -> str:
    """Begin and end: a failed round ends with the last lines of logs, which may hide its cause."""
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]} … {text[-half:]}"
