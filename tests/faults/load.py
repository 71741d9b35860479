"""Callers claim, acknowledge and release under load, and record every promise they get."""

import http.client
import json
import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 60.0  # seconds for which a call is repeated


@dataclass
class Promise:
    """What the API has acknowledged about one claim."""

    claim: int
    generation: int = 0
    is_acknowledged: bool = False
    is_kept: bool = False  # held to the end
    is_released: bool = False


@dataclass
class Ledger:
    """Shared by all callers. A slot has one holder at a time: from the moment its holder is told
    so until he asks for its release.
    """

    change: threading.Condition = field(default_factory=threading.Condition)
    promises: dict[str, Promise] = field(default_factory=dict)
    holders: dict[int, str] = field(default_factory=dict)
    # Pool -> creation time of the last claim that was served.
    served_from: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    broken: list[str] = field(default_factory=list)

    def promise(self, key: str, claim: dict[str, Any]) -> Promise:
        with self.change:
            made = self.promises.setdefault(key, Promise(claim["id"]))
            if made.claim != claim["id"]:
                self.broken.append(
                    f"the key {key} stands for claim {made.claim} and for {claim['id']}"
                )
            return made

    def hold(self, key: str, claim: dict[str, Any], asked_at: float) -> None:
        with self.change:
            self.promises[key].generation = claim["generation"]
            for slot in claim["slots"]:
                if (holder := self.holders.setdefault(slot["id"], key)) != key:
                    self.broken.append(
                        f"slot {slot['id']} was given to {key} while {holder} holds it"
                    )
            self.served_from[claim["pool"]] = max(self.served_from[claim["pool"]], asked_at)
            self.change.notify_all()

    def let_go(self, key: str, claim: dict[str, Any]) -> None:
        """Before the release is asked for: it may take effect while its answer is lost."""
        with self.change:
            for slot in claim["slots"]:
                if self.holders.get(slot["id"]) == key:
                    del self.holders[slot["id"]]

    def wait_served(self, pools: tuple[str, ...], since: float, timeout: float) -> bool:
        """Waits until each pool has served a claim created after `since`."""
        with self.change:
            return self.change.wait_for(
                lambda: all(self.served_from[p] > since for p in pools) or bool(self.broken),
                timeout,
            )

    def break_promise(self, words: str) -> None:
        with self.change:
            self.broken.append(words)
            self.change.notify_all()


class Caller(threading.Thread):
    def __init__(self, name: str, port: int, token: str, pool: str, ledger: Ledger) -> None:
        super().__init__(name=name, daemon=True)
        self.port, self.token, self.pool, self.ledger = port, token, pool, ledger
        self.chance = random.Random(name)
        self.stopped = threading.Event()
        self.connection: http.client.HTTPConnection | None = None
        self.error: BaseException | None = None
        self.headers: dict[str, str] = {}  # of each call, beside the usual ones

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # told by the test, which waits for us
            self.error = error
        finally:
            self.close()

    def work(self) -> None:
        n = 0
        while not self.stopped.is_set():
            self.one(f"{self.name}-{n}")
            n += 1

    def one(self, key: str) -> None:
        claim = self.claim(key, self.chance.choice((1, 1, 1, 2)))
        if claim is None:
            return
        self.stopped.wait(self.chance.uniform(0, 0.3))
        self.ledger.let_go(key, claim)
        self.act(claim, "release")
        self.ledger.promises[key].is_released = True

    def claim(self, key: str, size: int) -> dict[str, Any] | None:
        """Asks, waits until it is bound, and answers for it. None: the test is over."""
        asked_at = time.monotonic()
        status, claim = self.call(
            "POST", "claims/", {"pool": self.pool, "owner": key, "size": size}, key
        )
        assert status in (200, 201, 202), (status, claim)
        promise = self.ledger.promise(key, claim)
        while claim["state"] != "bound":
            if self.stopped.is_set():
                return None
            status, claim = self.call("GET", f"claims/{claim['id']}/?wait=2&until=bound")
            assert status == 200, (status, claim)
            if claim["state"] == "ended":
                self.ledger.break_promise(
                    f"claim {claim['id']} ended by itself: {claim['outcome']}"
                )
                return None
        self.ledger.hold(key, claim, asked_at)
        self.act(claim, "acknowledge")
        promise.is_acknowledged = True
        return claim

    def act(self, claim: dict[str, Any], verb: str) -> None:
        """A call of the holder, which must be accepted."""
        status, answer = self.call(
            "POST", f"claims/{claim['id']}/{verb}/", {"generation": claim["generation"]}
        )
        if status not in (200, 204):
            self.ledger.break_promise(
                f"{verb} of claim {claim['id']} by its holder: {status} {answer}"
            )

    def call(self, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        """Until there is an answer about the request itself: what is lost on the way is
        sent again.
        """
        end = time.monotonic() + PATIENCE
        while True:
            try:
                status, answer = self.once(method, path, body, key)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.close()
                status, answer = 503, str(error)
            if status < 500 and status != 429:
                return status, answer
            assert time.monotonic() < end, f"{method} {path}: {status} {answer}"
            self.stopped.wait(0.05)

    def once(self, method: str, path: str, body: Any, key: str) -> tuple[int, Any]:
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=15)
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            **({"Idempotency-Key": key} if key else {}),
            **self.headers,
        }
        self.connection.request(
            method, f"/api/v1/{path}", None if body is None else json.dumps(body), headers
        )
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Keeper(Caller):
    """Takes one slot at the beginning, says that it lives, and has it in the end."""

    def work(self) -> None:
        claim = self.claim(self.name, 1)
        if claim is None:
            return
        self.ledger.promises[self.name].is_kept = True
        while not self.stopped.wait(0.5):
            self.act(claim, "keep")
