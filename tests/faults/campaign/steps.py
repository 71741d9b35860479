"""Scenarios that kill processes at steps: inside of the transaction, which stands in a trap. The
rounds of one turn hit each pair of a step and a process once.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from tests.faults.campaign.scenario import NotInjectedError
from tests.faults.campaign.site import SiteScenario
from tests.faults.traps import Trap
from tests.faults.victims import AGENT, ALL, kill, list_agents


class Pair(NamedTuple):
    step: str
    victim: str
    is_after: bool = False  # after the commit of the step, which the victim has performed

    def __str__(self) -> str:
        return f"{'after ' if self.is_after else ''}{self.step}/{self.victim}"


class Strike(NamedTuple):
    pair: str
    fault: str  # in words
    at: float


class StepScenario(SiteScenario):
    traps: ClassVar[tuple[Trap, ...]]
    victims: ClassVar[Sequence[str]] = tuple(ALL)

    @classmethod
    def list_pairs(cls) -> list[str]:
        return [str(pair) for pair in cls.make_turn(random.Random(0))]

    @classmethod
    def make_turn(cls, chance: random.Random) -> list[Pair]:
        """Each pair once. The victims take turns, because a supervisor delays the start of a
        process that dies again and again.
        """
        turn: list[Pair] = []
        for shift in range(len(cls.traps)):
            row = [
                Pair(cls.traps[(place + shift) % len(cls.traps)].name, victim)
                for place, victim in enumerate(cls.victims)
            ]
            chance.shuffle(row)
            turn += row
        after = [Pair(trap.name, name, True) for trap in cls.traps for name in trap.performers]
        chance.shuffle(after)
        return turn + after

    def pick_pair(self, number: int) -> Pair:
        """The pair of a round, by seed and number alone."""
        turn, place = divmod(number, len(self.list_pairs()))
        return self.make_turn(random.Random(f"{self.seed}/{self.name}/turn {turn}"))[place]

    def strike(
        self, chance: random.Random, number: int, provoke: Callable[[], Any] = lambda: None
    ) -> Strike:
        """kill -9 of the victim inside of the step, or a moment after its commit. A victim that
        does not perform the step is killed while another process stands inside.
        """
        pair = self.pick_pair(number)
        delay = chance.uniform(0, 0.15)
        with self.site.trapped(pair.step, pair.victim, provoke) as (standing, open_early):
            if pair.victim == AGENT and not list_agents(self.site.stack):
                raise NotInjectedError("no agent runs")
            if pair.is_after:
                open_early()
                time.sleep(delay)  # a random moment after the step, not a synchronisation
            who = kill(self.site.stack, pair.victim, chance)
            killed_at = time.monotonic()
        others = ", ".join(sorted(standing - {pair.victim}))
        if pair.is_after:
            where = f"{delay * 1000:.0f} ms after its {pair.step}"
        elif pair.victim in standing:
            where = f"in its {pair.step}"
        else:
            where = f"in the {pair.step} of {others}"
        return Strike(str(pair), f"kill -9 of {who} {where}", killed_at)
