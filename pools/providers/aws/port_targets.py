"""The targets of the ports of one load balancer: reads them, and makes them those of the claims.

Each target group takes a call of its own to be read. A sync that its call budget ends leaves what
it has read and corrected to the next sync of the member.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

from pools.providers.aws.account import Account
from pools.providers.aws.inventory import (
    PortListener,
    SeenTarget,
    is_checking,
    is_leaving,
    read_targets,
)
from pools.providers.aws.plan import PortPlan, WantedPort
from pools.providers.aws.port_calls import write_target
from pools.providers.base import PortTarget
from project.kernel.outbox.operations import Postponed

UNFINISHED_AGE = 20.0  # seconds


class UnfinishedReads:
    """The targets that a sync has read and corrected before its call budget was exhausted. The next
    sync of the member goes on behind them. Without this, workers that share the budget would all
    read the first targets of their load balancers again and again. A sync that ends forgets them.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[WantedPort | None, tuple[SeenTarget, ...], float]] = {}

    def find(self, group: str, want: WantedPort | None) -> tuple[SeenTarget, ...] | None:
        """The targets of a group, if they were right for this port a few seconds ago."""
        wanted, targets, at = self._kept.get(group, (None, (), -math.inf))
        is_fresh = wanted == want and time.monotonic() - at < UNFINISHED_AGE
        return targets if is_fresh else None

    def keep(self, group: str, want: WantedPort | None, targets: tuple[SeenTarget, ...]) -> None:
        self._kept[group] = want, targets, time.monotonic()

    def drop(self, groups: Iterable[str]) -> None:
        for group in groups:
            self._kept.pop(group, None)

    def clear(self) -> None:
        """For tests, whose clouds use the same ARNs."""
        self._kept.clear()


UNFINISHED = UnfinishedReads()


class PortTargets:
    """The targets of one sync, by port."""

    def __init__(
        self,
        account: Account,
        plan: PortPlan,
        problems: Mapping[int, str],
        untried: Collection[int],
        guard: Callable[[int], AbstractContextManager[None]],
    ) -> None:
        """`problems`: why ports cannot be served, and `untried`: ports for which a call was not
        made, as the sync adds them. `guard`: errors that concern one port become its problem.
        """
        self._account, self._plan, self._problems, self._guard = account, plan, problems, guard
        self._untried = untried
        self._found: dict[int, tuple[SeenTarget, ...]] = {}
        self._settled: set[int] = set()  # ports with a read target that has passed its checks
        self._reads_early = True

    def get(self, number: int) -> tuple[SeenTarget, ...] | None:
        """None: the sync has not read them."""
        return self._found.get(number)

    def list_wanted(self) -> Iterable[SeenTarget]:
        """The targets of all ports that have a claim."""
        return (each for number in self._plan.wanted for each in self._found.get(number, ()))

    def add_new(self, number: int) -> None:
        """A port whose group this sync has created, with its target: until it is read."""
        target = self._plan.wanted[number].target
        self._found[number] = () if target is None else (SeenTarget(target, "initial"),)

    def register(self, group: str, target: PortTarget) -> None:
        targets = [write_target(target)]
        self._account.call("RegisterTargets", TargetGroupArn=group, Targets=targets)

    def read_early(self, listeners: Sequence[PortListener]) -> None:
        """Read the health of new ports between writes, which have a call budget of their own: many
        load balancers that end with all their reads would wait for the reads. Stops for good at a
        target with longer checks, or if no read is left at once.
        """
        with suppress(Postponed), self._account.impatient():
            for listener in listeners:
                want = self._plan.wanted[listener.number]
                if not self._reads_early or want.target is None:
                    continue
                found: tuple[SeenTarget, ...] = ()
                with self._guard(listener.number):
                    found = read_targets(self._account, listener.group)
                if [each.target for each in found] != [want.target]:
                    continue  # the end of the sync corrects it
                self._found[want.number] = found
                if is_checking(found[0]):
                    self._reads_early = False
                    continue
                self._settled.add(want.number)
                UNFINISHED.keep(listener.group, want, found)
            return
        self._reads_early = False

    def align(self, listeners: Sequence[PortListener]) -> None:
        """Read the targets of our listeners, and make them those of the claims."""
        for listener in listeners:
            number = listener.number
            if number in self._settled:
                continue
            want = self._plan.wanted.get(number)
            if (done := UNFINISHED.find(listener.group, want)) is not None:
                self._found[number] = done
                continue
            with self._guard(number):
                self._found[number] = read_targets(self._account, listener.group)
                if want is not None and want.is_target_known:
                    self._replace(listener, want)
            if number not in self._problems and number not in self._untried:
                UNFINISHED.keep(listener.group, want, self._found[number])
        UNFINISHED.drop(listener.group for listener in listeners)

    def _replace(self, listener: PortListener, want: WantedPort) -> None:
        """Register the target before the others leave, so that the port always has one. Targets of
        former backends leave also where AWS refuses the new one.
        """
        there = self._found[listener.number]
        is_there = any(each.target == want.target and not is_leaving(each) for each in there)
        leaving = [each for each in there if each.target != want.target and not is_leaving(each)]
        if want.target is not None and not is_there:
            with self._guard(listener.number):
                self.register(listener.group, want.target)
                others = tuple(each for each in there if each.target != want.target)
                there = (SeenTarget(want.target, "initial"), *others)
        if leaving:
            self._account.call(
                "DeregisterTargets",
                TargetGroupArn=listener.group,
                Targets=[write_target(each.target) for each in leaving],
            )
            there = tuple(
                replace(each, state="draining") if each in leaving else each for each in there
            )
        self._found[listener.number] = there
