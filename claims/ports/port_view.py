"""The ports of claims as the API and the pages show them."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from claims.allocation.requests.claim_request import PARTS
from claims.allocation.requests.pool_facts import PoolFacts, find_pools
from claims.kinds import ShownClaim, ShownCondition, ShownPort
from claims.ports import ports_sql
from claims.ports.conditions import (
    Condition,
    PortConditions,
    PortFacts,
    join_conditions,
    judge_port,
)
from claims.ports.targets import protocol_of, write_target
from claims.ports.use_reader import explain_withheld
from pools.config.layout import ANY_PROTOCOL, SHARED
from project.kernel.ui.formatting import rfc3339

LANES = frozenset({SHARED, "tcp", "udp"})
KINDS = frozenset({PARTS, *ANY_PROTOCOL})


def show_ports(claims: Sequence[ShownClaim]) -> None:
    """Completes the claims of ports. Other claims cost no statement."""
    shown = [claim for claim in claims if is_of_ports(claim)]
    if not shown:
        return
    ids = [claim.id for claim in shown]
    parts: dict[int, list[ports_sql.ShownPartsRow]] = defaultdict(list)
    for part in ports_sql.shown_parts(claims=ids):
        parts[part.claim_id].append(part)
    slots: dict[int, list[ports_sql.ShownPortsRow]] = defaultdict(list)
    if any(claim.slots for claim in shown):
        for row in ports_sql.shown_ports(claims=ids):
            slots[row.claim_id].append(row)
    pools = find_pools({row.pool for rows in slots.values() for row in rows}) if slots else {}
    for claim in shown:
        mine = parts[claim.id]
        if mine and mine[0].backend is not None:
            stored = json.loads(mine[0].backend)
            claim.backend = {"ip": stored["ip"], "ports": stored["asked"]}
        rows = slots[claim.id]
        if rows:
            _show_held(claim, rows, pools)
        elif claim.state != "ended" and mine and mine[0].part is not None:
            _show_waiting(claim, mine)


def is_of_ports(claim: ShownClaim) -> bool:
    return claim.kind in KINDS or any(slot.lane in LANES for slot in claim.slots)


def _show_held(
    claim: ShownClaim, rows: Sequence[ports_sql.ShownPortsRow], pools: Mapping[str, PoolFacts]
) -> None:
    judged = [judge_port(_facts_of(claim, row, pools.get(row.pool))) for row in rows]
    claim.ports = [
        _port_of(row, pools.get(row.pool), each) for row, each in zip(rows, judged, strict=True)
    ]
    programmed, ready = join_conditions(
        [(_name(port), each) for port, each in zip(claim.ports, judged, strict=True)]
    )
    claim.conditions = [
        _condition("allocated", Condition(True, claim.bound_at)),
        _condition("programmed", programmed),
        _condition("ready", ready),
    ]


def _show_waiting(claim: ShownClaim, parts: Sequence[ports_sql.ShownPartsRow]) -> None:
    unmet = Condition(False, claim.created_at, "The claim holds no ports yet")
    none = [_condition(name, unmet) for name in ("programmed", "ready")]
    claim.ports = [
        _waiting_port(json.loads(part.options or "{}"), pool, none)
        for part in parts
        for pool in part.pools or ()
    ]
    claim.conditions = [_condition("allocated", unmet), *none]


def _waiting_port(
    options: Mapping[str, object], pool: str, conditions: list[ShownCondition]
) -> ShownPort:
    port = options.get("port")
    return {
        "port": port if isinstance(port, int) else None,
        "protocol": str(options.get("protocol", "")),
        "pool": pool,
        "member": None,
        "number": None,
        "end": None,
        "address": None,
        "addresses": [],
        "listener": None,
        "target": None,
        "health": None,
        "ready": False,
        "conditions": conditions,
    }


def _facts_of(claim: ShownClaim, row: ports_sql.ShownPortsRow, pool: PoolFacts | None) -> PortFacts:
    target = withheld = ""
    if row.ip is not None and row.port is not None:
        target = write_target(row.ip, row.port)
        if row.other is not None:
            withheld = f"{target} is also the backend of claim {row.other}"
        elif pool is not None:
            withheld = explain_withheld(row.ip, row.port, pool)
    observed = json.loads(row.observed)
    if observed.get("claim") != row.claim_id:
        return PortFacts(claim.bound_at, target, withheld)
    since = {name: datetime.fromisoformat(at) for name, at in observed.get("since", {}).items()}
    return PortFacts(claim.bound_at, target, withheld, observed, since)


def _port_of(
    row: ports_sql.ShownPortsRow, pool: PoolFacts | None, judged: PortConditions
) -> ShownPort:
    options = json.loads(row.options or "{}")
    observed = json.loads(row.observed)
    seen = observed if observed.get("claim") == row.claim_id else {}
    hosts = json.loads(row.addresses)
    addresses = [write_target(host, row.number) for host in hosts]
    step = 1 if pool is None else pool.step
    return {
        "port": options.get("port"),
        "protocol": protocol_of(row.kind, row.lane).upper(),
        "pool": row.pool,
        "member": row.member,
        "number": row.number,
        "end": row.number + step - 1 if step > 1 else None,
        "address": addresses[0] if addresses else None,
        "addresses": addresses,
        "listener": None if seen.get("id") is None else str(seen["id"]),
        "target": None if seen.get("target") is None else str(seen["target"]),
        "health": None if seen.get("health") is None else str(seen["health"]),
        "ready": judged.ready.is_met,
        "conditions": [
            _condition("programmed", judged.programmed),
            _condition("ready", judged.ready),
        ],
    }


def _name(port: ShownPort) -> str:
    own = "" if port["port"] is None else f"{port['port']}/{port['protocol']} on "
    return f"{own}{port['member']} {port['number']}"


def _condition(name: str, condition: Condition) -> ShownCondition:
    return {
        "type": name,
        "is_met": condition.is_met,
        "is_failed": condition.is_failed,
        "since": None if condition.since is None else rfc3339(condition.since),
        "reason": condition.reason,
    }
