"""A small server that speaks the agent's protocol over real sockets, records all calls, and can
be broken on purpose.
"""

import hashlib
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.waiting import PATIENCE, load

Handler = Callable[["Exchange"], None]
TOKEN = "berthm_7_secretsecretsecret"


class Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"  # type: ignore[assignment]

    def log_message(self, *args: Any) -> None:
        pass

    def answer(
        self,
        status: int,
        body: Any = None,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        data = json.dumps(body if body is not None else {}).encode() if raw is None else raw
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status: int, code: str, **more: Any) -> None:
        self.answer(status, {"code": code, "detail": code, **more})

    def handle_any(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(size) if size else b""
        path, _, self.query = self.path.removeprefix("/api/v1/agent/").partition("?")
        world = self.server
        with world.changed:
            world.calls.append((self.command, path))
            world.changed.notify_all()
            hook = next(
                (hook for prefix, hook in world.hooks.items() if path.startswith(prefix)), None
            )
        if hook is not None:
            hook(self)
            return
        if self.headers.get("Authorization") != f"Bearer {world.token}":
            self.refuse(401, "bad_token")
            return
        world.serve(self, path)

    do_GET = do_POST = do_PUT = handle_any  # noqa: N815  (http.server's names)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Exchange)
        self.token = TOKEN
        self.hooks: dict[str, Handler] = {}
        self.changed = threading.Condition()
        self.calls: list[tuple[str, str]] = []
        self.hellos: list[dict[str, Any]] = []
        self.works: dict[tuple[int, int], dict[str, Any]] = {}
        self.orders: list[dict[str, Any]] = []
        self.stops: list[dict[str, int]] = []
        self.started: list[tuple[int, int]] = []
        self.boots: dict[tuple[int, int], str] = {}
        self.logs: dict[tuple[int, int], list[str]] = {}
        self.left_out: dict[tuple[int, int], int] = {}
        self.sent_at: dict[tuple[int, int], list[float]] = {}
        self.plans: dict[tuple[int, int], bytes] = {}
        self.jsons: dict[tuple[int, int], Any] = {}
        self.results: dict[tuple[int, int], dict[str, Any]] = {}
        self.interrupts: dict[tuple[int, int], list[dict[str, Any]]] = {}
        self.stopped: list[tuple[int, int]] = []
        self.goodbyes = 0
        self.states: dict[tuple[int, int], bytes] = {}
        self.sources: dict[str, bytes] = {}
        self.limits = {
            "chunk_bytes": 64000,
            "log_head_bytes": 1_000_000,
            "log_tail_bytes": 100_000,
            "plan_bytes": 1_000_000,
            "json_bytes": 4_000_000,
        }
        self.grace_s = 1.0
        self.keep = True
        self.keep_list: list[int] | None = None
        self.wait_s = 2.0
        self.thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self.thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An agent that was killed leaves sockets behind."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    # What a test does

    def order(
        self, claim: int, generation: int, step: str = "plan", *, slot: int = 1, **work: Any
    ) -> None:
        base = {
            "executor": "command",
            "commands": {"plan": "true"},
            "source": {"kind": "none"},
            "timeout_s": 60,
            "workspace": "w",
            "limits": {},
        }
        body = {
            **base,
            "claim": claim,
            "generation": generation,
            "step": step,
            "task": "plan_and_apply",
            "requested_by": "ada",
            "plan": None,
            **work,
        }
        with self.changed:
            self.works[claim, generation] = body
            entry = {
                "claim": claim,
                "generation": generation,
                "step": step,
                "slot": slot,
                "place": "any-0",
                "task": body["task"],
            }
            self.orders.append(entry)
            self.changed.notify_all()

    def cancel(self, claim: int, generation: int) -> None:
        with self.changed:
            entry = next(one for one in self.orders if one["generation"] == generation)
            self.orders.remove(entry)
            self.stops.append({"slot": entry["slot"], "generation": generation})
            self.changed.notify_all()

    def archive(self, data: bytes) -> dict[str, str]:
        digest = hashlib.sha256(data).hexdigest()
        self.sources[digest] = data
        return {"kind": "archive", "digest": digest}

    def wait(self, condition: Callable[[], Any]) -> Any:
        with self.changed:
            if not self.changed.wait_for(condition, PATIENCE * load()):
                raise AssertionError(
                    f"it did not come to it; calls: {self.calls[-10:]}, results: {self.results}"
                )
            return condition()

    def result(self, claim: int, generation: int) -> dict[str, Any]:
        return self.wait(lambda: self.results.get((claim, generation)))

    def log(self, claim: int, generation: int) -> str:
        return "".join(self.logs.get((claim, generation), []))

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    # What the server does

    @property
    def version(self) -> str:
        return hashlib.sha256(
            json.dumps([self.orders, self.stops, self.keep_list]).encode()
        ).hexdigest()[:8]

    def lists(self) -> dict[str, Any]:
        keep = {} if self.keep_list is None else {"keep": self.keep_list}
        return {"version": self.version, "orders": self.orders, "stop": self.stops, **keep}

    def serve(self, exchange: Exchange, path: str) -> None:
        parts = path.strip("/").split("/")
        if parts[0] == "orders":
            self.serve_orders(exchange)
            return
        with self.changed:
            if parts[0] == "tasks":
                self.serve_task(
                    exchange, (int(parts[1]), int(parts[2])), parts[3] if len(parts) > 3 else ""
                )
            elif parts[0] == "hello":
                self.hellos.append(exchange.json)
                extra = {
                    "member": "m-0",
                    "pool": "p",
                    "wait_s": self.wait_s,
                    "grace_s": self.grace_s,
                    "limits": self.limits,
                }
                exchange.answer(200, {**extra, **self.lists()})
            elif parts[0] == "stopped":
                for slot in exchange.json["slots"]:
                    self.stopped.append((slot["slot"], slot["generation"]))
                    self.stops = [stop for stop in self.stops if stop != slot]
                exchange.answer(200)
            elif parts[0] == "goodbye":
                self.goodbyes += 1
                exchange.answer(200)
            else:
                exchange.answer(200)
            self.changed.notify_all()

    def serve_orders(self, exchange: Exchange) -> None:
        have = exchange.query.rpartition("have=")[2]
        until = time.monotonic() + self.wait_s
        with self.changed:
            while self.version == have and time.monotonic() < until:
                self.changed.wait(max(0, until - time.monotonic()))
            answer = self.lists()
        exchange.answer(200, answer)

    def serve_task(self, exchange: Exchange, run: tuple[int, int], what: str) -> None:
        if what == "":
            exchange.answer(200, self.works[run]) if run in self.works else exchange.refuse(
                409, "stale_generation"
            )
        elif what == "started":
            boot = exchange.json["boot"]
            if self.boots.setdefault(run, boot) != boot:
                exchange.refuse(409, "already_started")
                return
            self.started.append(run)
            exchange.answer(200)
        elif what == "interrupted":
            self.interrupts.setdefault(run, []).append(exchange.json)
            exchange.answer(200)
        elif what == "log":
            self.serve_log(exchange, run)
        elif what == "source":
            exchange.answer(200, raw=self.sources[self.works[run]["source"]["digest"]])
        elif what == "plan" and exchange.command == "GET":
            plan = next(plan for (claim, _), plan in self.plans.items() if claim == run[0])
            exchange.answer(200, raw=plan)
        elif what == "plan":
            assert exchange.headers["Berth-Digest"] == hashlib.sha256(exchange.body).hexdigest()
            self.plans[run] = exchange.body
            exchange.answer(200, {"size": len(exchange.body)})
        elif what == "plan-json":
            self.jsons[run] = exchange.json
            exchange.answer(200, {"resources": 1})
        elif what == "state":
            digest = hashlib.sha256(exchange.body).hexdigest()
            assert exchange.headers["Berth-Digest"] == digest
            assert run not in self.results, "the state comes before the result"
            self.states[run] = exchange.body
            exchange.answer(200, {"is_kept": True, "digest": digest})
        elif what == "result":
            self.results[run] = exchange.json
            self.orders = [
                order for order in self.orders if (order["claim"], order["generation"]) != run
            ]
            is_planned = exchange.json["outcome"] == "planned"
            exchange.answer(
                200,
                {"state": "reserved" if is_planned else "ended", "keep": is_planned and self.keep},
            )

    def serve_log(self, exchange: Exchange, run: tuple[int, int]) -> None:
        body, known = exchange.json, self.logs.setdefault(run, [])
        assert len(body["text"].encode()) <= 64_000
        assert body["lines"] == body["text"].count("\n")
        if body["seq"] > len(known):
            exchange.refuse(409, "gap", next=len(known))
            return
        if body["seq"] == len(known):
            known.append(body["text"])
            self.sent_at.setdefault(run, []).append(time.monotonic())
            if body.get("left_out"):
                self.left_out[run] = body["left_out"]
        exchange.answer(200, {"next": len(known)})
