"""Writes on one load balancer, which takes one at a time and performs each as a task.

A worker waits a few seconds for a task. If the task runs longer, StillRunning ends the call, its
text becomes the reason on the member, and the next call waits for the task.

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

logger = logging.getLogger(__name__)

WAIT = 4.0  # seconds for one task
LIMIT = 8.0  # seconds after which a call begins no further write
# Seconds in which a write without an answer may still take effect.
UNCERTAIN = 20.0
FIRST_POLL, LONGEST_POLL = 0.2, 1.5
CLOSE = 1.15  # ratio of the bounds of a duration from which on no poll tries to come closer
# While no duration is known: ratio of the time of a poll to that of the last poll of any task.
APART = 1.25
# By which the lower bound sinks with each task, more and more: tasks may become faster.
FORGET = 0.001
TASK = re.compile(r"\btask ([0-9A-Za-z-]{8,64}):")


@dataclass(slots=True)
class TaskTimes:
    """How long tasks take, so that one poll finds most of them done: the polls have a limit, too.

    The last duration lies between a poll that came too early and one that found the task done.
    While the two are apart, the next task is polled between them.
    """

    early: float = 0.0  # seconds after which a task was still running
    done: float = 0.0  # seconds after which a task was done; 0: not known yet
    successes: int = 0  # tasks in a row that the first poll found done
    # While no duration is known: seconds after which a task was polled last, and until when polls
    # of tasks that are no older wait for it.
    probed: float = 0.0
    quiet_until: float = 0.0

    def is_quiet(self, elapsed: float, now: float, pause: float) -> bool:
        """True: a task of this age was polled a moment ago and runs, and its duration will be known
        soon. Many load balancers change at once when a pool starts, and polls have a limit.
        `pause`: seconds until this task would be polled again.
        """
        if not self.done and now < self.quiet_until and elapsed < self.probed * APART:
            return True
        self.probed, self.quiet_until = elapsed, now + pause
        return False

    def first_poll(self, unknown: float, longest: float) -> float:
        """Seconds until the first poll."""
        if not self.done:
            return unknown
        is_close = self.done <= self.early * CLOSE
        return min(self.done if is_close else (self.early + 2 * self.done) / 3, longest)

    def next_poll(self, elapsed: float, shortest: float) -> float:
        """Seconds until the poll after one that came too early."""
        if elapsed < self.done:
            return max(self.done - elapsed, shortest)
        return max(elapsed / (8 if self.done else 2), shortest)

    def record_early(self, elapsed: float) -> None:
        self.early = max(self.early, elapsed)
        self.successes = 0

    def record_done(self, elapsed: float) -> None:
        self.done = elapsed
        self.successes += 1
        self.early = min(self.early * max(0.0, 1 - FORGET * self.successes), elapsed)


# By account and kind of write. Threads share the entries: a lost update only costs a poll.
_task_times: dict[tuple[str, str], TaskTimes] = {}


class StillRunning(Exception):
    """The rest of the work waits for a later call; the text says for what."""


class CloudTaskFailed(ProviderError):
    pass


class LoadBalancerWriter:
    def __init__(self, client: ClbClient, load_balancer: str) -> None:
        self._client, self._id = client, load_balancer
        self._journal = client.journal
        self._key = f"tencent {client.account} {client.region} {load_balancer}"
        self._until = time.monotonic() + LIMIT

    def write(self, what: str, call: Callable[[], CloudTask]) -> CloudTask:
        """Begin a write and wait until it is done. `what`: like "creates 3 listeners"."""
        if time.monotonic() >= self._until:
            raise StillRunning(f"Berth {what} with its next calls.")
        earlier = self._journal.begin(self._key, UNCERTAIN)
        try:
            task = call()
        except LoadBalancerBusy as error:
            self._restore(earlier or "")  # the write that runs may be an earlier one of Berth
            text = f"Another change of {self._id} runs; Berth {what} after that."
            raise StillRunning(text) from error
        except NoAnswer:
            raise  # the journal keeps the write
        except (ProviderError, Postponed):
            self._restore(earlier)
            raise
        self.wait(task.id, what)  # the load balancer has accepted it, so earlier writes have ended
        return task

    def _restore(self, earlier: str | None) -> None:
        """The journal is as it was before a write that had no effect."""
        if earlier is None:
            self._journal.end(self._key)
        else:
            self._journal.set_task(self._key, earlier)

    def resume(self) -> None:
        """Wait for a write that an earlier call left running; its effect would show later."""
        if task := self._journal.find(self._key):
            # After a failure the plan says what is missing.
            with suppress(CloudTaskFailed):
                self.wait(task, "waits for its last change")

    def wait(self, task: str, what: str) -> None:
        """Raises StillRunning or CloudTaskFailed."""
        begun = time.monotonic()
        kind = (self._client.account, what.partition(" ")[0])
        times = _task_times.setdefault(kind, TaskTimes())
        running = StillRunning(f"Tencent Cloud performs task {task}: Berth {what}.")
        pause, is_held = times.first_poll(FIRST_POLL, LONGEST_POLL), False
        while True:
            time.sleep(pause)
            now = time.monotonic()
            elapsed = now - begun
            again = times.next_poll(elapsed, FIRST_POLL / 4)
            is_quiet = times.is_quiet(elapsed, now, again)
            # A poll that was held back may come too early by what is known now.
            early = times.first_poll(FIRST_POLL, LONGEST_POLL) - elapsed if is_held else 0.0
            is_held = is_quiet
            if is_quiet or early > 0:
                pause = FIRST_POLL / 4 if is_quiet else early
                if elapsed + pause > WAIT:
                    raise running
                continue
            try:
                status, message, _ = self._client.task_status(task)
            except RequestRejected:
                self._journal.end(self._key)  # the cloud knows no such task any more
                return
            except (Postponed, Throttled, NoAnswer):
                self._journal.set_task(self._key, task)
                raise running from None
            if status in (DONE, FAILED):
                self._journal.end(self._key)
            if status == DONE:
                # The call may have waited for its turn.
                times.record_done(time.monotonic() - begun)
                return
            if status == FAILED:
                reason = message.rstrip(".") or "no reason given"
                logger.info("task %s failed: Berth %s", task, what)
                raise CloudTaskFailed(
                    f"Tencent Cloud failed to perform a task (Berth {what}): {reason}."
                )
            times.record_early(elapsed)
            pause = min(times.next_poll(elapsed, FIRST_POLL / 4), LONGEST_POLL)
            if elapsed + pause > WAIT:
                self._journal.set_task(self._key, task)
                raise running

    @property
    def is_uncertain(self) -> bool:
        """The effect of a write may still appear: a listener that is missing, for example."""
        return self._journal.find(self._key) is not None


def find_task(outside: str) -> str:
    """The task in the text of StillRunning, which the member keeps as its reason."""
    match = TASK.search(outside)
    return match[1] if match else ""
