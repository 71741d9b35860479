"""What a Celery worker of the tests performs: it says so in the log, and knows whether a
transaction is open.
"""

from django.db import connection

from project.kernel.events.log import record
from project.kernel.outbox.operations import Taken, performs


@performs("say")
def say(taken: Taken) -> None:
    record(
        "performed", claim_id=taken.claim_id, data={"in_transaction": connection.in_atomic_block}
    )
