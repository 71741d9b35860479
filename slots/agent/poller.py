"""Talks with the server while the loop decides: hello, then what the open connection says, or one
long-poll after the other where there is none. Each of its calls is the agent's heartbeat."""

from __future__ import annotations

import threading
import time
import urllib.parse
from typing import TYPE_CHECKING, Any, Callable

from .common.errors import RequestRefused, ServerUnavailable, TokenRejected
from .server.channel import TOKEN_CODES, Channel, ChannelOpener, ConnectionCut
from .server.client import RetryDelay
from .server.protocol import Hello, Orders, StopOrder, read_orders

if TYPE_CHECKING:
    from .runner import Context

LOAD_EVERY = 60.0
TOKEN_EVERY = 10.0  # seconds between two looks at the token's file
LONGEST = 10.0  # seconds between two tries
SLOW = 15.0  # between tries with a token that is refused
AWAY_LONG = 10.0  # after this long, the agent announces itself anew
LOOK = 1.0  # seconds: the agent may be told to say hello, or to end, while nothing comes
# A server that answers at once, again and again, is asked no more often than this.
QUICK, MOST_QUICK = 0.2, 5


class Poller(threading.Thread):
    def __init__(
        self, context: Context, tell: Callable[[Any], None], hello: Callable[[], Hello]
    ) -> None:
        super().__init__(name="poll", daemon=True)
        self.context, self.tell, self.greet = context, tell, hello
        self.load: Callable[[], dict[str, Any]] | None = None
        self.is_ending = False
        self.needs_hello = True
        self.version = ""
        self.orders: Orders | None = None
        self.wait_s = 15.0
        self.heard_at = time.monotonic()
        self.load_at = time.monotonic()
        self.token_at = time.monotonic()
        self.door = ChannelOpener(context.client, context.journal)
        self.channel: Channel | None = None
        self.lock = threading.Lock()
        self.stopped: list[StopOrder] = []
        self.stopper = threading.Thread(
            target=self._report_all_stopped, name="stopped", daemon=True
        )
        self.stop_event = threading.Event()

    def say_hello(self) -> None:
        self.needs_hello = True

    def say_stopped(self, stops: list[StopOrder]) -> None:
        """In a thread beside: a poll may be open for a while yet."""
        with self.lock:
            self.stopped += [stop for stop in stops if stop not in self.stopped]
        self.stop_event.set()

    def end(self) -> None:
        self.stop_event.set()

    def run(self) -> None:
        self.stopper.start()
        backoff, refusals, quick = RetryDelay(most=LONGEST), RetryDelay(first=5.0, most=SLOW), 0
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
            except TokenRejected as error:
                delay, reason = refusals.next(), error
            except (ServerUnavailable, RequestRefused) as error:
                delay, reason = backoff.next(), error  # type: ignore[assignment]
            except Exception as error:  # whatever it is, an agent goes on asking
                self.context.journal.trace("poll failed", error)
                delay, reason = backoff.next(), ServerUnavailable(str(error))  # type: ignore[assignment]
            if time.monotonic() - self.heard_at > AWAY_LONG:
                self.needs_hello = True
            self.context.journal.note("no orders", error=reason, again_s=round(delay, 1))
            self.tell(("away", reason))
            quit_now.wait(delay)
        if self.channel is not None:
            self.channel.close()
        self.context.client.close()

    def _step(self) -> None:
        if self.needs_hello:
            self.needs_hello = False
            try:
                answer = self.greet()
            except Exception:
                self.needs_hello = True
                raise
            self.wait_s, self.door.beat_s = answer.wait_s, answer.beat_s
            self._accept_orders(answer.orders)
            return
        if time.monotonic() - self.token_at > TOKEN_EVERY:
            self.token_at = time.monotonic()
            if self.load is not None and self.context.client.renew(self.load()):
                self.context.journal.note("takes another token")
        self.channel = self.channel or self.door.take()
        if self.channel is not None:
            self._listen(self.channel)
        else:
            self._poll()

    def _poll(self) -> None:
        # Not for long beside a connection that is about to be there.
        wait = min(self.wait_s, max(LOOK, self.door.until_look))
        have = urllib.parse.quote(self.version, safe="")
        orders = read_orders(
            self.context.client.get(f"orders/?wait={wait:g}&have={have}", timeout=wait + 15)
        )
        self._accept_orders(orders)
        if (load := self._due_load()) is not None:
            self.context.client.post("heartbeat/", {"load": load})

    def _listen(self, channel: Channel) -> None:
        """Until something comes, or it is to be looked elsewhere for a moment. What breaks here
        is asked by the next poll.
        """
        try:
            if channel.until_beat <= 0:
                channel.beat(self.version, self._due_load())
            said = channel.receive(max(0.05, min(LOOK, channel.until_beat)))
            orders = read_orders(said) if said is not None and "orders" in said else None
        except (ConnectionCut, ServerUnavailable) as error:
            self.channel = None
            if isinstance(error, ConnectionCut) and error.code in TOKEN_CODES:
                self.token_at = -TOKEN_EVERY  # its file is looked at before anything else is asked
            self.door.lose(
                channel, error if isinstance(error, ConnectionCut) else ConnectionCut(str(error))
            )
            return
        if orders is not None:
            self._accept_orders(orders)
        elif said is not None and self.orders is not None and said.get("version") == self.version:
            self._accept_orders(self.orders)  # said once more, as a poll would

    def _accept_orders(self, orders: Orders) -> None:
        self.orders, self.version = orders, orders.version
        self.tell(("orders", orders))

    def _due_load(self) -> dict[str, Any] | None:
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
                    told = list(self.stopped)
                try:
                    self.context.client.post(
                        "stopped/",
                        {
                            "slots": [
                                {"slot": stop.slot, "generation": stop.generation} for stop in told
                            ]
                        },
                    )
                    backoff.reset()
                except RequestRefused as error:
                    self.context.journal.note("stopped, refused", error=error)
                except Exception as error:
                    # Whatever it is: a slot that nobody calls clean is never used again.
                    if isinstance(error, (ServerUnavailable, TokenRejected)):
                        self.context.journal.note("stopped, not sent", error=error)
                    else:
                        self.context.journal.trace("stopped, not sent", error)
                    self.context.quit_now.wait(backoff.next())
                    continue
                with self.lock:
                    self.stopped = [stop for stop in self.stopped if stop not in told]
        self.context.client.close()
