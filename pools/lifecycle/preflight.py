"""What a configuration would meet outside, asked before it is taken: outside every transaction, and
before the services are called.

What is certainly wrong is refused at its field: a context nobody knows, a namespace or a right that
is missing, a template that the cluster does not admit. A provider that does not answer says nothing
about the configuration: pools as files are taken while a cluster is away, the pool says what is
wrong, and what comes of the template shows with the first member.
"""

from typing import Any

from pools.config.spec import PoolSpec, read_pool
from pools.lifecycle.selectors import LIVE, snapshot_pool, spec_of
from pools.models import Pool
from pools.providers.base import PoolSnapshot, option_readers, provider_class, provider_of
from project.kernel.db.guards import outside_transaction
from project.kernel.errors import FieldError, Invalid


def check_outside(config: Any, where: str = "") -> list[FieldError]:
    """Faults that only the provider knows. Those of the configuration itself are the services'
    business, and come first.
    """
    spec, _ = read_pool(config, option_readers(), where)
    if spec is None or not has_preflight(spec):
        return []
    prefix = f"{where}." if where else ""
    return [
        FieldError(prefix + e.field, e.message, e.way_out) for e in run_preflight(snapshot_of(spec))
    ]


def refuse_outside(config: Any) -> None:
    if faults := check_outside(config):
        raise Invalid(fields=faults)


@outside_transaction
def run_preflight(pool: PoolSnapshot) -> list[FieldError]:
    return provider_of(pool.provider).check(pool)


def has_preflight(spec: PoolSpec) -> bool:
    """Only what changed: who raises a maximum need not wait for a cluster."""
    if not provider_class(spec.provider).place_of(spec.options):
        return False
    there = Pool.objects.filter(LIVE, name=spec.name).first()
    return (
        there is None or spec_of(there).options != spec.options or there.provider != spec.provider
    )


def snapshot_of(spec: PoolSpec) -> PoolSnapshot:
    """As the pool would be. One that is not there yet has no number."""
    there = Pool.objects.filter(LIVE, name=spec.name).first() or Pool(pk=0, name=spec.name)
    return snapshot_pool(
        Pool(pk=there.pk, name=spec.name, provider=spec.provider, spec=spec.as_stored())
    )
