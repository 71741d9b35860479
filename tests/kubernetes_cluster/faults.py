"""Faults on the way to an API server, as a test orders them."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.kubernetes_cluster.fake_objects import Refused, Thing
from tests.kubernetes_cluster.http_front import Answer, Front, Request

LONGEST_HANG = 120.0
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


def verb_of(method: str, name: str, query: dict[str, str]) -> str:
    """As rights call it."""
    if method == "GET":
        return "get" if name else "watch" if query.get("watch") in ("1", "true") else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    return VERBS.get(method, method.lower())


def split(path: str) -> tuple[str, str, str, str, str]:
    """Group, namespace, plural, name, part. Empty: there is none."""
    parts = [part for part in path.split("/") if part]
    group = parts[1] if parts[:1] == ["apis"] and len(parts) > 2 else ""
    parts = parts[3:] if parts[:1] == ["apis"] else parts[2:]
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2 and parts[2] not in ("finalize", "status"):
        namespace, parts = parts[1], parts[2:]
    plural, name, part = [*parts, "", "", ""][:3]
    return group, namespace, plural, name, part


@dataclass
class Fault:
    verb: str  # "*": any
    status: int  # 0: the connection ends without an answer
    times: int
    plural: str = ""
    namespace: str = ""
    retry_after: int | None = None
    is_after: bool = False  # once the request has had its effect
    is_hanging: bool = False  # no answer at all, and the connection stays
    message: str = ""


@dataclass
class Faults:
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[Fault] = field(default_factory=list)
    met: int = 0

    def order(self, fault: Fault) -> None:
        with self.lock:
            self.waiting.append(fault)

    def clear(self) -> None:
        with self.lock:
            self.waiting.clear()

    def take(self, request: Request) -> Fault | None:
        _, namespace, plural, name, part = split(request.path)
        verb = verb_of(request.method, name, request.query)
        with self.lock:
            for fault in self.waiting:
                is_meant = (
                    fault.verb in ("*", verb)
                    and fault.plural in ("", plural)
                    and fault.namespace in ("", namespace)
                )
                if is_meant and plural and not (part and fault.verb != "*"):
                    fault.times -= 1
                    if fault.times <= 0:
                        self.waiting.remove(fault)
                    self.met += 1
                    return fault
        return None


def met(
    faults: Faults, request: Request, answer: Callable[[Request], Answer], front: Front
) -> Answer:
    """The answer, or what comes instead of it."""
    fault = faults.take(request)
    if fault is None:
        return answer(request)
    if fault.is_hanging:
        front.down.wait(LONGEST_HANG)
        return Answer(0, is_cut=True)
    if fault.is_after:
        answer(request).end()
    return refusal(fault) if fault.status else Answer(0, is_cut=True)


def refusal(fault: Fault) -> Answer:
    details: Thing = {} if fault.retry_after is None else {"retryAfterSeconds": fault.retry_after}
    messages = {
        429: "the server has received too many requests and has asked us to try again later"
    }
    refused = Refused(
        fault.status,
        fault.message or messages.get(fault.status, "said by the test"),
        details=details,
    )
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    return Answer(fault.status, json.dumps(refused.status()).encode(), headers)
