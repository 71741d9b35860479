"""The loops that bind claims, run their timed work, and scale pools."""

import time
from datetime import datetime

from claims.allocation.queues import unused_queues as unused_queues  # registers its chore
from claims.allocation.queues.allocator import allocate
from claims.lifecycle import chores as lifecycle_chores  # noqa: F401  registers them
from claims.ports import backends as backends  # registers its chore
from claims.ports.evacuation import mover as mover  # registers its chore
from claims.scaling import sampling as sampling  # registers its chore
from claims.scaling.scaler import CHUNK, list_scaled, scale_pools
from claims.scaling.snapshot import read_wanted
from claims.tasks.files import retention as retention  # registers its chores
from project.kernel.controllers.periodic import PeriodicRunner
from project.kernel.controllers.runtime import Controller
from project.kernel.validation import moment
from slots.members import chores as member_chores  # noqa: F401  registers its chores


class Allocator(Controller):
    """Binds waiting claims as soon as slots are free."""

    name = "allocate"
    topics = ("slots", "claims", "pools")
    resync = 2.0  # seconds of delay after a lost hint

    def step(self) -> bool:
        found = allocate()
        return bool(found.bound) or found.is_more


class Finalizer(Controller):
    """Runs the chores."""

    name = "finalize"
    resync = 0.5  # each chore has its own period; no hint wakes the finalizer

    def __init__(self) -> None:
        self.round = PeriodicRunner()

    def step(self) -> bool:
        return self.round.step()


class Scaler(Controller):
    """Scales pools to the number of members that their policy wants: requesting pools at once, all
    pools every few seconds.
    """

    name = "scale"
    topics = ("pools", "slots")
    resync = 5.0
    # Seconds of one step. After it the process may stop, and new requests come first.
    budget = 1.0
    request_interval = (
        1.0  # seconds between two steps for a requesting pool, however often it requests
    )

    def __init__(self) -> None:
        self.pools_left: list[int] = []  # of the round over all pools
        self.round_due = 0.0
        self.scaled_at: dict[int, float] = {}  # requesting pools
        self.started: datetime | None = None  # by the clock of the database

    def step(self) -> bool:
        began = time.monotonic()
        self.started = self.started or moment()
        rows = list_scaled()
        scaled_at = {row.id: self.scaled_at.get(row.id, 0.0) for row in rows if row.is_requested}
        requesting = [pool for pool, at in scaled_at.items() if began - at >= self.request_interval]
        self.scaled_at = scaled_at | dict.fromkeys(requesting, began)
        if not self.pools_left and began >= self.round_due:
            self.pools_left, self.round_due = [row.id for row in rows], began + 0.9 * self.resync
        if not requesting and not self.pools_left:
            return False
        wanted = read_wanted()
        scale_pools(requesting, wanted, started=self.started)
        while self.pools_left and time.monotonic() - began < self.budget:
            # Removed first, so that a chunk that fails does not hold up the next ones.
            chunk, self.pools_left = self.pools_left[:CHUNK], self.pools_left[CHUNK:]
            scale_pools(chunk, wanted, started=self.started)
        return bool(self.pools_left)
