"""Which pool has no certificate for an encrypted port. Ports that name their own need none."""

from collections.abc import Mapping, Sequence

from claims.allocation.requests.pool_facts import PoolFacts
from pools.config.layout import ENCRYPTED
from pools.providers.base import default_certificate, known_providers
from project.kernel.errors import wrong_field


def certificate_option(pool: PoolFacts | None) -> str:
    """The option of the pool's provider with its certificate; empty: the provider has none."""
    provider = None if pool is None else known_providers().get(pool.provider)
    return "" if provider is None else provider.certificate_option


def find_pool_without_certificate(
    names: Sequence[str], known: Mapping[str, PoolFacts | None]
) -> str | None:
    """The first of these pools without a certificate of its own; a missing pool has none."""
    for name in names:
        pool = known.get(name)
        if pool is None or not default_certificate(pool.provider, pool.spec.options):
            return name
    return None


def require_certificates(
    kind: str, names: Sequence[str], known: Mapping[str, PoolFacts | None]
) -> None:
    """Raises Invalid for a claim of an encrypted kind, which names no certificate, if one of its
    pools has none. Providers without such an option have no encrypted listeners.
    """
    if kind not in ENCRYPTED:
        return
    asked = [
        name for name in names if (pool := known.get(name)) is None or certificate_option(pool)
    ]
    name = find_pool_without_certificate(asked, known)
    if name is None:
        return
    option = certificate_option(known.get(name))
    first = f"Set provider.{option} of {name}" if option else f"Create pool {name} first"
    example = f"[{{port: 443, protocol: {kind.upper()}, certificate: ...}}]"
    raise wrong_field(
        "kind",
        f"{kind} needs a certificate, and pool {name} has none.",
        f"{first}, or claim `ports` with a certificate: {example}.",
    )
