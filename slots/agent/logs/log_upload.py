"""Uploads the log of a run in chunks. The server says which chunk it expects next."""

from __future__ import annotations

import threading
import time
from typing import Callable

from ..common.errors import RequestRefused, ServerUnavailable, TokenRejected
from ..common.json_types import Json, as_count
from ..server.client import BerthClient, RetryDelay
from .log_buffer import LogBuffer

APART = 1.0  # seconds between chunks that are not full
FIRST = 0.2  # seconds to collect output that follows the first line


class LogUploader(threading.Thread):
    def __init__(
        self,
        client: BerthClient,
        path: str,
        log_buffer: LogBuffer,
        chunk_bytes: int,
        quit_now: threading.Event,
        log: Callable[[str], None],
    ) -> None:
        super().__init__(name=f"log {path}", daemon=True)
        self.client, self.path, self.log_buffer = client, path, log_buffer
        self.chunk_bytes, self.quit_now, self.log = chunk_bytes, quit_now, log
        self.next = 0
        self.sent_at = 0.0
        self.is_refused = False  # the server accepts no more of this log
        self.is_whole = False

    def run(self) -> None:
        backoff = RetryDelay(most=15)
        self.sent_at = time.monotonic() - APART + FIRST
        try:
            while not self.quit_now.is_set() and not self.is_refused:
                try:
                    if not self.step():
                        break
                    backoff.reset()
                except (ServerUnavailable, TokenRejected) as error:
                    delay = backoff.next()
                    self.log(f"log not sent: {error}; again in {delay:.1f} s")
                    self.quit_now.wait(delay)
        except OSError as error:
            self.log(f"the log on disk cannot be read: {error}")
            self.is_refused = True
        finally:
            self.client.close()

    def step(self) -> bool:
        """Upload one chunk. False: the server has the whole log."""
        self.log_buffer.more.clear()
        if self.next >= len(self.log_buffer.cut) and not self.log_buffer.pending:
            if self.log_buffer.is_ended:
                self.is_whole = True
                return False
            self.log_buffer.more.wait(0.5)
            return True
        while (
            not self.log_buffer.is_ended
            and self.log_buffer.pending < self.chunk_bytes
            and self.next >= len(self.log_buffer.cut)
        ):
            left = self.sent_at + APART - time.monotonic()
            if left <= 0 or self.quit_now.is_set():
                break
            self.log_buffer.more.wait(left)
            self.log_buffer.more.clear()
        chunk = self.log_buffer.chunk(self.next, self.chunk_bytes)
        if chunk is None:  # an incomplete character
            self.log_buffer.more.wait(0.5)
            return True
        body: Json = {"seq": chunk.seq, "text": chunk.text, "lines": chunk.lines}
        if chunk.left_out:
            body["left_out"] = chunk.left_out
        try:
            answer = self.client.post(self.path, body, timeout=30)
        except RequestRefused as error:
            self._handle_refusal(error, chunk.seq)
            return True
        self.sent_at = time.monotonic()
        at = as_count(answer.get("next"))
        # A number of no existing chunk is ignored, so that no chunk is left out.
        self.next = at if at is not None and at <= len(self.log_buffer.cut) else chunk.seq + 1
        return True

    def _handle_refusal(self, error: RequestRefused, seq: int) -> None:
        at = as_count(error.body.get("next"))
        if error.code == "gap" and at is not None and at < seq:
            self.next = at
            # The caller waits before the next try, because the server may repeat this for ever.
            raise ServerUnavailable(f"the server lacks the log from chunk {at}")
        self.log(f"the server accepts no more of this log: {error}")
        self.is_refused = True
