"""Reads for the sync of a member which listeners and targets the claims want."""

from collections.abc import Collection, Mapping

from claims.allocation.requests.pool_facts import PoolFacts, find_pools_by_id
from claims.kinds import ClaimPool
from claims.ports import ports_sql
from claims.ports.own_addresses import own_addresses
from claims.ports.targets import protocol_of
from pools.config.backend_spec import read_address, refuse_address, refuse_port
from pools.config.layout import step_of
from pools.providers.base import PortTarget, PortUse
from slots.sync.port_uses import register_use_reader


@register_use_reader
def read_uses(slots: Collection[int]) -> Mapping[int, PortUse]:
    rows = ports_sql.port_uses(slots=list(slots))
    has_target = {row.pool_id for row in rows if row.ip is not None}
    pools = find_pools_by_id(has_target) if has_target else {}
    if has_target:
        own_addresses.get()
    return {row.id: _use_of(row, pools) for row in rows}


def _use_of(row: ports_sql.PortUsesRow, pools: Mapping[int, PoolFacts]) -> PortUse:
    protocol = protocol_of(row.kind, row.lane)
    if row.ip is None or row.port is None:
        return PortUse(protocol, certificate=row.certificate)
    pool = pools[row.pool_id]
    is_withheld = row.other is not None or explain_withheld(row.ip, row.port, pool, row.certificate)
    if is_withheld:
        return PortUse(protocol, certificate=row.certificate, is_withheld=True)
    return PortUse(protocol, PortTarget(row.ip, row.port), row.certificate)


def explain_withheld(ip: str, port: int, pool: ClaimPool, certificate: str = "") -> str:
    """Why the pool does not send traffic to a stored backend any more; empty: it does. The rules
    of the pool may have changed since the claim was made and the backend was set.
    """
    if certificate and certificate not in pool.spec.allowed_certificates:
        return f"The pool does not list the certificate {certificate}."
    rules, address = pool.spec.backends, read_address(ip)
    if rules is None or address is None:
        return "The pool lists no networks of backends."
    found = refuse_address(address, rules, own_addresses.known()) or refuse_port(
        port, rules, step_of(pool.spec.layout)
    )
    return "" if found is None else found[0]
