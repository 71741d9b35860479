"""The record of calls whose effect may still appear."""

import pytest
from django.db import connection

from project.kernel.models import PendingCall
from project.kernel.outbox.pending_calls import (
    begin_call,
    end_call,
    find_pending_call,
    set_call_task,
)

pytestmark = pytest.mark.usefixtures("tables")
KEY = "tencent a ap-guangzhou lb-1"


def pass_time() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_pendingcall SET until = now() - interval '1 s'")


def test_call_without_an_answer_is_pending_until_its_time_is_over() -> None:
    assert find_pending_call(KEY) is None
    assert begin_call(KEY, 20) is None
    assert find_pending_call(KEY) == ""
    assert begin_call(KEY, 20) == "", "the earlier call may have an effect, too"
    pass_time()
    assert find_pending_call(KEY) is None
    assert begin_call(KEY, 20) is None
    end_call(KEY)
    assert not PendingCall.objects.exists()


def test_call_with_a_task_is_pending_until_it_has_ended() -> None:
    begin_call(KEY, 20)
    set_call_task(KEY, "task-1")
    pass_time()
    assert find_pending_call(KEY) == "task-1"
    assert begin_call(KEY, 20) == "task-1"
    assert find_pending_call(KEY) == "", "the task of the new call is not known yet"
    end_call(KEY)
    assert find_pending_call(KEY) is None


def test_objects_have_records_of_their_own() -> None:
    begin_call(KEY, 20)
    assert begin_call("another", 20) is None
    end_call("another")
    assert find_pending_call(KEY) == ""
