"""Paces the calls to an account: the API takes 20 calls a second of each action.

All workers share one bucket for each account, region and action, which is a row in the database.
"""

import random
import time

from pools.providers.pacing import Pacer
from project.kernel.outbox.budgets import CallBudget
from project.kernel.outbox.operations import Postponed

# The limit counts in windows that Berth does not know, so the bucket keeps some distance: no second
# has more calls than the rate and the burst, and the calls of many seconds stay below 20.
RATE = 19.5
BURST = 10.0
SPREAD = 0.2  # seconds


def wait_for_call(pacer: Pacer, bucket: CallBudget, patience: float) -> None:
    """Take a call, and wait up to `patience` seconds for it. Raises Postponed after that, which
    sends the operation back.
    """
    until = time.monotonic() + patience
    while True:
        try:
            return pacer.take(bucket)
        except Postponed as error:
            # Spread, because every waiting thread asks the database again.
            pause = error.seconds + random.uniform(0, SPREAD)
            if time.monotonic() + pause > until:
                raise
            time.sleep(pause)
