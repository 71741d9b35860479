"""Ports as a kind of claim: the field `ports` names the ports of a program, and the claim gets a
number on a load balancer for each.
"""

from collections.abc import Mapping, Sequence

from claims.allocation.requests.certificates import (
    certificate_option,
    find_pool_without_certificate,
)
from claims.allocation.requests.pool_facts import PoolFacts, find_pools
from claims.kinds import (
    Attach,
    ClaimKind,
    ClaimPool,
    NewClaim,
    ShownClaim,
    StoredPart,
    WantedPart,
    Work,
    register_kind,
)
from claims.models import ClaimPart
from claims.ports.port_list import (
    PORTS_SCHEMA,
    PortList,
    PortRequest,
    names_all_pools,
    read_ports,
)
from claims.ports.port_view import is_of_ports, show_new_ports, show_ports
from pools.config.parsing import Faults, show_value
from project.kernel.errors import FieldError, Invalid

PAGE = "claims/lifecycle/claim_page.html"


class PortKind(ClaimKind):
    field = "ports"
    schema = PORTS_SCHEMA
    template = PAGE

    def read(self, value: object, claim: NewClaim, faults: Faults) -> PortList | None:
        _check_claim(claim, faults)
        return read_ports(value, self.field, claim.pools, faults)

    def names_pools(self, value: object) -> bool:
        return names_all_pools(value)

    def list_parts(self, work: Work | None) -> Sequence[WantedPart]:
        return work.ports if isinstance(work, PortList) else ()

    def is_missing(self, claim: NewClaim, pool: ClaimPool | None) -> bool:
        return False

    def prepare(self, claim: NewClaim, pool: ClaimPool | None) -> Attach | None:
        if isinstance(claim.work, PortList):
            _check_certificates(claim.work)
        return None

    def owns(self, claim_id: int) -> bool:
        return ClaimPart.objects.filter(claim_id=claim_id).exists()

    def display(self, claims: Sequence[ShownClaim]) -> None:
        show_ports(claims)

    def display_new(
        self,
        claim: ShownClaim,
        new: NewClaim,
        parts: Sequence[StoredPart],
        pools: Sequence[ClaimPool | None],
    ) -> None:
        if is_of_ports(claim) and (claim.slots or parts):
            show_new_ports(claim, parts, pools)


register_kind(PortKind())


def _check_certificates(ports: PortList) -> None:
    """Raises Invalid for a certificate that a pool of its port does not list, and for encrypted
    ports without a certificate in pools that have none. A pool that does not exist yet is asked for
    its list when traffic is to flow (claims.ports.use_reader).
    """
    named = [port for port in ports.ports if port.certificate]
    lacking = [port for port in ports.ports if port.lacks_certificate]
    if not named and not lacking:
        return
    known = find_pools({name for port in (*named, *lacking) for name in port.pools})
    faults = [
        FieldError(
            f"{port.where}.certificate",
            f"Pool {name} does not list the certificate {show_value(port.certificate)}.",
            "Name one of its certificates, or ask an admin of all pools to add it to "
            "`certificates` of the pool.",
        )
        for port in named
        for name in port.pools
        if name in known and port.certificate not in known[name].spec.allowed_certificates
    ]
    missing = (_find_missing_certificate(port, known) for port in lacking)
    if faults := faults or [fault for fault in missing if fault is not None]:
        raise Invalid(fields=faults)


def _find_missing_certificate(
    port: PortRequest, known: Mapping[str, PoolFacts]
) -> FieldError | None:
    name = find_pool_without_certificate(port.pools, known)
    if name is None:
        return None
    option = certificate_option(known.get(name))
    return FieldError(
        f"{port.where}.certificate",
        f"{port.protocol} needs a certificate: the port names none, and pool {name} has none.",
        f"Write {{port: {port.port}, protocol: {port.protocol}, certificate: ...}} with its "
        f"ARN or id{f', or set provider.{option} of {name}' if option else ''}.",
    )


def _check_claim(claim: NewClaim, faults: Faults) -> None:
    """Each port has a kind, a size and conditions of its own."""
    way_out = "Leave it out: each port has its own kind and number."
    for name, is_given in (
        ("kind", bool(claim.kind)),
        ("size", claim.size != 1),
        ("contiguous", claim.contiguous),
        ("on_one_member", claim.on_one_member),
        ("same_number", claim.same_number),
        ("slot", claim.slot is not None),
    ):
        if is_given:
            faults.add(name, f"A claim with `ports` has no field {name}.", way_out)
    if claim.task or claim.workspace:
        where = "task" if claim.task else "workspace"
        text = "A claim with `ports` runs no task."
        faults.add(where, text, "Leave it out, or leave out ports.")
