"""Makes the listeners of this process equal to a plan, keeps the plan in a file, and describes
what runs.
"""

import asyncio
import logging
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from pools.providers.forwarder.process.plan import (
    ForwardOptions,
    ForwardPlan,
    InvalidPlan,
    ListenerPlan,
    Place,
    find_loops,
    read_plan,
    write_plan,
)
from pools.providers.forwarder.process.plan_file import read_file, write_file
from pools.providers.forwarder.process.sibling_ports import SiblingPorts
from pools.providers.forwarder.process.sockets import (
    RESERVED_FILES,
    BindFault,
    raise_file_limit,
)
from pools.providers.forwarder.process.tcp_listener import TcpListener
from pools.providers.forwarder.process.traffic import ForwarderLimits
from pools.providers.forwarder.process.udp_listener import UdpListener

logger = logging.getLogger(__name__)

SWEEP = 1.0  # seconds between two looks for idle connections
RETRY = 2.0  # seconds until ports that could not be opened are tried again
FENCE = 600.0  # seconds in which a delayed request is recognised
LOOP = "The target is a port of a forwarder of this machine."
TrafficListener = TcpListener | UdpListener


class StaleRequest(Exception):
    """The request is older than what this process has already applied."""


class PlanNotSaved(Exception):
    """The plan could not be written, and is not applied."""


