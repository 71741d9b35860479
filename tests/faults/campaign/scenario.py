"""The base class of scenarios, and their registry."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeVar

MOST_ROUNDS, FEWER_ROUNDS = 100, 20
FAKE = "FakeKube"
QUICK = 5.0  # seconds: the median round of a scenario with MOST_ROUNDS takes less


def choose_rounds(median_seconds: float) -> int:
    """The number of rounds of a scenario with this median duration."""
    return MOST_ROUNDS if median_seconds < QUICK else FEWER_ROUNDS


class NotInjectedError(Exception):
    """The fault had no effect, so the round is no proof and is repeated."""


@dataclass
class Outcome:
    fault: str  # what was done, in words
    again: float  # seconds until the system served again
    faults: int = 1  # how many faults were injected
    findings: list[str] = field(default_factory=list)
    pair: str = ""  # of those that the scenario lists


class Scenario(ABC):
    name: ClassVar[str]
    breaks: ClassVar[str]  # what it breaks and when, for the report
    # Seconds of "time to serve again" start here.
    counts_from: ClassVar[str] = "the fault"
    has_api_server: ClassVar[bool] = False  # of Kubernetes

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.api_server = ""  # of Kubernetes; set by `prepare` where the stack has one

    @classmethod
    def list_pairs(cls) -> Sequence[str]:
        """Step and victim, for each of which a round is required. Empty: rounds have no steps."""
        return ()

    @classmethod
    def why_skipped(cls) -> str:
        """The program that this machine lacks; empty if it has all."""
        return ""

    @abstractmethod
    def prepare(self) -> None:
        """Start the stack, which all rounds share."""

    def adopt(self, before: "Scenario") -> bool:
        """Take over the stack of the scenario before, instead of `prepare`; True: it is ours now.
        Asked only after a scenario without findings.
        """
        return False

    @abstractmethod
    def round(self, chance: random.Random, number: int) -> Outcome: ...

    @abstractmethod
    def verify(self) -> list[str]:
        """Stop the load and return all findings of the audits, the doctor included."""

    def read_logs(self) -> str:
        """What the processes have said, kept beside a finding."""
        return ""

    @abstractmethod
    def close(self) -> None: ...

    def pick(self, names: Sequence[str], number: int) -> str:
        """The victim of a round, by seed and number alone. Each dies once before any dies again."""
        turn, place = divmod(number, len(names))
        order = sorted(names)
        random.Random(f"{self.seed}/{self.name}/turn {turn}").shuffle(order)
        return order[place]


KNOWN: dict[str, type[Scenario]] = {}
Kind = TypeVar("Kind", bound=type[Scenario])


def scenario(kind: Kind) -> Kind:
    """Register a scenario under its name."""
    assert kind.name not in KNOWN, f"two scenarios are called {kind.name}"
    KNOWN[kind.name] = kind
    return kind
