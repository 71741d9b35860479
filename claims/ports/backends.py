"""The backend of a claim: the address behind its ports.

One transaction stores the backend, takes its targets in each pool, and writes the operations that
register it. A target of another live claim of the pool is not taken: the listener then has no
target, and a chore registers the backend once the other claim has ended or has another backend.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction

from claims.allocation.claim_view import ClaimView
from claims.allocation.requests.pool_facts import PoolFacts, find_pools_by_id
from claims.allocation.selectors import view_claim
from claims.lifecycle.release import act_for_hold, answer_late, lock_claim
from claims.ports import ports_sql
from claims.ports.own_addresses import own_addresses
from claims.ports.targets import Backend, make_backend, write_target
from claims.states import HOLDING
from pools.config.backend_spec import read_address, refuse_address, refuse_port
from pools.providers.base import kinds_with
from project.kernel.controllers.periodic import chore, run_each
from project.kernel.errors import Conflict, FieldError, Invalid, Refused
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.outbox.operations import add_operation
from slots.members.store import lane_of

BATCH = 100  # claims in one step of the chore
MOST_TARGETS = 10_000  # ports of the backend of one claim, each with a row and a key


@dataclass(frozen=True, slots=True)
class BackendRequest:
    """A backend as requested: one port for all numbers, a port for each, or the ports of the
    claim's parts.
    """

    ip: str
    port: int | None = None
    ports: tuple[int, ...] | None = None


def set_backend(
    *, claim_id: int, generation: int, backend: BackendRequest | None, reason: str = ""
) -> ClaimView:
    """Route the ports of a bound claim to a backend; None: to no backend, and the ports stay. A
    repeated call changes nothing.
    """
    if backend is not None:
        own_addresses.get()  # before the transaction
    if not act_for_hold(
        claim_id, generation, lambda named: _set(claim_id, named, backend, reason.strip())
    ):
        return answer_late(claim_id, generation, "set_backend")
    return view_claim(claim_id)


def _set(claim_id: int, generation: int, request: BackendRequest | None, reason: str) -> bool:
    with transaction.atomic():
        claim = lock_claim(claim_id)
        if claim.generation != generation or claim.state not in HOLDING:
            return False
        slots = ports_sql.held_ports(claim=claim_id)
        pools = find_pools_by_id({slot.pool_id for slot in slots})
        if any(pool.spec.layout.ports is None for pool in pools.values()):
            raise Conflict(
                f"Claim {claim_id} holds slots that are not ports.",
                code="no_ports",
                way_out="Set backends only of claims in pools of ports.",
            )
        backend = None if request is None else _resolve(request, slots, pools)
        text = None if backend is None else backend.as_json()
        before = ports_sql.read_backend(claim=claim_id)
        if (None if before is None else json.loads(before)) == (
            None if text is None else json.loads(text)
        ):
            return True
        ports_sql.set_backend(claim=claim_id, backend=text)
        ports_sql.drop_targets(claim=claim_id)
        if backend is not None:
            _take(claim_id, backend, slots)
        data = None if backend is None else {"ip": backend.ip, "ports": list(backend.asked)}
        record(
            "drop_backend" if backend is None else "set_backend",
            pool_id=claim.pool_id,
            claim_id=claim_id,
            generation=generation,
            reason=reason,
            data=data,
        )
        _sync_members(claim_id, generation, slots)
    return True


def _resolve(
    request: BackendRequest,
    slots: Sequence[ports_sql.HeldPortsRow],
    pools: Mapping[int, PoolFacts],
) -> Backend:
    """The backend with a port for each slot. Raises for a backend that a pool does not allow."""
    address = read_address(request.ip)
    if address is None:
        text = f"{request.ip!r} is not an IP address."
        raise Invalid(fields=[FieldError("ip", text, "Write it like 10.0.0.7 or 2001:db8::7.")])
    indexes, own = _number(slots)
    asked = _choose_ports(request, own)
    faults = []
    for pool in pools.values():
        rules = pool.spec.backends
        if refusal := refuse_address(address, rules, own_addresses.known()):
            faults.append(FieldError("ip", f"Pool {pool.name}: {refusal[0]}", refusal[1]))
        elif rules is not None:
            wrong = [refuse_port(port, rules, pool.step) for port in asked]
            where = "ports" if request.port is None else "port"
            faults += [
                FieldError(where, f"Pool {pool.name}: {each[0]}", each[1])
                for each in dict.fromkeys(wrong)
                if each is not None
            ]
    if not faults:
        faults = _list_loops(str(address), asked, indexes, slots, pools)
    if faults:
        first = faults[0]
        raise Refused(first.message, code="backend_refused", way_out=first.way_out, fields=faults)
    steps = [pools[slot.pool_id].step for slot in slots]
    if sum(steps) > MOST_TARGETS:
        text = f"The segments of the claim lead to {sum(steps)} ports of its backend."
        raise Refused(
            text,
            code="too_many_targets",
            way_out=f"Use claims of at most {MOST_TARGETS} ports in all segments.",
            fields=[FieldError("ip", text, "Set the backend of a claim with fewer segments.")],
        )
    facts = [
        (index, slot.kind, slot.lane, step)
        for index, slot, step in zip(indexes, slots, steps, strict=True)
    ]
    return make_backend(str(address), asked, facts)


def _list_loops(
    ip: str,
    asked: Sequence[int],
    indexes: Sequence[int],
    slots: Sequence[ports_sql.HeldPortsRow],
    pools: Mapping[int, PoolFacts],
) -> list[FieldError]:
    """Faults of targets that are ports of load balancers of this machine. Two load balancers that
    target each other would pass a datagram on without end.
    """
    here = kinds_with(lambda provider: provider.listens_here)
    if not any(pool.provider in here for pool in pools.values()):
        return []
    listeners = ports_sql.listeners_at(ip=ip, providers=here)
    wanted = {
        (slot.lane, asked[index] + i)
        for index, slot in zip(indexes, slots, strict=True)
        if pools[slot.pool_id].provider in here
        for i in range(pools[slot.pool_id].step)
    }
    return [
        FieldError(
            "ip",
            f"{write_target(ip, each.number)} is a {each.lane.upper()} port of {each.member}, a "
            "load balancer of this machine.",
            "Name the address or the port of the program behind it.",
        )
        for each in listeners
        if any((each.lane, each.number + i) in wanted for i in range(each.step))
    ][:1]


def _number(slots: Sequence[ports_sql.HeldPortsRow]) -> tuple[list[int], list[int | None]]:
    """For each slot, the index of its part or number; and for each of these, the port that the
    claim names.
    """
    if slots[0].part is not None:
        ports = {slot.part or 0: slot.port for slot in slots}
        return [slot.part or 0 for slot in slots], [ports[index] for index in sorted(ports)]
    # The slots of one number are adjacent: one in each pool, or two where TCP and UDP are apart.
    first = [(slot.pool_id, slot.lane) for slot in slots]
    width = next((i for i in range(1, len(slots)) if first[i] == first[0]), len(slots))
    return [i // width for i in range(len(slots))], [None] * (len(slots) // width)


def _choose_ports(request: BackendRequest, own: Sequence[int | None]) -> list[int]:
    if request.port is not None:
        return [request.port] * len(own)
    if request.ports is not None:
        if len(request.ports) == len(own):
            return list(request.ports)
        text = f"The claim has {len(own)} ports, and {len(request.ports)} are given."
        raise Invalid(fields=[FieldError("ports", text, "Give one for each, in their order.")])
    known = [port for port in own if port is not None]
    if len(known) == len(own):
        return known
    text = "The claim does not name its ports."
    raise Invalid(fields=[FieldError("port", text, "Give port, or ports with one for each.")])


def _take(claim_id: int, backend: Backend, slots: Sequence[ports_sql.HeldPortsRow]) -> None:
    wanted = {
        (slot.pool_id, key) for slot, keys in zip(slots, backend.keys, strict=True) for key in keys
    }
    _take_targets(claim_id, wanted)


def _take_targets(claim_id: int, wanted: set[tuple[int, str]]) -> bool:
    """Takes the targets in one order, so that two claims with the same targets do not wait for each
    other. False: another live claim has one of them, and the claim waits for it.
    """
    in_order = sorted(wanted)
    taken = {
        (row.pool_id, row.target)
        for row in ports_sql.take_targets(
            claim=claim_id,
            pools=[pool for pool, _ in in_order],
            targets=[target for _, target in in_order],
        )
    }
    left = [each for each in in_order if each not in taken]
    if left:
        ports_sql.add_conflicts(
            claim=claim_id,
            pools=[pool for pool, _ in left],
            targets=[target for _, target in left],
        )
    return not left


def _sync_members(claim_id: int, generation: int, slots: Sequence[ports_sql.HeldPortsRow]) -> None:
    members = {slot.member_id: slot for slot in slots if slot.queue}
    for member_id, slot in sorted(members.items()):
        add_operation(
            queue=slot.queue,
            lane=lane_of(member_id),
            kind="sync",
            pool_id=slot.pool_id,
            member_id=member_id,
            claim_id=claim_id,
            generation=generation,
        )
    publish("events")


@chore("backend targets", every=1.0)
def settle_conflicts() -> bool:
    """Register the backends of claims whose target no other live claim has any more."""
    rows = ports_sql.list_conflicts(BATCH)
    run_each([row.claim_id for row in rows], _settle)
    return len(rows) == BATCH


def _settle(claim_id: int) -> None:
    with transaction.atomic():
        claim = lock_claim(claim_id)
        if claim.state == "ended":
            ports_sql.drop_targets(claim=claim_id)
            return
        rows = ports_sql.conflicts_of(claim=claim_id)
        wanted = {(row.pool_id, row.target) for row in rows}
        pools, targets = [pool for pool, _ in wanted], [target for _, target in wanted]
        ports_sql.end_conflicts(claim=claim_id, pools=pools, targets=targets)
        _take_targets(claim_id, wanted)
        left = {(row.pool_id, row.target) for row in ports_sql.conflicts_of(claim=claim_id)}
        if left == wanted:
            return
        record(
            "free_backend",
            pool_id=claim.pool_id,
            claim_id=claim_id,
            generation=claim.generation,
        )
        _sync_members(claim_id, claim.generation, ports_sql.held_ports(claim=claim_id))
