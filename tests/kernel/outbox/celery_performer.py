"""A performer for the tests' Celery worker that logs what it performs and whether a transaction
is open.
"""

from django.db import connection

from project.kernel.events.log import record
from project.kernel.outbox.operations import AcquiredOperation, register_performer


@register_performer("say")
def say(taken: AcquiredOperation) -> None:
    record(
        "performed", claim_id=taken.claim_id, data={"in_transaction": connection.in_atomic_block}
    )
