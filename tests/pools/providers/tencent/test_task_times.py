"""Polls of tasks are few, and come soon after the end of a task."""

import itertools
import random

import pytest

from pools.providers.tencent.writes import (
    FIRST_POLL,
    FOLLOWED,
    LATEST_POLL,
    TaskTimes,
    _task_times,
    times_of,
)
from tests.pools.providers.tencent.harness import forget_all

CALL = 0.04  # seconds of a poll
KNOWN = {"early": 1.0, "done": 1.1}
APART = {"early": 0.5, "done": 1.1}
numbers = itertools.count(1)


def follow(times: TaskTimes, duration: float, *, turn: float = 0.0) -> tuple[int, float]:
    """Polls of one task, and the seconds after which it was found done. `turn`: seconds that a poll
    waits for its turn.
    """
    polls, last, elapsed = 0, 0.0, 0.0
    begun = 100.0 * next(numbers)
    while True:
        if pause := times.pause(elapsed, last, now=begun + elapsed):
            elapsed += pause
            continue
        sent, elapsed = elapsed, elapsed + turn + CALL
        polls += 1
        if sent + turn >= duration:
            times.record_done(sent, elapsed, is_first=not last)
            return polls, elapsed
        if not last or not times.done:
            times.record_early(sent)
        last = sent


@pytest.mark.parametrize(
    ("known", "elapsed", "last", "pause"),
    [
        ({}, 0.0, 0.0, FIRST_POLL),
        ({}, FIRST_POLL, 0.0, 0.0),
        # Another task of this age was polled a moment ago.
        ({"probed": 0.4, "quiet_until": 100.1}, 0.4, 0.0, FIRST_POLL / 4),
        ({"probed": 0.4, "quiet_until": 100.1}, 0.6, 0.0, 0.0),
        ({"probed": 0.4, "quiet_until": 99.9}, 0.4, 0.0, 0.0),
        ({}, 1.0, 1.0, 0.5),
        # The duration is known.
        (KNOWN, 0.0, 0.0, 1.1),
        (KNOWN, 1.1, 0.0, 0.0),
        (KNOWN, 1.1, 1.1, 0.1375),
        ({"early": 9.0, "done": 9.5}, 1.0, 0.0, LATEST_POLL - 1.0),
        ({"early": 9.0, "done": 9.5}, LATEST_POLL, 0.0, 0.0),
        # The bounds are apart: one task is polled between them.
        (APART, 0.0, 0.0, 0.9),
        (APART, 0.95, 0.0, 0.0),
        (APART | {"quiet_until": 100.1}, 0.95, 0.0, 0.15),
        (APART | {"quiet_until": 100.1}, 1.1, 0.0, 0.0),
        (APART, 0.95, 0.95, 0.15),
    ],
)
def test_task_is_polled_when_it_is_probably_done(
    known: dict[str, float], elapsed: float, last: float, pause: float
) -> None:
    assert TaskTimes(**known).pause(elapsed, last, now=100.0) == pytest.approx(pause)  # type: ignore[arg-type]


@pytest.mark.parametrize(("early", "pause"), [(0.9, 1.1), (0.5, 0.9)])
def test_task_that_needs_no_poll_is_polled_only_while_its_duration_is_vague(
    early: float, pause: float
) -> None:
    times = TaskTimes(early=early, done=1.1)
    assert times.pause(0.0, 0.0, now=100.0, close=FOLLOWED) == pytest.approx(pause)
    assert times.pause(0.0, 0.0, now=100.0) < 1.1


@pytest.mark.parametrize("duration", [0.3, 1.0, 2.5])
def test_tasks_of_equal_length_take_little_more_than_one_poll(duration: float) -> None:
    times, draw = TaskTimes(), random.Random(1)
    found = [follow(times, duration * draw.uniform(0.97, 1.0)) for _ in range(200)]
    assert sum(polls for polls, _ in found) < 1.15 * len(found)
    assert sum(elapsed for _, elapsed in found) < 1.25 * duration * len(found)


def test_polls_follow_tasks_that_become_slower_and_faster() -> None:
    times = TaskTimes()
    for duration in (1.0, 0.2, 0.8):
        late = [follow(times, duration) for _ in range(150)][-50:]
        assert sum(elapsed for _, elapsed in late) < (1.2 * duration + CALL) * len(late)
        assert sum(polls for polls, _ in late) < 1.2 * len(late)


def test_first_polls_find_most_tasks_of_different_lengths_done() -> None:
    times, draw = TaskTimes(), random.Random(1)
    polls = [follow(times, draw.uniform(1.0, 2.0))[0] for _ in range(300)]
    assert sum(polls) < 1.5 * len(polls)


def test_wait_of_polls_for_their_turn_is_no_part_of_the_duration() -> None:
    times = TaskTimes()
    for _ in range(5):
        follow(times, 1.0)
    for _ in range(20):
        follow(times, 1.0, turn=3.0)
    assert times.done < 1.3


def test_one_slow_task_delays_the_polls_of_others_little() -> None:
    times = TaskTimes()
    for _ in range(5):
        follow(times, 1.0)
    follow(times, 30.0)
    assert times.done < 1.3


def test_tasks_that_become_much_slower_are_polled_often_twice_only() -> None:
    times = TaskTimes()
    for _ in range(5):
        follow(times, 0.3)
    polls = [follow(times, 3.0)[0] for _ in range(10)]
    assert max(polls) <= 10
    assert sum(polls[2:]) < 2 * len(polls[2:])


def test_first_task_is_polled_more_and_more_rarely() -> None:
    polls, elapsed = follow(TaskTimes(), 3.0)
    assert polls <= 8
    assert elapsed < 1.6 * 3.0


def test_of_tasks_that_begin_together_one_is_polled_while_no_duration_is_known() -> None:
    times, polls = TaskTimes(), 0
    now = 0.0
    while now < 1.0:
        for _ in range(50):
            if not times.pause(now, 0.0, now):
                times.record_early(now)
                polls += 1
        now += 0.01
    assert polls < 10


def test_kind_of_task_without_a_duration_begins_with_the_longest_of_its_account() -> None:
    forget_all()
    _task_times["a", "creates"] = TaskTimes(early=1.0, done=1.1)
    _task_times["a", "deletes"] = TaskTimes(early=0.4, done=0.5)
    _task_times["b", "creates"] = TaskTimes(early=2.0, done=2.1)
    assert times_of("a", "binds").done == 1.1
    assert times_of("a", "binds") is times_of("a", "binds")
    assert times_of("c", "binds").done == 0.0
    forget_all()
