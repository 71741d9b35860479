"""Calls to outside objects that may still have an effect: they run there, or got no answer.

The record is written before the call and removed once the call has ended, so that every worker
knows of the call of a dead worker.
"""

from project.kernel.db.guards import refuse_inside_transaction
from project.kernel.outbox import outbox_sql


def begin_call(key: str, seconds: float) -> str | None:
    """Record a call that begins, and may have an effect for so many seconds. Returns the task of
    an earlier call that may have one, too, empty if it is not known; None: there is none.
    """
    refuse_inside_transaction("begin_call")  # a rollback would forget the call
    found = outbox_sql.begin_call(key=key, seconds=seconds)
    return None if found is None else found.earlier


def set_call_task(key: str, task: str) -> None:
    """Record the number of the task that performs the call outside."""
    outbox_sql.set_call_task(key=key, task=task)


def end_call(key: str) -> None:
    """Record that the calls to an outside object have ended."""
    outbox_sql.end_call(key=key)


def find_pending_call(key: str) -> str | None:
    """The task of a call that may still have an effect, empty if it is not known. None: there is
    no such call.
    """
    found = outbox_sql.pending_call(key=key)
    return None if found is None else found.task
