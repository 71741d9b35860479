"""Follower of pod changes: a list, then a watch that resumes where it ended. The follower only
names changed pools, and the look reads the facts. A watch that hangs or breaks costs seconds.
"""

import logging
import random
import threading
from collections.abc import Mapping

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

LASTS = 50  # seconds after which the server ends a watch, and the follower resumes it
SLACK = 10.0  # more seconds, after which a silent watch counts as hanging
BACKOFF = Backoff(0.5, 30.0)
ENDS_WITHIN = 2.0


class PodFollower(Follower):
    def __init__(self, options: Mapping[str, object], installation: str, notify: Tell) -> None:
        self._options, self._selector, self._notify = options, select_all(installation), notify
        self._stop = threading.Event()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name="follow-pods", daemon=True)
        self._version = ""  # resource version of the last event; empty: list first

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
                    self._notify(None)  # a look finds the earlier changes
                elif failures:
                    self._notify(None)  # it answers again, and pools may wait for that
                if failures:
                    logger.info("the watch of pods in %s works again", api.place)
                failures = 0
                self._follow(api)
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
                    logger.warning("the watch of pods failed, looks continue by timer: %s", error)
            self._stop.wait(continue_at)

    def _follow(self, api: Api) -> None:
        """Follow one watch until the server ends it. Raises the error that breaks the watch; the
        next watch resumes after the last event.
        """
        seconds = random.randint(LASTS - 10, LASTS)
        stream = self._stream = api.watch_pods(
            self._selector, self._version, seconds, seconds + SLACK
        )
        try:
            for event in stream:
                if self._stop.is_set():
                    return
                self._handle(event, api)
        finally:
            self._stream = None
            stream.close()

    def _handle(self, event: Object, api: Api) -> None:
        found = event.get("object") or {}
        if event.get("type") == "ERROR":
            code = found.get("code")
            raise explain(
                code if isinstance(code, int) else 500,
                found,
                ApiCall("watch", "pods", place=api.place),
            )
        if event.get("type") != "BOOKMARK" and (pool_id := number_in(found, POOL)):
            self._notify(pool_id)
        self._version = str((found.get("metadata") or {}).get("resourceVersion") or self._version)
