"""Writes on one load balancer, which takes one at a time and performs each as a task.

A worker waits a few seconds for a task. If the task runs longer, StillRunning ends the call, its
text becomes the reason on the member, and the next call waits for the task.

Few tasks need a poll: the load balancer accepts a write once the one before has ended, and the list
of listeners tells which creations succeeded. `settle` polls the last write of a pass.

The journal knows of each write before it begins, so that another worker, also after this one has
died, does not take a listener for gone that may still appear.
"""

import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pools.providers.tencent.client import DONE, FAILED, ClbClient, CloudTask
from pools.providers.tencent.errors import LoadBalancerBusy, NoAnswer, RequestRejected
from project.kernel.outbox.operations import Postponed, ProviderError, Throttled
from project.kernel.outbox.turns import wait

logger = logging.getLogger(__name__)

WAIT = 4.0  # seconds for one task
LIMIT = 8.0  # seconds after which a call begins no further write
# Seconds in which a write without an answer may still take effect.
UNCERTAIN = 20.0
FIRST_POLL = 0.2  # seconds, while no duration is known
LATEST_POLL = 3.5  # seconds after which a task is polled at the latest
CLOSE = 1.15  # ratio of the bounds of a duration from which on no poll tries to come closer
FOLLOWED = 1.3  # the same for a task that needs no poll, so that a poll is an effort
# While no duration is known: ratio of the time of a poll to that of the last poll of any task.
APART = 1.25
# Ratio of the time of a poll to that of the poll before, which came too early; the second if the
# task is slower than usual or its usual time is unknown.
LATER, MUCH_LATER = 1.125, 1.5
PROMPT = 0.25  # seconds of a call that did not wait for its turn
# By which the lower bound sinks with each task, more and more: tasks may become faster.
FORGET = 0.001
TASK = re.compile(r"\btask ([0-9A-Za-z-]{8,64}):")


@dataclass(slots=True)
class TaskTimes:
    """How long tasks of a kind take, so that the first poll finds nearly all of them done: the
    polls have a limit, too.

    The duration lies between a poll that came too early and one that found the task done. While the
    two are apart, one task at a time is polled between them, and the others when they are done.
    """

    early: float = 0.0  # seconds after which a task was still running
    done: float = 0.0  # seconds after which a task is done; 0: not known yet
    successes: int = 0  # tasks in a row that the first poll found done
    slow: float = 0.0  # seconds after which the last task was done, if its first poll was early
    probed: float = 0.0  # while no duration is known: seconds after which a task was polled last
    quiet_until: float = 0.0  # until when other tasks wait for what that poll tells

    def pause(self, elapsed: float, last: float, now: float, close: float = CLOSE) -> float:
        """Seconds until a task of this age is polled, or looked at again; 0: poll it now. `last`:
        its age at the poll before; 0: there was none. `close`: ratio of the bounds.
        """
        due = self._due(last, close)
        if elapsed < due:
            return due - elapsed
        if not self.done:
            return self._pause_unknown(elapsed, now)
        done = min(self.done, LATEST_POLL)
        if elapsed < done and not last:
            if now < self.quiet_until:
                return done - elapsed
            self.quiet_until = now + done - elapsed
        return 0.0

    def _due(self, last: float, close: float) -> float:
        if not last:
            is_close = self.done <= self.early * close
            between = self.done if is_close else (self.early + 2 * self.done) / 3
            return min(between, LATEST_POLL) if self.done else FIRST_POLL
        if last < self.done <= LATEST_POLL:
            return self.done
        ratio = LATER if last < self.done * FOLLOWED else MUCH_LATER
        return max(last * ratio, last + FIRST_POLL / 4)

    def _pause_unknown(self, elapsed: float, now: float) -> float:
        """Many load balancers change at once when a pool starts. One task of each age is polled,
        and the others wait for the duration that it tells.
        """
        if now < self.quiet_until and elapsed < self.probed * APART:
            return FIRST_POLL / 4
        self.probed, self.quiet_until = elapsed, now + max(elapsed / 2, FIRST_POLL / 4)
        return 0.0

    def record_early(self, elapsed: float) -> None:
        """The first poll of a task came too early. Once a duration is known, later polls of the
        task are not recorded: one slow task does not delay the polls of all others.
        """
        self.early = max(self.early, elapsed)
        self.successes = 0
        if self.done:
            self.done = max(self.done, elapsed * LATER)

    def record_done(self, sent: float, answered: float, *, is_first: bool) -> None:
        """Seconds after which a poll was sent, and found a task done. A late answer had to wait for
        the turn of the poll, which is no part of the duration, so it does not raise the bound. Two
        slow tasks in a row raise it. `is_first`: no poll of the task came too early.
        """
        done = sent if answered - sent < PROMPT else answered
        self.done = max(min(self.done or done, done), 0.0 if is_first else min(self.slow, sent))
        self.slow = 0.0 if is_first else sent
        self.successes += is_first
        self.early = min(self.early * max(0.0, 1 - FORGET * self.successes), self.done)


# By account and kind of write. Threads share the entries: a lost update only costs a poll.
_task_times: dict[tuple[str, str], TaskTimes] = {}


def times_of(account: str, kind: str) -> TaskTimes:
    """A kind that is new begins with the longest duration of the other kinds."""
    if found := _task_times.get((account, kind)):
        return found
    known = [times.done for (other, _), times in list(_task_times.items()) if other == account]
    return _task_times.setdefault((account, kind), TaskTimes(done=max(known, default=0.0)))


