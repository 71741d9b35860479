"""The model-based tests with a seed of each round, against their oracles."""

import os
import random
import subprocess
import sys
from typing import ClassVar

from project.settings import environment as env
from tests.faults.campaign.scenario import Outcome, Scenario, scenario

LIMIT = 1800.0  # seconds of a run


@scenario
class RandomSteps(Scenario):
    name = "random-steps"
    breaks = "random steps of claims and ports, compared with an oracle"
    modules: ClassVar[tuple[str, ...]] = (
        "tests/claims/allocation/test_model_based.py",
        "tests/claims/allocation/queues/test_overtaking.py",
        "tests/claims/ports/model",
    )

    def prepare(self) -> None:
        self.output = self.folder / "output.log"

    def round(self, chance: random.Random, number: int) -> Outcome:
        module, seed = self.pick(self.modules, number), chance.randrange(1, 10**9)
        command = [sys.executable, "-m", "pytest", module, "-q", f"--hypothesis-seed={seed}"]
        with self.output.open("wb") as file:
            done = subprocess.run(
                command,
                cwd=env.ROOT,
                env=os.environ | {"BERTH_HOME": str(self.folder / "home")},
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=LIMIT,
            )
        findings = [f"{' '.join(command[1:])} is red"] if done.returncode else []
        return Outcome(f"{module} with seed {seed}", 0.0, findings=findings)

    def verify(self) -> list[str]:
        return []  # each round has its own audit

    def read_logs(self) -> str:
        return self.output.read_text(errors="replace")

    def close(self) -> None:
        """A run has ended with its round."""
