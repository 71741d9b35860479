"""The outbox: operations are taken once, settled by their holder only, and retried; no lane
delays another.
"""

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, OperationalError, connection, transaction
from django.utils import timezone

from project.kernel.db.guards import InsideTransaction
from project.kernel.db.locks import LANE, try_lock
from project.kernel.models import Operation
from project.kernel.outbox import operations as outbox
from project.kernel.outbox.budgets import CallBudget, spend, take_budget
from project.kernel.outbox.operations import (
    AcquiredOperation,
    acquire_operations,
    add_operation,
    finish_operation,
    list_due_queues,
    perform_due,
    register_batch_performer,
    register_performer,
    release_abandoned,
    renew_operations,
)
from project.kernel.outbox.tasks import OutboxPoller
from tests.kernel.conftest import run_in_thread, run_together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("performers")]


def add(lane: str = "a", kind: str = "sync", queue: str = "q", **more: Any) -> int:
    return add_operation(lane=lane, kind=kind, queue=queue, **more)


def let_lease_run_out() -> None:
    Operation.objects.filter(done_at=None).update(due_at=timezone.now())


def due_in(operation_id: int) -> float:
    return (Operation.objects.get(pk=operation_id).due_at - timezone.now()).total_seconds()


# Take and settle ----------------------------------------------------------------------------------


def test_taken_operation_carries_its_request():
    add(pool_id=1, member_id=2, claim_id=3, generation=4, body={"port": 80})
    (taken,) = acquire_operations("q", "a")
    assert (taken.queue, taken.lane, taken.kind, taken.body, taken.attempt) == (
        "q",
        "a",
        "sync",
        {"port": 80},
        1,
    )
    assert (taken.pool_id, taken.member_id, taken.claim_id, taken.generation) == (1, 2, 3, 4)


