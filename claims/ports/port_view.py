"""The ports of claims as the API and the pages show them."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from claims.allocation.requests.claim_request import PARTS
from claims.allocation.requests.pool_facts import find_pools
from claims.kinds import ClaimPool, ShownClaim, ShownCondition, ShownPort, StoredPart
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
from pools.config.layout import ANY_PROTOCOL, SHARED, step_of
from project.kernel.ui.formatting import rfc3339

LANES = frozenset({SHARED, "tcp", "udp"})
KINDS = frozenset({PARTS, *ANY_PROTOCOL})
UNOBSERVED = "{}"


def show_ports(claims: Sequence[ShownClaim]) -> None:
    """Completes the claims of ports. Other claims cost no statement."""
    shown = [claim for claim in claims if is_of_ports(claim)]
    if not shown:
        return
    parts: dict[int, list[StoredPart]] = defaultdict(list)
    backends: dict[int, Backend] = {}
    for row in ports_sql.shown_parts(claims=[claim.id for claim in shown]):
        if row.backend is not None:
            backends[row.claim_id] = json.loads(row.backend)
        if row.part is not None:
            parts[row.claim_id].append(_part_of_row(row))
    holding = [claim.id for claim in shown if claim.slots]
    slots: dict[int, list[ports_sql.ShownPortsRow]] = defaultdict(list)
    for slot in ports_sql.shown_ports(claims=holding) if holding else ():
        slots[slot.claim_id].append(slot)
    served = [claim for claim in holding if claim in backends]
    others: dict[int, dict[int, int]] = defaultdict(dict)
    for other in ports_sql.other_owners(claims=served) if served else ():
        others[other.claim_id][other.ordinal] = other.other
    pools = find_pools({row.pool for rows in slots.values() for row in rows}) if slots else {}
    for claim in shown:
        backend = backends.get(claim.id)
        if backend is not None:
            claim.backend = {"ip": backend["ip"], "ports": backend["asked"]}
        if slots[claim.id]:
            part_of = _parts_by_ordinal(parts[claim.id])
            _show_held(
                claim,
                [
                    _held_port(
                        claim, row, part_of.get(row.ordinal), pools.get(row.pool), backend,
                        others[claim.id].get(row.ordinal),
                    )
                    for row in slots[claim.id]
                ],
            )  # fmt: skip
        elif claim.state != "ended" and parts[claim.id]:
            _show_waiting(claim, parts[claim.id])


def show_new_ports(
    claim: ShownClaim, parts: Sequence[StoredPart], pools: Sequence[ClaimPool | None]
) -> None:
    """Completes a claim that was just created: it has no backend, and no listener of it was
    observed yet.
    """
    if not claim.slots:
        _show_waiting(claim, parts)
        return
    addresses = {slot.member_id: slot.addresses for slot in claim.slots}
    if unread := [member for member, found in addresses.items() if not found]:
        addresses |= {row.id: row.addresses for row in ports_sql.member_addresses(members=unread)}
    known = {pool.name: pool for pool in pools if pool is not None}
    part_of = _parts_by_ordinal(parts)
    rows = [
        ports_sql.ShownPortsRow(
            claim.id, ordinal, slot.id, slot.pool, slot.member, addresses[slot.member_id],
            slot.lane, slot.number, UNOBSERVED,
        )
        for ordinal, slot in enumerate(claim.slots)
    ]  # fmt: skip
    _show_held(
        claim,
        [_held_port(claim, row, part_of.get(row.ordinal), known.get(row.pool)) for row in rows],
    )


class Backend(TypedDict):
    """The stored backend of a claim; `ports` by ordinal."""

    ip: str
    ports: Sequence[int | None]
    asked: list[int]


@dataclass(frozen=True, slots=True)
class HeldPort:
    row: ports_sql.ShownPortsRow
    kind: str
    own: int | None  # port of the program; None: the claim named none
    step: int  # numbers of the slot
    facts: PortFacts


def _part_of_row(row: ports_sql.ShownPartsRow) -> StoredPart:
    return StoredPart(
        index=row.part or 0,
        kind=row.kind or "",
        pools=tuple(row.pools or ()),
        count=row.count or 0,
        first=row.first or 0,
        options=json.loads(row.options or "{}"),
    )


def _parts_by_ordinal(parts: Iterable[StoredPart]) -> dict[int, StoredPart]:
    return {part["first"] + i: part for part in parts for i in range(part["count"])}


def _held_port(
    claim: ShownClaim,
    row: ports_sql.ShownPortsRow,
    part: StoredPart | None,
    pool: ClaimPool | None,
    backend: Backend | None = None,
    other: int | None = None,
) -> HeldPort:
    """`other`: another live claim to which the target of the port belongs."""
    target = withheld = ""
    port = None if backend is None else backend["ports"][row.ordinal]
    if backend is not None and port is not None:
        target = write_target(backend["ip"], port)
        if other is not None:
            withheld = f"{target} is also the backend of claim {other}"
        elif pool is not None:
            certificate = "" if part is None else str(part["options"].get("certificate", ""))
            withheld = explain_withheld(backend["ip"], port, pool, certificate)
    facts = PortFacts(claim.bound_at, target, withheld)
    observed = {} if row.observed == UNOBSERVED else json.loads(row.observed)
    if observed.get("claim") == claim.id:
        since = {name: datetime.fromisoformat(at) for name, at in observed.get("since", {}).items()}
        facts = PortFacts(claim.bound_at, target, withheld, observed, since)
    return HeldPort(
        row,
        kind=claim.kind if part is None else part["kind"],
        own=None if part is None else _number_of(part),
        step=1 if pool is None else step_of(pool.spec.layout),
        facts=facts,
    )


def _number_of(part: StoredPart) -> int | None:
    """The port of the program, if the claim names it."""
    port = part["options"].get("port")
    return port if isinstance(port, int) else None


def is_of_ports(claim: ShownClaim) -> bool:
    return claim.kind in KINDS or any(slot.lane in LANES for slot in claim.slots)


def _show_held(claim: ShownClaim, held: Sequence[HeldPort]) -> None:
    judged = [judge_port(each.facts) for each in held]
    hosts = {each.row.addresses: json.loads(each.row.addresses) for each in held}
    claim.ports = [
        _port_of(each, hosts[each.row.addresses], met)
        for each, met in zip(held, judged, strict=True)
    ]
    programmed, ready = join_conditions(
        [(_name(port), each) for port, each in zip(claim.ports, judged, strict=True)]
    )
    claim.conditions = [
        _condition("allocated", Condition(True, claim.bound_at)),
        _condition("programmed", programmed),
        _condition("ready", ready),
    ]


def _show_waiting(claim: ShownClaim, parts: Sequence[StoredPart]) -> None:
    unmet = Condition(False, claim.created_at, "The claim holds no ports yet")
    none = [_condition(name, unmet) for name in ("programmed", "ready")]
    claim.ports = [_waiting_port(part, pool, none) for part in parts for pool in part["pools"]]
    claim.conditions = [_condition("allocated", unmet), *none]


def _waiting_port(part: StoredPart, pool: str, conditions: list[ShownCondition]) -> ShownPort:
    return {
        "port": _number_of(part),
        "protocol": str(part["options"].get("protocol", "")),
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


def _port_of(held: HeldPort, hosts: Sequence[str], judged: PortConditions) -> ShownPort:
    row, seen = held.row, held.facts.observed or {}
    addresses = [write_target(host, row.number) for host in hosts]
    return {
        "port": held.own,
        "protocol": protocol_of(held.kind, row.lane).upper(),
        "pool": row.pool,
        "member": row.member,
        "number": row.number,
        "end": row.number + held.step - 1 if held.step > 1 else None,
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
