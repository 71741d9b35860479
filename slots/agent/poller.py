"""The agent's calls to the server in a thread: first hello, then orders by WebSocket, or by long
polls without one. Each call counts as a heartbeat.
"""

from __future__ import annotations

import threading
import time
import urllib.parse
from typing import TYPE_CHECKING, Callable

from .common.errors import AgentError, RequestRefused, ServerUnavailable, TokenRejected
from .common.json_types import Json
from .server.channel import TOKEN_CODES, Channel, ChannelOpener, ConnectionCut
from .server.client import RetryDelay
from .server.protocol import Hello, Orders, StopOrder, read_orders

if TYPE_CHECKING:
    from .runner import Context

LOAD_EVERY = 60.0
TOKEN_EVERY = 10.0  # seconds between two reads of the token file
MAX_PAUSE = 10.0  # seconds between two tries
SLOW = 15.0  # seconds between tries with a refused token
AWAY_LONG = 10.0  # seconds without an answer after which the agent sends hello again
LOOK = 1.0  # seconds of one wait: meanwhile the loop may ask for a hello, or end the agent
# Seconds after which an answer is not quick, and quick answers in a row before polls slow down.
QUICK, MOST_QUICK = 0.2, 5


class Poller(threading.Thread):
    def __init__(
        self,
        context: Context,
        put: Callable[[tuple[str, object]], None],
        hello: Callable[[], Hello],
    ) -> None:
        super().__init__(name="poll", daemon=True)
        self.context, self.put, self.hello = context, put, hello
        self.load: Callable[[], Json] | None = None
        self.is_ending = False
        self.needs_hello = True
        self.version = ""
        self.orders: Orders | None = None
        self.wait_s = 15.0
        self.heard_at = time.monotonic()
        self.load_at = time.monotonic()
        self.token_at = time.monotonic()
        self.opener = ChannelOpener(context.client, context.log)
        self.channel: Channel | None = None
        self.lock = threading.Lock()
        self.stopped: list[StopOrder] = []
        self.stopper = threading.Thread(
            target=self._report_all_stopped, name="stopped", daemon=True
        )
        self.stop_event = threading.Event()

    def request_hello(self) -> None:
        self.needs_hello = True

    def report_stopped(self, stops: list[StopOrder]) -> None:
        """Report stopped slots in another thread, because a poll may be open for a while."""
        with self.lock:
            self.stopped += [stop for stop in stops if stop not in self.stopped]
        self.stop_event.set()

    def end(self) -> None:
        self.stop_event.set()

    def run(self) -> None:
        self.stopper.start()
        backoff, refusals, quick = RetryDelay(most=MAX_PAUSE), RetryDelay(first=5.0, most=SLOW), 0
        quit_now = self.context.quit_now
        while not quit_now.is_set():
            begin = time.monotonic()
            try:
                self._step()
                quick = quick + 1 if time.monotonic() - begin < QUICK else 0
                if quick > MOST_QUICK:
                    quit_now.wait(QUICK)
                backoff.reset()
                refusals.reset()
                self.heard_at = time.monotonic()
                continue
            except (TokenRejected, ServerUnavailable, RequestRefused) as error:
                reason: AgentError = error
            except Exception as error:  # no error may end the polls
                self.context.log.trace("poll failed", error)
                reason = ServerUnavailable(str(error))
            delay = (refusals if isinstance(reason, TokenRejected) else backoff).next()
            if time.monotonic() - self.heard_at > AWAY_LONG:
                self.needs_hello = True
            self.context.log.info("no orders", error=reason, again_s=round(delay, 1))
            self.put(("away", reason))
            quit_now.wait(delay)
        if self.channel is not None:
            self.channel.close()
        self.context.client.close()

    def _step(self) -> None:
        if self.needs_hello:
            self.needs_hello = False
            try:
                answer = self.hello()
            except Exception:
                self.needs_hello = True
                raise
            self.wait_s, self.opener.beat_s = answer.wait_s, answer.beat_s
            self._accept_orders(answer.orders)
            return
        if time.monotonic() - self.token_at > TOKEN_EVERY:
            self.token_at = time.monotonic()
            if self.load is not None and self.context.client.renew(self.load()):
                self.context.log.info("uses a new token")
        self.channel = self.channel or self.opener.get_open()
        if self.channel is not None:
            self._listen(self.channel)
        else:
            self._poll()

    def _poll(self) -> None:
        # A short poll while a connection is being opened.
        wait = min(self.wait_s, max(LOOK, self.opener.until_check))
        have = urllib.parse.quote(self.version, safe="")
        orders = read_orders(
            self.context.client.get(f"orders/?wait={wait:g}&have={have}", timeout=wait + 15)
        )
        self._accept_orders(orders)
        if (load := self._due_load()) is not None:
            self.context.client.post("heartbeat/", {"load": load})

    def _listen(self, channel: Channel) -> None:
        """Wait for a message of the connection, but not long. After an error the next poll asks for
        the orders.
        """
        try:
            if channel.until_beat <= 0:
                channel.beat(self.version, self._due_load())
            message = channel.receive(max(0.05, min(LOOK, channel.until_beat))) or {}
            orders = read_orders(message) if "orders" in message else None
        except (ConnectionCut, ServerUnavailable) as error:
            self.channel = None
            if isinstance(error, ConnectionCut) and error.code in TOKEN_CODES:
                self.token_at = -TOKEN_EVERY  # read the token file before the next call
            self.opener.lose(
                channel, error if isinstance(error, ConnectionCut) else ConnectionCut(str(error))
            )
            return
        if orders is not None:
            self._accept_orders(orders)
        elif self.orders is not None and message.get("version") == self.version:
            self._accept_orders(self.orders)  # repeat the orders, as a poll does

    def _accept_orders(self, orders: Orders) -> None:
        self.orders, self.version = orders, orders.version
        self.put(("orders", orders))

    def _due_load(self) -> Json | None:
        if self.load is None or time.monotonic() - self.load_at <= LOAD_EVERY:
            return None
        self.load_at = time.monotonic()
        return self.load()

    def _report_all_stopped(self) -> None:
        backoff = RetryDelay(most=10)
        while not self.context.quit_now.is_set():
            self.stop_event.wait()
            self.stop_event.clear()
            while self.stopped and not self.context.quit_now.is_set():
                with self.lock:
                    stops = list(self.stopped)
                slots = [{"slot": stop.slot, "generation": stop.generation} for stop in stops]
                try:
                    self.context.client.post("stopped/", {"slots": slots})
                    backoff.reset()
                except RequestRefused as error:
                    self.context.log.info("stopped, refused", error=error)
                except Exception as error:
                    # Every error is retried, because an unreported slot is never used again.
                    if isinstance(error, (ServerUnavailable, TokenRejected)):
                        self.context.log.info("stopped, not sent", error=error)
                    else:
                        self.context.log.trace("stopped, not sent", error)
                    self.context.quit_now.wait(backoff.next())
                    continue
                with self.lock:
                    self.stopped = [stop for stop in self.stopped if stop not in stops]
        self.context.client.close()
