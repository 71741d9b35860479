"""The only publisher to Valkey: committed rows become hints for web processes and Celery workers.

While Valkey is away, any other publisher would block for seconds after its commit, and fail. The
relay drops the hint: web processes read the log every second, and the relay names queues with due
operations every second.
"""

import asyncio
import logging
import time
from typing import Any

from celery import Celery
from channels.layers import get_channel_layer
from django.utils.module_loading import import_string

from project.kernel.controllers.runtime import Controller
from project.kernel.controllers.worker_liveness import BROKER_DOWN, connect_broker
from project.kernel.events import notify
from project.kernel.events.log import renumber_future_events
from project.kernel.log_once import LogOnce

from . import operations, tasks

logger = logging.getLogger(__name__)

LIVE_GROUP = "live"
LIVE_MESSAGE = {"type": "more"}
LIVE_INTERVAL = 0.1
TIMEOUT = 1.0  # for Valkey to take a message
RENEW = 0.5  # seconds until a queue that still has due operations is named again
EXPIRES = 10.0  # seconds; a worker that was stopped finds no pile of old hints


class LiveRelay(Controller):
    """Tells the web processes of new events, at most ten times a second.

    After a restore from a dump, the events have transaction ids of the future and no reader would
    see them. The relay renumbers them before its first hint.
    """

    name = "relay-live"
    topics = notify.TOPICS  # each notification follows an event

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._sent_at = 0.0
        self._renumber_at = 0.0
        self._log_once = LogOnce("live hints", logger)

    def step(self) -> bool:
        # The sleep limits the rate. The loop keeps a notification that comes meanwhile, so a hint
        # follows the last event.
        time.sleep(max(0.0, self._sent_at + LIVE_INTERVAL - time.monotonic()))
        self._sent_at = time.monotonic()
        if self._sent_at >= self._renumber_at:
            renumber_future_events()
            self._renumber_at = self._sent_at + self.resync
        # The channel layer keeps a connection for each event loop, so the relay keeps one loop.
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            self._runner.run(asyncio.wait_for(_send_live(), TIMEOUT))
            self._log_once.worked()
        except BROKER_DOWN as error:
            self._log_once.failed(error)
        return False

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None


class QueueRelay(Controller):
    """Names queues with due operations to Celery. The message names no operation: the worker reads
    the due operations itself.
    """

    name = "relay-queues"
    topics = ("operations",)
    resync = 1.0

    def __init__(self, app: Celery | None = None) -> None:
        self._app: Any = app or import_string("project.celery.app")
        self._connection: Any = None
        self._sent_at: dict[str, float] = {}
        self._log_once = LogOnce("queue hints", logger)

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
                self._connection = connect_broker(self._app, TIMEOUT)
            self._app.send_task(
                tasks.PERFORM,
                args=[queue],
                queue=queue,
                connection=self._connection,
                ignore_result=True,
                expires=EXPIRES,
                retry=False,
            )
        except BROKER_DOWN as error:
            self._log_once.failed(error)
            self.close()
            return False
        self._log_once.worked()
        return True


async def _send_live() -> None:
    layer = get_channel_layer()
    if layer is not None:
        await layer.group_send(LIVE_GROUP, LIVE_MESSAGE)


RELAYS: tuple[type[Controller], ...] = (LiveRelay, QueueRelay)
