"""Polls of tasks are few, and come soon after the end of a task."""

import random

import pytest

from pools.providers.tencent.writes import FIRST_POLL, LONGEST_POLL, TaskTimes

CALL = 0.04  # seconds of a poll


def follow(times: TaskTimes, duration: float) -> tuple[int, float]:
    """Polls of one task, and the seconds after which it was found done."""
    elapsed = times.first_poll(FIRST_POLL, LONGEST_POLL)
    polls = 1
    while elapsed < duration:
        times.record_early(elapsed)
        elapsed += CALL + times.next_poll(elapsed, FIRST_POLL / 4)
        polls += 1
    times.record_done(elapsed)
    return polls, elapsed


@pytest.mark.parametrize("duration", [0.3, 1.0, 1.4])
def test_tasks_of_equal_length_take_little_more_than_one_poll(duration: float) -> None:
    times, draw = TaskTimes(), random.Random(1)
    found = [follow(times, duration * draw.uniform(0.97, 1.0)) for _ in range(200)]
    assert sum(polls for polls, _ in found) < 1.2 * len(found)
    assert sum(elapsed for _, elapsed in found) < 1.15 * duration * len(found)


def test_polls_follow_tasks_that_become_slower_and_faster() -> None:
    times = TaskTimes()
    for duration in (1.0, 0.2, 0.8):
        late = [follow(times, duration)[1] for _ in range(150)][-50:]
        assert sum(late) < 1.2 * duration * len(late)


def test_first_task_is_polled_more_and_more_rarely() -> None:
    polls, elapsed = follow(TaskTimes(), 3.0)
    assert polls <= 8
    assert elapsed < 1.6 * 3.0


def test_of_tasks_that_begin_together_one_is_polled_while_no_duration_is_known() -> None:
    times, polls = TaskTimes(), 0
    now = 0.0
    while now < 1.0:
        for _ in range(50):
            if now >= FIRST_POLL and not times.is_quiet(now, now, times.next_poll(now, 0.05)):
                times.record_early(now)
                polls += 1
        now += 0.01
    assert polls < 10


def test_polls_go_on_after_a_task_whose_worker_ended() -> None:
    """It was polled last after 3 seconds; a younger task waits for its next poll only."""
    times = TaskTimes()
    assert not times.is_quiet(3.0, now=3.0, pause=1.5)
    assert times.is_quiet(0.2, now=4.0, pause=0.2)
    assert not times.is_quiet(0.8, now=4.6, pause=0.4)
