"""Callers under load: they claim and release without pause, and remember every promise they were given."""

import http.client
import json
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Promise:
    """What the API has acknowledged about one claim."""

    claim: int
    generation: int = 0
    is_released: bool = False


@dataclass
class Ledger:
    """Shared by all callers. A slot has one holder at a time: from the moment its holder is told so until he asks for its release."""

    change: threading.Condition = field(default_factory=threading.Condition)
    promises: dict[str, Promise] = field(default_factory=dict)
    holders: dict[int, str] = field(default_factory=dict)
    served_from: float = 0.0  # the latest moment at which a request was made that has been served with a slot since
    broken: list[str] = field(default_factory=list)

    def promise(self, key: str, claim: dict[str, Any]) -> None:
        with self.change:
            made = self.promises.setdefault(key, Promise(claim["id"]))
            if made.claim != claim["id"]:
                self.broken.append(f"the key {key} stands for claim {made.claim} and for {claim['id']}")

    def hold(self, key: str, claim: dict[str, Any], asked_at: float) -> None:
        with self.change:
            self.promises[key].generation = claim["generation"]
            for slot in claim["slots"]:
                if (holder := self.holders.setdefault(slot["id"], key)) != key:
                    self.broken.append(f"slot {slot['id']} was given to {key} while {holder} holds it")
            self.served_from = max(self.served_from, asked_at)
            self.change.notify_all()

    def let_go(self, key: str, claim: dict[str, Any]) -> None:
        """Before the release is asked for: it may take effect while its answer is lost."""
        with self.change:
            for slot in claim["slots"]:
                if self.holders.get(slot["id"]) == key:
                    del self.holders[slot["id"]]

    def wait_served(self, since: float, timeout: float) -> bool:
        """Has anybody who asked after `since` got a slot?"""
        with self.change:
            return self.change.wait_for(lambda: self.served_from > since or bool(self.broken), timeout)


class Caller(threading.Thread):
    def __init__(self, name: str, port: int, token: str, pool: str, ledger: Ledger) -> None:
        super().__init__(name=name, daemon=True)
        self.port, self.token, self.pool, self.ledger = port, token, pool, ledger
        self.chance = random.Random(name)
        self.stopped = threading.Event()
        self.connection: http.client.HTTPConnection | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for n in range(1_000_000):
                if self.stopped.is_set():
                    return
                self.one(f"{self.name}-{n}")
        except BaseException as error:  # told by the test, which waits for us
            self.error = error
        finally:
            self.close()

    def one(self, key: str) -> None:
        asked_at = time.monotonic()
        body = {"pool": self.pool, "owner": key, "size": self.chance.choice((1, 1, 1, 2))}
        status, claim = self.call("POST", "claims/", body, key)
        assert status in (200, 201, 202), (status, claim)
        self.ledger.promise(key, claim)
        while claim["state"] != "bound":
            if self.stopped.is_set():
                return
            status, claim = self.call("GET", f"claims/{claim['id']}/?wait=2&until=bound")
            assert status == 200, (status, claim)
            if claim["state"] == "ended":
                self.ledger.broken.append(f"claim {claim['id']} ended by itself: {claim['outcome']}")
                return
        self.ledger.hold(key, claim, asked_at)
        self.stopped.wait(self.chance.uniform(0, 0.1))
        self.ledger.let_go(key, claim)
        status, answer = self.call("POST", f"claims/{claim['id']}/release/", {"generation": claim["generation"]})
        assert status == 200, (status, answer)
        self.ledger.promises[key].is_released = True

    def call(self, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        """Until there is an answer about the request itself: what is lost on the way is sent again."""
        end = time.monotonic() + 60
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
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        self.connection.request(method, f"/api/v1/{path}", None if body is None else json.dumps(body), headers)
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
