"""What callers have taken in the other web processes, so that a share is one share however many
processes there are.

Each process counts by itself, at once and without asking anybody, and tells the others through
Valkey a few times a second; what it is told it takes out of its own buckets, into debt if need be.
So a caller that spreads its calls may be ahead by a quarter of a second, and pays it back. Nothing
is kept in Valkey; while it is away each process counts for itself alone.
"""

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from pools.access.rate_limit import Buckets
from project.kernel.log_once import LogOnce

CHANNEL = "berth:shares"
EVERY = 0.25  # seconds between two messages of a process, if somebody called
TIMEOUT = 2.0  # for Valkey to answer
LONGEST_PAUSE = 10.0
DOWN = (OSError, RedisError)

logger = logging.getLogger(__name__)


class SharedBuckets(threading.Thread):
    """Of this process; `kinds` gives its buckets by the name under which the others have theirs."""

    def __init__(
        self, url: str, kinds: Mapping[str, Callable[[], Buckets]], every: float = EVERY
    ) -> None:
        super().__init__(name="shares", daemon=True)
        self._url = url
        self._kinds = kinds
        self._every = every
        self._me = secrets.token_hex(8)
        self._stopped = threading.Event()
        self._quiet = LogOnce("shares of callers", logger)

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        pause = self._every
        while not self._stopped.is_set():
            try:
                self._exchange()
            except DOWN as error:
                self._quiet.failed(error)
                for buckets in self._kinds.values():
                    buckets().forget_taken()
                self._stopped.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                pause = self._every

    def _exchange(self) -> None:
        """Until Valkey is away."""
        with Redis.from_url(
            self._url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT
        ) as valkey:
            heard = valkey.pubsub(ignore_subscribe_messages=True)
            heard.subscribe(CHANNEL)
            told_at = time.monotonic()
            while not self._stopped.is_set():
                message = heard.get_message(timeout=self._every)
                if message is not None:
                    self.hear(message["data"])
                if time.monotonic() - told_at >= self._every:
                    told_at = time.monotonic()
                    self._publish(valkey)
            heard.close()

    def _publish(self, valkey: Any) -> None:
        taken = {
            kind: found
            for kind, buckets in self._kinds.items()
            if (found := buckets().forget_taken())
        }
        if taken:
            valkey.publish(CHANNEL, json.dumps({"from": self._me, "taken": taken}))
        self._quiet.worked()

    def hear(self, data: bytes) -> None:
        """What is no message of ours is passed over: one process that says something else must
        not end the counting of all.
        """
        try:
            said = json.loads(data)
            told = (
                {}
                if said["from"] == self._me
                else {kind: read_counts(taken) for kind, taken in said["taken"].items()}
            )
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as error:
            logger.warning(
                "a message about shares of callers is none: %s: %s", type(error).__name__, error
            )
            return
        for kind, taken in told.items():
            if kind in self._kinds:
                self._kinds[kind]().note_elsewhere(taken)


def read_counts(taken: Mapping[str, Any]) -> dict[str, int]:
    found = {str(caller): int(count) for caller, count in taken.items()}
    if any(count < 0 for count in found.values()):
        raise ValueError("less than nothing was taken")
    return found
