"""Runs the scaler while a bind is in progress."""

from typing import Any

from django.db import transaction

from claims.scaling.scaler import scale_pools
from pools.models import Pool
from tests.slots.concurrent_actors import Actor, Gate
from tests.slots.helpers import hold


def scale_beside_a_bind(pool: Pool) -> tuple[tuple[int, int, int], Any]:
    """The bind is faster, and the scaler waits for it. What is held, and what the
    scaler decides.
    """
    gate = Gate()

    def bind_and_wait() -> Any:
        with transaction.atomic():
            held = hold(pool)
            gate.stop_here()
        return held

    binder = gate.stops(bind_and_wait)
    scaler = Actor(lambda: scale_pools([pool.pk])).begin()
    assert scaler.until_blocked_or_done() == "blocked"
    gate.open()
    return binder.result(), scaler.result()[pool.pk]