class Forwarder:
    """Runs in one event loop. Only `apply` waits, behind a lock."""

    def __init__(self, folder: Path, incarnation: int) -> None:
        self.folder, self.incarnation = folder, incarnation
        self._own = folder.stat()
        self.limits = ForwarderLimits()
        self._files = raise_file_limit()
        self._lock = asyncio.Lock()
        self._plan = ForwardPlan(incarnation, ())
        self._listeners: dict[Place, TrafficListener] = {}
        self._problems: dict[Place, BindFault] = {}
        self._leaving: list[TrafficListener] = []
        self._siblings = SiblingPorts(folder)
        # The newest generation of each place, 1 if its listener was removed, and when. An older
        # request comes from a worker that was delayed.
        self._fence: dict[Place, tuple[int, int, float]] = {}

    async def load(self) -> None:
        """Serve the plan of the former process at once."""
        try:
            plan = read_plan(read_file(self.folder))
        except FileNotFoundError:
            return
        except (OSError, ValueError, InvalidPlan) as error:
            logger.warning("the kept plan cannot be read: %s", error)
            return
        async with self._lock:
            self._raise_fence(plan)
            await self._align(replace(plan, incarnation=self.incarnation))

    async def apply(self, plan: ForwardPlan) -> None:
        """Raises StaleRequest or PlanNotSaved, and changes no listener then."""
        async with self._lock:
            self._refuse_stale(plan)
            now = {each.place: each for each in plan.listeners}
            kept = [
                each
                for each in self._plan.listeners
                if each.place in plan.kept and each.place not in now
            ]
            self._raise_fence(plan)
            listeners = (*plan.listeners, *kept)
            lasting = replace(plan, listeners=listeners, kept={}, released={}, ended=frozenset())
            if lasting != self._plan:
                self._save(lasting)
            await self._align(lasting, plan.ended)

    async def change_options(
        self, incarnation: int, bind: tuple[str, ...], options: ForwardOptions
    ) -> None:
        """The options of the pool have changed, and the claims have not."""
        async with self._lock:
            self._refuse_incarnation(incarnation)
            plan = replace(self._plan, bind=bind, options=options)
            self._save(plan)
            await self._align(plan)

    async def watch(self) -> None:
        """Timed work, until the folder of this process is gone: without its folder, Berth could
        not find or end it. Ports that were in use are tried again, and targets that have become
        ports of other forwarders are left.
        """
        tried = 0.0
        while True:
            await asyncio.sleep(SWEEP)
            if not self._has_folder():
                return
            now = asyncio.get_running_loop().time()
            for each in [*self._listeners.values(), *self._leaving]:
                each.sweep(now)
            self._leaving = [each for each in self._leaving if each.active]
            if now - tried >= RETRY:
                tried = now
                if self._siblings.read() or self._problems:
                    async with self._lock:
                        await self._open_missing()

    def end(self) -> None:
        for each in [*self._listeners.values(), *self._leaving]:
            each.end()

    def describe(self) -> dict[str, object]:
        """The listeners with their health and counters, and what still drains."""
        self._leaving = [each for each in self._leaving if each.active]
        return {
            "incarnation": self.incarnation,
            "pid": os.getpid(),
            "bind": list(self._plan.bind),
            "options": write_plan(self._plan)["options"],
            "used": self.limits.used,
            "most": min(self.limits.most, self.limits.options.total),
            "listeners": [self._describe(each) for each in self._plan.listeners],
            "leaving": [
                {**_place_of(each.plan), "connections": each.active} for each in self._leaving
            ],
        }

    def _has_folder(self) -> bool:
        try:
            return os.path.samestat(self.folder.stat(), self._own)
        except FileNotFoundError:
            return False

    def _describe(self, plan: ListenerPlan) -> dict[str, object]:
        found: dict[str, object] = _place_of(plan)
        if plan.target is not None:
            found["target"] = str(plan.target)
        listener = self._listeners.get(plan.place)
        if listener is None:
            problem = self._problems.get(plan.place)
            found["problem"] = plan.fault or (str(problem) if problem else "It is not open yet.")
            found["is_taken"] = problem is not None and problem.is_taken
            return found
        if plan.target is not None and listener.plan.target is None:
            found["problem"] = LOOP
        counts = listener.counts
        return found | {
            "health": listener.health,
            "connections": listener.active,
            "leaving": listener.leaving,
            "opened": counts.opened,
            "refused": counts.refused,
            "failed": counts.failed,
            "dropped": counts.dropped,
            "bytes_in": counts.bytes_in,
            "bytes_out": counts.bytes_out,
        }

    def _save(self, plan: ForwardPlan) -> None:
        try:
            write_file(self.folder, write_plan(plan))
        except OSError as error:
            raise PlanNotSaved(f"{error}") from None

    def _refuse_stale(self, plan: ForwardPlan) -> None:
        self._refuse_incarnation(plan.incarnation)
        for place, rank in _ranks(plan).items():
            known = self._fence.get(place)
            if known is not None and rank < known[:2]:
                raise StaleRequest(
                    f"{place[0]} {place[1]} has generation {known[0]} here; the request is older."
                )

    def _refuse_incarnation(self, incarnation: int) -> None:
        if incarnation != self.incarnation:
            raise StaleRequest(
                f"This is incarnation {self.incarnation}, the request is for {incarnation}."
            )

    def _raise_fence(self, plan: ForwardPlan) -> None:
        """Entries end after a while: a database that was restored has lower generations."""
        now = time.monotonic()
        self._fence = {
            place: known for place, known in self._fence.items() if now - known[2] < FENCE
        }
        self._fence |= {place: (*rank, now) for place, rank in _ranks(plan).items()}

    async def _align(self, plan: ForwardPlan, ended: Collection[Place] = ()) -> None:
        is_rebound = plan.bind != self._plan.bind
        self._plan = plan
        self.limits.options = plan.options
        wanted = {each.place: each for each in plan.listeners if not each.fault}
        for place, listener in list(self._listeners.items()):
            now = wanted.get(place)
            if now is None:
                self._remove(place, plan.options.drain)
            elif is_rebound or now.count != listener.plan.count:
                self._remove(place, 0.0)
        for listener in [*self._leaving, *self._listeners.values()]:
            if listener.plan.place in ended:
                listener.end_leaving()
        self._problems = {place: each for place, each in self._problems.items() if place in wanted}
        self._siblings.read()
        await self._open_missing()
        for listener in self._listeners.values():
            listener.align()

    def _remove(self, place: Place, drain: float) -> None:
        listener = self._listeners.pop(place)
        listener.close(drain)
        if listener.active:
            self._leaving.append(listener)

    async def _open_missing(self) -> None:
        """The caller has read the ports of the other forwarders."""
        plan = self._plan
        loops = find_loops(plan, self._siblings.ports)
        wanted = [each for each in plan.listeners if not each.fault]
        for each in wanted:
            if each.place in loops:
                each = replace(each, target=None)
            listener = self._listeners.get(each.place)
            if listener is not None:
                listener.update(each)
                continue
            self._end_leaving_at(each)
            try:
                self._listeners[each.place] = self._open(each, plan)
            except BindFault as fault:
                if str(fault) != str(self._problems.get(each.place, "")):
                    logger.warning("%s", fault)
                self._problems[each.place] = fault
            else:
                self._problems.pop(each.place, None)
            await asyncio.sleep(0)  # segments have many sockets; connections go on meanwhile
        self.limits.most = max(0, (self._files - RESERVED_FILES - self._count_sockets()) // 2)

    def _count_sockets(self) -> int:
        return len(self._plan.bind) * sum(each.plan.count for each in self._listeners.values())

    def _open(self, each: ListenerPlan, plan: ForwardPlan) -> TrafficListener:
        """Half of the files are for connections."""
        needed = self._count_sockets() + len(plan.bind) * each.count
        if needed > self._files // 2:
            raise BindFault(
                f"With this listener the forwarder needs {needed} sockets, and the limit of open "
                f"files is {self._files}: raise the limit, or use shorter segments."
            )
        kind = TcpListener if each.lane == "tcp" else UdpListener
        listener = kind(each, self.limits)
        listener.open(plan.bind)
        return listener

    def _end_leaving_at(self, plan: ListenerPlan) -> None:
        """UDP flows that still drain hold the ports of a new listener."""
        for each in self._leaving:
            old = each.plan
            is_near = old.number <= plan.end and plan.number <= old.end
            if isinstance(each, UdpListener) and plan.lane == "udp" and is_near:
                each.end()
        self._leaving = [each for each in self._leaving if each.active]


def _ranks(plan: ForwardPlan) -> Mapping[Place, tuple[int, int]]:
    """A slot loses its listener after it had one in the same generation, never before."""
    found = {each.place: (each.generation, 0) for each in plan.listeners}
    found |= {place: (generation, 0) for place, generation in plan.kept.items()}
    return found | {place: (generation, 1) for place, generation in plan.released.items()}


def _place_of(plan: ListenerPlan) -> dict[str, object]:
    return {"lane": plan.lane, "number": plan.number, "end": plan.end}
