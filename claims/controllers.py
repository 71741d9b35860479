"""The loops that serve claims and end them."""

from claims import finalization as finalization  # registers its chores
from claims import sampling as sampling  # registers its chore
from claims.allocation import allocate
from project.kernel.chores import Round
from project.kernel.runtime import Controller
from slots import finalization as slots_finalization  # noqa: F401  registers its chores


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
        self.round = Round()

    def step(self) -> bool:
        return self.round.step()
