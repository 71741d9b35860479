"""Permanent errors stay visible until a person retries or acknowledges them."""

from datetime import timedelta

import pytest
from django.utils import timezone

from project.kernel.actor import acting_as
from project.kernel.errors import Conflict
from project.kernel.models import Event, Operation
from project.kernel.outbox import operations as outbox
from project.kernel.outbox.operations import (
    AcquiredOperation,
    add_operation,
    perform_due,
    register_performer,
)

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("tables"),
    pytest.mark.usefixtures("performers"),
]


def fail_for_good() -> int:
    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        raise outbox.PermanentError("no such subnet")

    number = add_operation(lane="a", kind="sync", queue="q", pool_id=5, claim_id=6)
    perform_due("q")
    return number


def test_permanent_error_is_recorded_once_and_not_retried():
    fail_for_good()
    assert Operation.objects.get().due_at > timezone.now() + timedelta(days=365)
    event = Event.objects.get(verb="give_up")
    assert (event.pool_id, event.claim_id, event.reason) == (5, 6, "no such subnet")


def test_person_can_retry_a_permanent_error():
    number = fail_for_good()
    with acting_as("user:1"):
        outbox.retry_operation(number, "the subnet is there now")

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        pass

    assert perform_due("q") == 1
    event = Event.objects.get(verb="retry")
    assert (event.actor, event.reason) == ("user:1", "the subnet is there now")


def test_person_can_acknowledge_a_permanent_error():
    number = fail_for_good()
    with acting_as("user:1"):
        outbox.acknowledge_operation(number)
    assert Operation.objects.get().seen_by == "user:1"


@pytest.mark.parametrize("act", [outbox.retry_operation, outbox.acknowledge_operation])
def test_operation_without_an_error_cannot_be_retried_or_acknowledged(act):
    number = add_operation(lane="a", kind="sync", queue="q")
    with pytest.raises(Conflict, match=str(number)):
        act(number)
