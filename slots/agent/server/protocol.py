"""Parses the answers of the server. Malformed fields raise ServerUnavailable, unknown fields are
ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Callable

from ..common.errors import ServerUnavailable
from ..common.json_types import Json, as_count, as_dict, as_list

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}\Z")
PLACE = re.compile(r"[A-Za-z0-9_.:-]{0,80}\Z")
DIGEST = re.compile(r"[0-9a-f]{64}\Z")
STEPS = ("plan", "apply")
EXECUTORS = ("command", "terraform")


@dataclass(frozen=True)
class Order:
    claim: int
    generation: int
    step: str
    slot: int
    place: str = ""
    task: str = "plan_and_apply"


@dataclass(frozen=True)
class StopOrder:
    slot: int
    generation: int


@dataclass(frozen=True)
class Orders:
    version: str
    orders: tuple[Order, ...]
    stop: tuple[StopOrder, ...]
    is_leaving: bool = False
    keep: frozenset[int] | None = None  # claims that need their plan here; None: not sent


@dataclass(frozen=True)
class UploadLimits:
    chunk_bytes: int = 64_000
    log_head_bytes: int = 6_000_000
    log_tail_bytes: int = 2_000_000
    plan_bytes: int = 32_000_000
    json_bytes: int = 64_000_000
    source_bytes: int = 64_000_000


@dataclass(frozen=True)
class Hello:
    member: str
    pool: str
    wait_s: float
    grace_s: float
    limits: UploadLimits
    orders: Orders
    beat_s: float = 15.0


@dataclass(frozen=True)
class SourceOrder:
    kind: str = "none"
    digest: str = ""
    url: str = ""
    ref: str = ""
    path: str = ""


@dataclass(frozen=True)
class SavedPlan:
    digest: str
    size: int
    facts: Json
    has_file: bool
    summary: Json = field(default_factory=dict)  # number of changes by kind


@dataclass(frozen=True)
class WorkOrder:
    claim: int
    generation: int
    step: str
    task: str
    executor: str
    workspace: str
    requested_by: str
    source: SourceOrder
    commands: dict[str, str]
    binary: str
    variables: Json
    env: dict[str, str]
    secrets: dict[str, str]
    timeout_s: float
    cpu_s: int
    memory_bytes: int
    limits: UploadLimits
    git_hosts: tuple[str, ...]
    missing: tuple[str, ...] = ()  # requested secrets that the pool does not have
    plan: SavedPlan | None = field(default=None)
    stop_timeout_s: float = 600.0  # from SIGINT to TERM, for an apply
    state: str = ""  # discard: the run needs no backend


def read_orders(body: Json) -> Orders:
    """Read the list of orders. Unknown steps are left out, because the server may be newer."""
    orders = []
    given = body.get("orders")
    if not isinstance(given, list):
        raise ServerUnavailable("the server's answer lacks orders")
    for entry in given:
        if not isinstance(entry, dict) or entry.get("step") not in STEPS:
            continue
        place = str(entry.get("place") or "")
        order = Order(
            count(entry, "claim"),
            count(entry, "generation"),
            entry["step"],
            count(entry, "slot"),
            place if PLACE.match(place) else "",
            str(entry.get("task") or ""),
        )
        orders.append(order)
    stop = tuple(
        StopOrder(count(entry, "slot"), count(entry, "generation"))
        for entry in as_list(body.get("stop"))
        if isinstance(entry, dict)
    )
    version = body.get("version")
    if not isinstance(version, (str, int)):
        raise ServerUnavailable("the server's answer lacks version")
    keep = body.get("keep")
    kept = (
        frozenset(claim for claim in keep if isinstance(claim, int))
        if isinstance(keep, list)
        else None
    )
    return Orders(
        str(version)[:200],
        tuple(orders),
        stop,
        bool(body.get("is_leaving") or body.get("draining")),
        kept,
    )


def read_hello(body: Json) -> Hello:
    return Hello(
        str(body.get("member") or ""),
        str(body.get("pool") or ""),
        number(body, "wait_s", 15, 0.1, 60),
        number(body, "grace_s", 20, 0.1, 600),
        read_limits(body.get("limits")),
        read_orders(body),
        number(body, "beat_s", 15, 0.1, 60),
    )


def read_limits(given: object, base: UploadLimits | None = None) -> UploadLimits:
    base = base or UploadLimits()
    limits = as_dict(given)

    def within(name: str, low: int, high: int) -> int:
        return int(number(limits, name, getattr(base, name), low, high))

    return UploadLimits(
        within("chunk_bytes", 1000, 64_000),
        within("log_head_bytes", 0, 1_000_000_000),
        within("log_tail_bytes", 1, 100_000_000),
        within("plan_bytes", 0, 1_000_000_000),
        within("json_bytes", 0, 1_000_000_000),
        within("source_bytes", 0, 1_000_000_000),
    )


def read_work(body: Json, order: Order, base: UploadLimits) -> WorkOrder:
    if (count(body, "claim"), count(body, "generation")) != (
        order.claim,
        order.generation,
    ) or body.get("step") != order.step:
        raise ServerUnavailable("the server sends the work of another order")
    executor = str(body.get("executor"))
    if executor not in EXECUTORS:
        raise ServerUnavailable(f"this agent has no executor {executor[:40]!r}")
    limits = as_dict(body.get("limits"))
    return WorkOrder(
        claim=order.claim,
        generation=order.generation,
        step=order.step,
        task=str(body.get("task") or order.task),
        executor=executor,
        workspace=str(body.get("workspace") or ""),
        requested_by=str(body.get("requested_by") or ""),
        source=read_source(body.get("source")),
        commands=texts(body, "commands", lambda name: name in STEPS),
        binary=str(body.get("binary") or ""),
        variables=mapping(body, "variables"),
        env=texts(body, "env", is_name),
        secrets=texts(body, "secrets", is_name),
        timeout_s=number(body, "timeout_s", 3600, 1, 30 * 86400),
        cpu_s=int(number(limits, "cpu_s", 0, 0, 30 * 86400)),
        memory_bytes=int(number(limits, "memory_bytes", 0, 0, 1 << 50)),
        limits=read_limits(limits, base),
        git_hosts=tuple(host for host in as_list(body.get("git_hosts")) if isinstance(host, str)),
        missing=tuple(name for name, value in mapping(body, "secrets").items() if value is None),
        plan=read_saved_plan(body.get("plan")),
        stop_timeout_s=number(body, "stop_timeout_s", 600, 0, 86400),
        state=str(body.get("state") or ""),
    )


def read_source(given: object) -> SourceOrder:
    source = as_dict(given)
    kind = str(source.get("kind") or "none")
    if kind not in ("none", "archive", "git"):
        raise ServerUnavailable(f"this agent does not know the kind of source {kind[:40]!r}")
    return SourceOrder(
        kind, *(str(source.get(name) or "") for name in ("digest", "url", "ref", "path"))
    )


def read_saved_plan(given: object) -> SavedPlan | None:
    if not isinstance(given, dict):
        return None
    digest = str(given.get("digest") or "")
    if not DIGEST.match(digest):
        raise ServerUnavailable("the server sends a plan without a digest")
    return SavedPlan(
        digest,
        int(number(given, "size", 0, 0, 1 << 50)),
        mapping(given, "facts"),
        bool(given.get("has_file")),
        mapping(given, "summary"),
    )


def is_name(name: str) -> bool:
    return NAME.match(name) is not None


def texts(body: Json, name: str, is_wanted: Callable[[str], bool]) -> dict[str, str]:
    found = {}
    for key, value in mapping(body, name).items():
        if value is None:
            continue
        if not is_wanted(key) or not isinstance(value, (str, int, float)) or "\0" in str(value):
            raise ServerUnavailable(f"the server sends an invalid entry of {name}: {key[:40]!r}")
        found[key] = str(value)
    return found


def mapping(body: Json, name: str) -> Json:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ServerUnavailable(f"the server sends {name}, which is not an object")
    return value


def count(body: Json, name: str) -> int:
    value = as_count(body.get(name))
    if value is None or value >= 1 << 63:
        raise ServerUnavailable(f"the server's answer has no number {name}")
    return value


def number(body: Json, name: str, default: float, low: float, high: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ServerUnavailable(f"the server's answer has {name} out of range: {str(value)[:40]}")
    return value
