"""Hears of pods that change: one list to begin with, then a watch that is resumed where it ended.
It only says which pool is worth a look; what is true, the look finds out. So a watch that hangs,
breaks or is too old costs seconds and nothing else."""

import logging
import random
import threading
from collections.abc import Mapping
from typing import Any

from pools.providers.base import Follower, Tell
from pools.providers.kubernetes.names import POOL, number_in, select_all
from project.kernel.kubernetes.client import Api, api_for
from project.kernel.kubernetes.errors import ApiCall, Expired, explain
from project.kernel.kubernetes.objects import Object
from project.kernel.kubernetes.request import GONE
from project.kernel.kubernetes.watch_stream import Stream
from project.kernel.outbox.operations import ProviderError
from project.kernel.retry import Backoff, delay_after

logger = logging.getLogger(__name__)

LASTS = 50  # seconds: the server ends a watch then, and it is resumed
SLACK = 10.0  # seconds more, after which a watch that says nothing hangs
BACKOFF = Backoff(0.5, 30.0)
ENDS_WITHIN = 2.0


class PodFollower(Follower):
    def __init__(self, options: Mapping[str, Any], installation: str, tell: Tell) -> None:
        self._options, self._selector, self._tell = options, select_all(installation), tell
        self._stop = threading.Event()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name="follow-pods", daemon=True)
        self._version = ""  # up to where we have heard; empty: nowhere

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if (stream := self._stream) is not None:
            stream.break_off()
        if self._thread.is_alive():
            self._thread.join(ENDS_WITHIN)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                api = api_for(self._options)
                if not self._version:
                    self._version = api.find_version(self._selector)
                    self._tell(None)  # whatever happened before is found by a look
                elif failures:
                    self._tell(None)  # it answers again: who waits for that need not wait longer
                if failures:
                    logger.info("follows pods of %s again", api.place)
                failures = 0
                self._listen(api)
                continue
            except Expired:
                self._version = ""
                continue_at = 0.0
            except (ProviderError, *GONE, ValueError) as error:
                if self._stop.is_set():
                    return
                failures += 1
                continue_at = max(
                    delay_after(failures, BACKOFF, random.random()),
                    getattr(error, "retry_after", None) or 0.0,
                )
                if failures == 1:
                    logger.warning("pods are not followed, looks go on by timer: %s", error)
            self._stop.wait(continue_at)

    def _listen(self, api: Api) -> None:
        """Until the server ends it. What breaks it is raised, and it is resumed from what was
        heard last.
        """
        seconds = random.randint(LASTS - 10, LASTS)
        stream = self._stream = api.watch_pods(
            self._selector, self._version, seconds, seconds + SLACK
        )
        try:
            for event in stream:
                if self._stop.is_set():
                    return
                self._hear(event, api)
        finally:
            self._stream = None
            stream.close()

    def _hear(self, event: Object, api: Api) -> None:
        found = event.get("object") or {}
        if event.get("type") == "ERROR":
            code = found.get("code")
            raise explain(
                code if isinstance(code, int) else 500,
                found,
                ApiCall("watch", "pods", place=api.place),
            )
        if event.get("type") != "BOOKMARK" and (pool_id := number_in(found, POOL)):
            self._tell(pool_id)
        self._version = str((found.get("metadata") or {}).get("resourceVersion") or self._version)