class StillRunning(Exception):
    """The rest of the work waits for a later call; the text says for what."""


class CloudTaskFailed(ProviderError):
    pass


@dataclass(frozen=True, slots=True)
class OpenTask:
    """The task of an accepted write, whose end is not confirmed."""

    id: str
    what: str
    begun: float
    times: TaskTimes


class LoadBalancerWriter:
    def __init__(self, client: ClbClient, load_balancer: str) -> None:
        self._client, self._id = client, load_balancer
        self._journal = client.journal
        self._key = f"tencent {client.account} {client.region} {load_balancer}"
        self._until = time.monotonic() + LIMIT
        self._open: OpenTask | None = None

    def write(self, what: str, call: Callable[[], CloudTask]) -> CloudTask:
        """Begin a write and wait until it is done. `what`: like "creates 3 listeners"."""
        task = self.begin(what, call)
        self.settle()
        return task

    def begin(self, what: str, call: Callable[[], CloudTask]) -> CloudTask:
        """Begin a write. The next write follows without a poll, because the load balancer accepts
        it only after this one. Whether this one succeeded must be read from the cloud.
        """
        if time.monotonic() >= self._until:
            self._keep_open_task()
            raise StillRunning(f"Berth {what} with its next calls.")
        self.await_probable_end()
        earlier = self._journal.begin(self._key, UNCERTAIN)
        sent = time.monotonic()
        try:
            task = call()
        except LoadBalancerBusy as error:
            if self._open:
                self.end_open_task()
                return self.begin(what, call)
            self._restore(earlier or "")  # the write that runs may be an earlier one of Berth
            text = f"Another change of {self._id} runs; Berth {what} after that."
            raise StillRunning(text) from error
        except NoAnswer:
            self._open = None  # its end does not confirm this write, which the journal keeps
            raise
        except (ProviderError, Postponed):
            self._restore(self._open.id if self._open else earlier)
            raise
        # The load balancer has accepted it, so earlier writes have ended.
        if (last := self._open) is not None:
            answered = time.monotonic() - last.begun
            last.times.record_done(sent - last.begun, answered, is_first=True)
        times = times_of(self._client.account, what.partition(" ")[0])
        self._open = OpenTask(task.id, what, time.monotonic(), times)
        return task

    def _restore(self, earlier: str | None) -> None:
        """The journal is as it was before a write that had no effect."""
        if earlier is None:
            self._journal.end(self._key)
        else:
            self._journal.set_task(self._key, earlier)

    def _keep_open_task(self) -> None:
        """The next call resumes it."""
        if self._open:
            self._journal.set_task(self._key, self._open.id)

    def resume(self) -> bool:
        """Wait for a write that an earlier call left running; its effect would show later. True: a
        write of an earlier call without an answer may still take effect.
        """
        if task := self._journal.find(self._key):
            # Its begin is not known, so it tells no duration.
            what = "waits for its last change"
            self._open = OpenTask(task, what, time.monotonic(), TaskTimes())
            self.end_open_task()
        return task == ""

    def await_probable_end(self) -> None:
        """Wait until the write that was begun last is probably done, mostly without a poll."""
        if self._open:
            with suppress(CloudTaskFailed):
                self._wait(self._open, is_followed=True)

    def end_open_task(self) -> None:
        """As `settle`. After a failure the listeners that are there say what is missing."""
        with suppress(CloudTaskFailed):
            self.settle()

    def settle(self) -> None:
        """Wait for the write that was begun last. Raises StillRunning or CloudTaskFailed."""
        if self._open:
            self._wait(self._open)

    def _wait(self, task: OpenTask, *, is_followed: bool = False) -> None:
        """`is_followed`: a call follows that tells as well as a poll whether the task has ended, so
        the wait ends when that is probable.
        """
        running = StillRunning(f"Tencent Cloud performs task {task.id}: Berth {task.what}.")
        last = 0.0
        while True:
            now = time.monotonic()
            elapsed = now - task.begun
            if is_followed and not last and 0 < task.times.done <= elapsed:
                return
            close = FOLLOWED if is_followed else CLOSE
            if pause := task.times.pause(elapsed, last, now, close):
                if elapsed + pause > WAIT or not wait(pause):
                    self._keep_open_task()
                    raise running
                continue
            try:
                status, message, _ = self._client.task_status(task.id)
            except RequestRejected:
                self._journal.end(self._key)  # the cloud knows no such task any more
                self._open = None
                return
            except (Postponed, Throttled, NoAnswer):
                self._keep_open_task()
                raise running from None
            if status in (DONE, FAILED):
                self._journal.end(self._key)
                self._open = None
            if status == DONE:
                answered = time.monotonic() - task.begun
                task.times.record_done(elapsed, answered, is_first=not last)
                return
            if status == FAILED:
                reason = message.rstrip(".") or "no reason given"
                logger.info("task %s failed: Berth %s", task.id, task.what)
                raise CloudTaskFailed(
                    f"Tencent Cloud failed to perform a task (Berth {task.what}): {reason}."
                )
            if not last or not task.times.done:
                task.times.record_early(elapsed)
            last = elapsed

    @property
    def is_uncertain(self) -> bool:
        """The effect of a write may still appear: a listener that is missing, for example."""
        return self._journal.find(self._key) is not None


def find_task(outside: str) -> str:
    """The task in the text of StillRunning, which the member keeps as its reason."""
    match = TASK.search(outside)
    return match[1] if match else ""
