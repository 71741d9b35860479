"""Exchange of request counts between web processes, so that a caller has one rate limit however
many processes there are.

Each process counts at once in its own buckets and publishes its counts through Valkey a few times a
second. The other processes subtract them from their own buckets, also into debt. So a caller that
spreads its calls gains at most a quarter of a second, and pays it back. Valkey stores no counts;
while it is unreachable, each process counts by itself.
"""

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping

from redis import Redis
from redis.exceptions import RedisError

from pools.access.rate_limit import Buckets
from project.kernel.log_once import LogOnce

CHANNEL = "berth:shares"
EVERY = 0.25  # seconds between two messages of a process, if there are new counts
TIMEOUT = 2.0  # seconds for Valkey to answer
LONGEST_PAUSE = 10.0
DOWN = (OSError, RedisError)

logger = logging.getLogger(__name__)


class SharedBuckets(threading.Thread):
    """Thread that exchanges the counts of this process. `kinds` gives the buckets by the name that
    all processes use for them.
    """

    def __init__(
        self, url: str, kinds: Mapping[str, Callable[[], Buckets]], every: float = EVERY
    ) -> None:
        super().__init__(name="shares", daemon=True)
        self._url = url
        self._kinds = kinds
        self._every = every
        self._me = secrets.token_hex(8)
        self._stopped = threading.Event()
        self._log_once = LogOnce("shares of callers", logger)

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        pause = self._every
        while not self._stopped.is_set():
            try:
                self._exchange()
            except DOWN as error:
                self._log_once.failed(error)
                for buckets in self._kinds.values():
                    buckets().forget_taken()
                self._stopped.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                pause = self._every

    def _exchange(self) -> None:
        """Exchange counts until stopped. Raises one of `DOWN` once Valkey is unreachable."""
        with Redis.from_url(
            self._url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT
        ) as valkey:
            messages = valkey.pubsub(ignore_subscribe_messages=True)
            messages.subscribe(CHANNEL)
            sent_at = time.monotonic()
            while not self._stopped.is_set():
                message = messages.get_message(timeout=self._every)
                if message is not None:
                    self.receive(message["data"])
                if time.monotonic() - sent_at >= self._every:
                    sent_at = time.monotonic()
                    self._publish(valkey)
            messages.close()

    def _publish(self, valkey: Redis) -> None:
        taken = {
            kind: found
            for kind, buckets in self._kinds.items()
            if (found := buckets().forget_taken())
        }
        if taken:
            valkey.publish(CHANNEL, json.dumps({"from": self._me, "taken": taken}))
        self._log_once.worked()

    def receive(self, data: bytes) -> None:
        """Subtract the counts of a message. An invalid message is logged and skipped, because a
        faulty process must not end the exchange.
        """
        try:
            message = json.loads(data)
            counts = (
                {}
                if message["from"] == self._me
                else {kind: read_counts(taken) for kind, taken in message["taken"].items()}
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
                "a message with rate limit counts is invalid: %s: %s", type(error).__name__, error
            )
            return
        for kind, taken in counts.items():
            if kind in self._kinds:
                self._kinds[kind]().subtract_remote(taken)


def read_counts(taken: Mapping[str, float]) -> dict[str, int]:
    found = {str(caller): int(count) for caller, count in taken.items()}
    if any(count < 0 for count in found.values()):
        raise ValueError("a count is negative")
    return found