@pytest.fixture
def slow_updates() -> Iterator[None]:
    """Every update of an operation takes a while, so that simultaneous workers meet."""
    with connection.cursor() as cursor:
        cursor.execute("""CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_sleep(0.005); RETURN NEW; END $$""")
        cursor.execute(
            "CREATE TRIGGER dawdles BEFORE UPDATE ON kernel_operation FOR EACH ROW EXECUTE "
            "FUNCTION dawdle()"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER dawdles ON kernel_operation; DROP FUNCTION dawdle()")


def test_eight_threads_take_each_operation_once(slow_updates):
    wanted = {add() for _ in range(40)}
    found = run_together(
        8, lambda k: [t.id for _ in range(8) for t in acquire_operations("q", "a", limit=3)]
    )
    ids = [i for some in found for i in some]
    assert sorted(ids) == sorted(wanted)


def test_locked_row_would_block_takers_without_skip_locked():
    """While one worker acquires an operation, another acquires the rest without waiting."""
    first, second = add(), add()
    with transaction.atomic():
        Operation.objects.select_for_update().get(pk=first)
        assert run_in_thread(lambda: [t.id for t in acquire_operations("q", "a")]) == [second]


def test_operation_is_not_taken_again_during_its_lease():
    add()
    assert len(acquire_operations("q", "a", lease=60)) == 1
    assert acquire_operations("q", "a") == []


def test_lane_of_another_queue_is_not_taken():
    add(queue="other")
    assert acquire_operations("q", "a") == []


def test_attempt_with_an_expired_lease_settles_nothing():
    add()
    (late,) = acquire_operations("q", "a")
    let_lease_run_out()
    (new,) = acquire_operations("q", "a")
    assert not finish_operation(late)
    assert not finish_operation(late, outbox.Throttled("late news"))
    assert finish_operation(new)
    assert not finish_operation(new), "settled once is settled"
    assert Operation.objects.get().error == ""


def test_lease_is_renewed_only_by_its_holder():
    add(), add()
    old = acquire_operations("q", "a")
    Operation.objects.filter(pk=old[0].id).update(due_at=timezone.now())
    (new,) = acquire_operations("q", "a")
    assert renew_operations(old, lease=500) == [old[1]]
    assert due_in(old[1].id) > 400
    assert due_in(new.id) < 100


def test_taking_inside_a_transaction_is_refused():
    add()
    with pytest.raises(InsideTransaction), transaction.atomic():
        acquire_operations("q", "a")


def test_operation_of_a_rolled_back_change_does_not_exist():
    with pytest.raises(KeyError), transaction.atomic():
        add()
        raise KeyError
    assert not Operation.objects.exists()


# Perform ------------------------------------------------------------------------------------------


def test_performer_is_called_outside_of_any_transaction():
    seen = []

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        seen.append((taken.id, connection.in_atomic_block))

    number = add()
    assert perform_due("q") == 1
    assert seen == [(number, False)]
    assert Operation.objects.get().done_at is not None


def test_performing_inside_a_transaction_is_refused():
    add()
    with pytest.raises(InsideTransaction), transaction.atomic():
        perform_due("q")


def test_lane_is_performed_in_request_order():
    seen = []

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        seen.append(taken.id)

    wanted = [add() for _ in range(outbox.BATCH * 2 + 3)]
    while perform_due("q"):
        pass
    assert seen == wanted


def test_batch_performer_gets_all_taken_operations_and_names_failures():
    seen = []

    @register_batch_performer("sync")
    def perform(taken: Sequence[AcquiredOperation]) -> dict[int, Exception]:
        seen.append([t.id for t in taken])
        return {taken[1].id: outbox.ConflictError("in use")}

    wanted = [add() for _ in range(3)]
    assert perform_due("q") == 3
    assert seen == [wanted]
    failed = Operation.objects.get(done_at=None)
    assert (failed.id, failed.error_code, failed.error) == (wanted[1], "conflict", "in use")


def test_postponed_operation_comes_back_when_due_without_an_error():
    @register_batch_performer("sync")
    def perform(taken: Sequence[AcquiredOperation]) -> dict[int, Exception]:
        return {taken[1].id: outbox.Postponed(30.0)}

    first, second, third = add(), add(), add()
    assert perform_due("q") == 2
    left = Operation.objects.get(done_at=None)
    assert (left.id, left.error_code, left.error) == (second, "", "")
    assert 25 < due_in(second) <= 30
    assert Operation.objects.filter(pk__in=(first, third)).exclude(done_at=None).count() == 2


def test_exhausted_budget_postpones_the_whole_lane_and_no_other_lane():
    calls = list[str]()

    @register_batch_performer("sync")
    def perform(taken: Sequence[AcquiredOperation]) -> None:
        spend(CallBudget(f"account of {taken[0].lane}", rate=0.1, burst=2), len(taken))
        calls.append(taken[0].lane)

    one, other = add("a"), add("b", kind="other")
    add("a"), add("c")

    @register_performer("other")
    def perform_other(taken: AcquiredOperation) -> None:
        spend(CallBudget("account of a", rate=0.1, burst=2))

    assert take_budget("account of a", 1, rate=0.1, burst=2).is_granted
    assert perform_due("q") == 2
    assert sorted(calls) == ["c"]
    assert set(Operation.objects.filter(done_at=None).values_list("lane", flat=True)) == {"a"}
    assert 5 < due_in(one) <= 20
    assert Operation.objects.get(pk=other).done_at is not None


def test_workers_perform_each_operation_of_a_lane_in_one_batch_only(slow_updates):
    """A load balancer takes one write at a time: batches of its lane never overlap."""
    running, most, seen, guard = 0, 0, list[list[int]](), threading.Lock()

    @register_batch_performer("sync")
    def perform(taken: Sequence[AcquiredOperation]) -> dict[int, Exception]:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(0.05)")
        with guard:
            running -= 1
            seen.append([t.id for t in taken])
        return {}

    wanted = {add() for _ in range(30)}

    def work(k: int) -> int:
        wanted.add(add())
        return perform_due("q")

    run_together(4, work)
    while perform_due("q"):
        pass
    done = [number for batch in seen for number in batch]
    assert most == 1
    assert sorted(done) == sorted(wanted), "each operation once"
    assert len(seen) < len(wanted) / 4


def test_batch_performer_that_raises_fails_all_operations():
    @register_batch_performer("sync")
    def perform(taken: Sequence[AcquiredOperation]) -> None:
        raise outbox.ConflictError("all of it")

    add(), add()
    perform_due("q")
    assert set(Operation.objects.values_list("error_code", flat=True)) == {"conflict"}


@pytest.mark.parametrize(
    "error",
    [
        outbox.Throttled("x"),
        outbox.QuotaExceeded("x"),
        outbox.Unauthorised("x"),
        outbox.ConflictError("x"),
        outbox.NotFoundOutside("x"),
    ],
)
def test_error_backs_off_and_stays_visible(error):
    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        raise error

    number = add()
    assert perform_due("q") == 1
    assert perform_due("q") == 0
    failed = Operation.objects.get()
    assert (failed.error, failed.error_code, failed.done_at) == ("x", error.code, None)
    assert 0 < due_in(number) < 60


def test_each_attempt_waits_longer():
    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        raise outbox.ConflictError

    number, waits = add(), []
    for _ in range(5):
        perform_due("q")
        waits.append(due_in(number))
        let_lease_run_out()
    assert waits[0] < 1
    assert waits[4] > 2 * waits[0]


def test_retry_waits_as_long_as_the_provider_asks():
    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        raise outbox.Throttled("slow down", retry_after=40)

    number = add()
    perform_due("q")
    assert 38 < due_in(number) <= 40


def test_bug_in_a_performer_is_recorded_and_logged(caplog):
    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        raise ZeroDivisionError("a \x00 in the text")

    add()
    assert perform_due("q") == 1
    failed = Operation.objects.get()
    assert (failed.error_code, failed.error) == ("unexpected", "a  in the text")
    assert "ZeroDivisionError" in caplog.text


def test_data_error_in_a_performer_is_an_unexpected_error():
    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        raise DataError("too large")

    add()
    assert perform_due("q") == 1
    assert Operation.objects.get().error_code == "unexpected"


def test_lost_database_settles_nothing():
    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        raise OperationalError("server closed the connection")

    add()
    with pytest.raises(OperationalError):
        perform_due("q")
    left = Operation.objects.get()
    assert (left.error, left.attempts) == ("", 1)  # leased; taken again when the lease runs out


def test_operations_of_a_worker_without_a_database_are_due_once_the_database_is_back():
    """A full disk or a restart of the database would otherwise cost the rest of the lease."""
    answers: list[Exception | None] = [OperationalError("no space left on device"), None]

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        if error := answers.pop(0):
            raise error

    number = add()
    with pytest.raises(OperationalError):
        perform_due("q")
    assert due_in(number) > outbox.LEASE / 2
    assert OutboxPoller(frozenset("q")).poll() == 0
    assert due_in(number) <= 0
    assert perform_due("q") == 1
    assert outbox.release_interrupted() == 0


def test_operation_that_another_worker_has_acquired_since_is_added_again():
    """The first worker may have called the provider after the other one."""

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        raise OperationalError("server closed the connection")

    number = add(member_id=2, body={"port": 80})
    with pytest.raises(OperationalError):
        perform_due("q")
    let_lease_run_out()
    (taken,) = acquire_operations("q", "a")
    assert outbox.release_interrupted() == 1
    assert due_in(number) > outbox.LEASE / 2
    outbox.finish_operation(taken)
    again = Operation.objects.get(done_at=None)
    assert (again.lane, again.member_id, again.body) == ("a", 2, {"port": 80})
    assert due_in(again.pk) <= 0


def test_operation_that_was_finished_before_the_loss_is_not_added_again():
    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        if taken.member_id == 2:
            raise OperationalError("server closed the connection")

    add(member_id=1), add(member_id=2)
    with pytest.raises(OperationalError):
        perform_due("q")
    assert outbox.release_interrupted() == 1
    assert [o.member_id for o in Operation.objects.filter(done_at=None)] == [2]


def test_operations_are_released_later_while_the_database_stays_away(
    monkeypatch: pytest.MonkeyPatch,
):
    def fail(**_: Any) -> None:
        raise OperationalError("the connection is refused")

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        fail()

    number = add()
    with pytest.raises(OperationalError):
        perform_due("q")
    with monkeypatch.context() as away:
        away.setattr(outbox.outbox_sql, "renew", fail)
        with pytest.raises(OperationalError):
            outbox.release_interrupted()
    assert outbox.release_interrupted() == 1
    assert due_in(number) <= 0


def test_operation_without_a_performer_is_a_permanent_error():
    add(kind="what")
    perform_due("q")
    failed = Operation.objects.get()
    assert failed.error_code == "permanent"
    assert "'what'" in failed.error


def test_success_clears_the_previous_error():
    errors = [outbox.ConflictError("x")]

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        if errors:
            raise errors.pop()

    add()
    perform_due("q")
    let_lease_run_out()
    perform_due("q")
    done = Operation.objects.get()
    assert done.done_at is not None
    assert (done.error, done.error_code, done.attempts) == ("", "", 2)


# Lanes --------------------------------------------------------------------------------------------


def test_failing_lane_delays_no_other():
    seen = []

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        seen.append(taken.lane)
        if taken.lane == "bad":
            raise outbox.Throttled

    add(lane="bad"), add(lane="bad"), add(lane="good"), add(lane="good")
    perform_due("q")
    assert seen == ["bad", "good", "good"]


def test_throttled_operation_delays_the_rest_of_its_lane():
    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        raise outbox.Throttled(retry_after=40)

    first, second = add(), add()
    assert perform_due("q") == 1
    assert due_in(second) == pytest.approx(due_in(first), abs=2)
    assert Operation.objects.get(pk=second).error == "", (
        "it was not tried, so nothing is wrong with it"
    )


def test_locked_lane_is_skipped():
    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        pass

    busy, free = add(lane="busy"), add(lane="free")
    with try_lock(LANE, "busy"):
        assert run_in_thread(lambda: perform_due("q")) == 1
        assert list(Operation.objects.filter(done_at=None).values_list("id", flat=True)) == [busy]
    assert run_in_thread(lambda: perform_due("q")) == 1
    assert Operation.objects.filter(done_at=None).count() == 0
    assert free


def test_busy_lane_with_many_operations_hides_no_other_lane(monkeypatch):
    monkeypatch.setattr(outbox, "LANES", 3)

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        pass

    for _ in range(10):
        add(lane="busy")
    add(lane="free")
    with try_lock(LANE, "busy"):
        assert run_in_thread(lambda: perform_due("q")) == 1


def test_two_workers_never_write_to_one_lane_at_a_time():
    inside, most, guard = [0], [0], threading.Lock()

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        with guard:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(0.01)")
        with guard:
            inside[0] -= 1

    for _ in range(12):
        add(lane="lb-1")

    def work(k: int) -> int:
        return sum(perform_due("q", limit=2) for _ in range(20))

    assert sum(run_together(4, work)) == 12
    assert most[0] == 1


def test_stopping_worker_releases_operations_it_has_not_begun():
    seen: list[int] = []

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        seen.append(taken.id)

    for _ in range(5):
        add()
    assert perform_due("q", should_stop=lambda: bool(seen)) == 1
    assert run_in_thread(lambda: perform_due("q")) == 4  # at once, not when the lease has run out


def test_lease_is_renewed_while_a_batch_is_performed(monkeypatch):
    monkeypatch.setattr(outbox, "LEASE", 0.3)
    left = []

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(0.12)")
        left.append(due_in(taken.id))

    for _ in range(6):
        add()
    assert perform_due("q") == 6
    assert min(left) > 0, "the last one began 0.6 s after it was taken, and was still ours"


def test_operation_taken_over_by_another_worker_is_not_performed(monkeypatch):
    monkeypatch.setattr(outbox, "LEASE", 0.0)  # every look finds that it is time to renew
    seen = []

    @register_performer("sync")
    def perform(taken: AcquiredOperation) -> None:
        seen.append(taken.id)
        Operation.objects.filter(pk=second).update(
            attempts=2, due_at=timezone.now() + timedelta(minutes=1)
        )

    first, second = add(), add()
    perform_due("q", limit=2)
    assert seen == [first]


def test_queues_with_due_operations_are_named():
    add(queue="a"), add(queue="b", delay=100), add(queue="c")
    acquire_operations("c", "a")
    assert list_due_queues() == ["a"]
    assert list_due_queues(late=60) == []


def test_a_new_worker_makes_the_operations_of_dead_workers_due_and_no_others() -> None:
    dead, busy, failed, later = (
        add("dead"), add("busy"), add("failed"), add("later", delay=50)
    )  # fmt: skip
    elsewhere = add("elsewhere", queue="other")
    for lane, queue in (("dead", "q"), ("busy", "q"), ("elsewhere", "other")):
        acquire_operations(queue, lane)
    (taken,) = acquire_operations("q", "failed")
    finish_operation(taken, outbox.Unauthorised("no right"))
    with try_lock(LANE, "busy"):
        assert run_in_thread(lambda: release_abandoned({"q"})) == 1
    assert due_in(dead) <= 0
    for other in (busy, failed, later, elsewhere):
        assert due_in(other) > 5
