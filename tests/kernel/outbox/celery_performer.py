"""A performer for the tests' Celery worker that logs what it performs, whether a transaction is
open, and how many threads the worker divides among its queues.
"""

from django.db import connection

from project.kernel.events.log import record
from project.kernel.outbox.operations import AcquiredOperation, register_performer
from project.kernel.outbox.turns import TURNS


@register_performer("say")
def say(taken: AcquiredOperation) -> None:
    about = {"in_transaction": connection.in_atomic_block, "threads": TURNS.threads}
    record("performed", claim_id=taken.claim_id, data=about)
