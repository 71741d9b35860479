"""The loops that serve claims, end them, and make room for them."""

import time

from claims.allocation.queues import unused_queues as unused_queues  # registers its chore
from claims.allocation.queues.allocator import allocate
from claims.lifecycle import chores as lifecycle_chores  # noqa: F401  registers them
from claims.scaling import sampling as sampling  # registers its chore
from claims.scaling.scaler import CHUNK, list_scaled, scale_pools
from claims.scaling.snapshot import read_wanted
from claims.tasks.files import retention as retention  # registers its chores
from project.kernel.controllers.periodic import PeriodicRunner
from project.kernel.controllers.runtime import Controller
from slots.members import chores as member_chores  # noqa: F401  registers its chores


class Allocator(Controller):
    """Binds whoever waits as soon as something is free for him."""

    name = "allocate"
    topics = ("slots", "claims", "pools")
    resync = 2.0  # a lost hint costs no more than this

    def step(self) -> bool:
        found = allocate()
        return bool(found.bound) or found.is_more


class Finalizer(Controller):
    """Everything that happens because time has passed."""

    name = "finalize"
    resync = 0.5  # the chores keep their own time; nothing wakes them

    def __init__(self) -> None:
        self.round = PeriodicRunner()

    def step(self) -> bool:
        return self.round.step()


class Scaler(Controller):
    """As many members as each pool's policy wants: pools in which somebody could not be served
    at once, all of them every few seconds.
    """

    name = "scale"
    topics = ("pools", "slots")
    resync = 5.0
    # Seconds of one step: then a wish to stop is heard, and whoever asked meanwhile comes first.
    budget = 1.0
    settled = 1.0  # seconds after which a pool that asks is looked at again, however often it asks

    def __init__(self) -> None:
        self.left: list[int] = []  # of the round over all pools
        self.round_due = 0.0
        self.looked: dict[int, float] = {}  # at pools that asked

    def step(self) -> bool:
        began = time.monotonic()
        rows = list_scaled()
        asking = [
            row.id
            for row in rows
            if row.is_requested and began - self.looked.get(row.id, 0.0) >= self.settled
        ]
        self.looked = {
            row.id: self.looked.get(row.id, 0.0) for row in rows if row.is_requested
        } | dict.fromkeys(asking, began)
        if not self.left and began >= self.round_due:
            self.left, self.round_due = [row.id for row in rows], began + 0.9 * self.resync
        if not asking and not self.left:
            return False
        wanted = read_wanted()
        scale_pools(asking, wanted)
        while self.left and time.monotonic() - began < self.budget:
            # Taken off first: one that fails holds up none behind it.
            chunk, self.left = self.left[:CHUNK], self.left[CHUNK:]
            scale_pools(chunk, wanted)
        return bool(self.left)
