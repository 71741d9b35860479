"""Checks a configuration against the outside system, before the services and outside of every
transaction.

Certain faults are refused at their field: an unknown context, a missing namespace or right, a
template that the cluster does not admit. A provider that does not answer causes no fault: pool
files can be applied while a cluster is away. The pool then shows the error, and faults of the
template appear with the first member.
"""

from pools.config.spec import PoolSpec, read_pool
from pools.lifecycle.selectors import find_pool, snapshot_pool, spec_of
from pools.models import Pool
from pools.providers.base import PoolSnapshot, option_readers, provider_class, provider_of
from project.kernel.db.guards import outside_transaction
from project.kernel.errors import FieldError, Invalid


def check_outside(config: object) -> list[FieldError]:
    """Faults that only the provider finds. Empty for a configuration that has other faults: the
    services report these.
    """
    spec, _ = read_pool(config, option_readers())
    return [] if spec is None or not has_preflight(spec) else run_preflight(snapshot_of(spec))


def refuse_outside(config: object) -> None:
    if faults := check_outside(config):
        raise Invalid(fields=faults)


@outside_transaction
def run_preflight(pool: PoolSnapshot) -> list[FieldError]:
    return provider_of(pool.provider).check(pool)


def has_preflight(spec: PoolSpec) -> bool:
    """Whether the options of the provider change. Other changes need not wait for a cluster."""
    if not provider_class(spec.provider).place_of(spec.options):
        return False
    there = find_pool(spec.name)
    made_from = spec.provider, spec.options
    return there is None or (there.provider, spec_of(there).options) != made_from


def snapshot_of(spec: PoolSpec) -> PoolSnapshot:
    """The pool with this configuration; a pool that does not exist has the id 0."""
    there = find_pool(spec.name) or Pool(pk=0, name=spec.name)
    return snapshot_pool(
        Pool(pk=there.pk, name=spec.name, provider=spec.provider, spec=spec.as_stored())
    )
