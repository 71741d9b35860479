"""The only publisher to Valkey: it turns what is committed into hints for web processes and
Celery workers.

Everybody else would block for seconds and fail after their commit while Valkey is away. Here it is
a hint that is dropped: web processes look at the log every second, and due operations are looked
for every second, for as long as they are due.
"""

import asyncio
import logging
import time
from typing import Any

from channels.layers import get_channel_layer
from django.conf import settings
from django.utils.module_loading import import_string
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from project.kernel.controllers.runtime import Controller
from project.kernel.events import notify
from project.kernel.events.log import renumber_future_events
from project.kernel.log_once import LogOnce

from . import operations, tasks

logger = logging.getLogger(__name__)

LIVE_GROUP = "live"
LIVE_MESSAGE = {"type": "more"}
LIVE_INTERVAL = 0.1
TIMEOUT = 1.0  # for Valkey to take a message
RENEW = 0.5  # seconds before a queue in which something is still due is named again
EXPIRES = 10.0  # an unread hint is worthless by then, and a stopped worker finds no pile of them
DOWN = (OSError, TimeoutError, RedisError, KombuError)


class LiveRelay(Controller):
    """Tells the web processes that there is more in the log, at most ten times a second.

    After a restore from a dump nobody could read the log; so whoever announces it first sees to it
    that it can be read.
    """

    name = "relay-live"
    topics = notify.TOPICS  # whatever is hinted at has left an event

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._sent_at = 0.0
        self._renumber_at = 0.0
        self._quiet = LogOnce("live hints", logger)

    def step(self) -> bool:
        # Sleeping here keeps the pace: a hint that comes meanwhile is kept by the loop, and the
        # last one is always followed.
        time.sleep(max(0.0, self._sent_at + LIVE_INTERVAL - time.monotonic()))
        self._sent_at = time.monotonic()
        if self._sent_at >= self._renumber_at:
            renumber_future_events()
            self._renumber_at = self._sent_at + self.resync
        # The channel layer keeps a connection for each event loop: this is the one.
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            self._runner.run(asyncio.wait_for(_send_live(), TIMEOUT))
            self._quiet.worked()
        except DOWN as error:
            self._quiet.failed(error)
        return False

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None


class QueueRelay(Controller):
    """Names the queues in which something is due to Celery. The message names no operation:
    whoever gets it reads what is due.
    """

    name = "relay-queues"
    topics = ("operations",)
    resync = 1.0

    def __init__(self, app: Any = None) -> None:
        self._app: Any = app or import_string(
            getattr(settings, "BERTH_CELERY", "project.celery.app")
        )
        self._connection: Any = None
        self._sent_at: dict[str, float] = {}
        self._quiet = LogOnce("queue hints", logger)

    def step(self) -> bool:
        now = time.monotonic()
        for queue in operations.list_due_queues():
            if now - self._sent_at.get(queue, -RENEW) >= RENEW:
                self._sent_at[queue] = now
                if not self._send(queue):
                    break
        return False

    def close(self) -> None:
        if self._connection is not None:
            self._connection.release()
            self._connection = None

    def _send(self, queue: str) -> bool:
        try:
            if self._connection is None:
                short = {
                    "socket_timeout": TIMEOUT,
                    "socket_connect_timeout": TIMEOUT,
                    "retry_on_timeout": False,
                }
                options = {**self._app.conf.broker_transport_options, **short}
                self._connection = self._app.connection_for_write(
                    connect_timeout=TIMEOUT, transport_options=options
                )
            self._app.send_task(
                tasks.PERFORM,
                args=[queue],
                queue=queue,
                connection=self._connection,
                ignore_result=True,
                expires=EXPIRES,
                retry=False,
            )
        except DOWN as error:
            self._quiet.failed(error)
            self.close()
            return False
        self._quiet.worked()
        return True


async def _send_live() -> None:
    layer: Any = get_channel_layer()  # type: ignore[no-untyped-call]
    if layer is not None:
        await layer.group_send(LIVE_GROUP, LIVE_MESSAGE)


RELAYS: tuple[type[Controller], ...] = (LiveRelay, QueueRelay)
