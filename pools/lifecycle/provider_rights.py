"""The changes of a provider that an admin of one pool may make.

The kind of a provider and most of its options decide which code runs and where: on Berth's own
machine, or in which namespace of which cluster and as which service account. `backends` decides
where traffic from outside may go, `certificates` which certificates of the account claims use, and
the `external_id` of a member which load balancer of the account the pool takes. Changing these
needs the same right as a new pool: `configure` in all pools.
"""

from collections.abc import Mapping, Sequence

from pools.access.permissions import ACTIONS, Identity, PoolRef, refusal
from pools.config.spec import PoolSpec, read_pool
from pools.lifecycle.policy import diff_values, is_one_of
from pools.lifecycle.selectors import LIVE, spec_of
from pools.models import Member, Pool
from pools.providers.base import known_providers, option_readers
from project.kernel.errors import FieldError, Forbidden

MOST_NAMED = 20  # fields in one refusal


def require_provider(identity: Identity, pool: Pool, config: object) -> None:
    """Raise Forbidden if the configuration changes more of the provider than the identity may. A
    configuration with faults passes, because the services refuse it. The caller has locked the
    pool, or calls again with the lock.
    """
    spec, _ = read_pool(config, option_readers())
    if spec is None or identity.may("configure", None):
        return
    if fields := list_deciding(spec_of(pool), spec) or _list_new_named(pool, spec):
        raise _refuse(identity, pool, fields)


def require_named(identity: Identity, pool: Pool, declared: Sequence[object], where: str) -> None:
    """Raise Forbidden if new members name objects outside that the provider would take, and the
    identity may not decide that.
    """
    if identity.may("configure", None) or not _serves_named(pool.provider):
        return
    if fields := [
        f"{where}[{i}].external_id"
        for i, member in enumerate(declared)
        if isinstance(member, Mapping) and member.get("external_id")
    ]:
        raise _refuse(identity, pool, fields)


def _list_new_named(pool: Pool, after: PoolSpec) -> list[str]:
    """Fields of declared members that name an object outside which the pool does not have yet."""
    if after.declared is None or not _serves_named(after.provider):
        return []
    there = set(Member.objects.filter(LIVE, pool=pool).values_list("name", "external_id"))
    return [
        f"members.list[{i}].external_id"
        for i, member in enumerate(after.declared)
        if member.external_id and (member.name, member.external_id) not in there
    ]


def _serves_named(kind: str) -> bool:
    provider = known_providers().get(kind)
    return provider is not None and provider.serves_named


def list_deciding(before: PoolSpec, after: PoolSpec) -> list[str]:
    """Changed fields that decide which code runs, or where, or where traffic goes."""
    if before.provider != after.provider:
        return ["provider.kind"]
    provider = known_providers().get(after.provider)
    free = provider.free_options if provider is not None else ()
    changed = (change.field for change in diff_values(_flat(before.options), _flat(after.options)))
    found = [f"provider.{field}" for field in changed if not is_one_of(field, free)]
    # Traffic from outside reaches what these fields allow.
    stored = before.as_stored(), after.as_stored()
    for name in ("backends", "certificates"):
        values = stored[0].get(name), stored[1].get(name)
        found += [change.field for change in diff_values(*values, name)]
    return found


def _flat(options: Mapping[str, object], where: str = "") -> dict[str, object]:
    """Each value by its path, so that an added or removed mapping is compared value by value."""
    found: dict[str, object] = {}
    for name, value in options.items():
        path = f"{where}.{name}" if where else name
        found |= _flat(value, path) if isinstance(value, dict) and value else {path: value}
    return found


def _refuse(identity: Identity, pool: PoolRef, fields: list[str]) -> Forbidden:
    error = refusal(identity, ACTIONS["configure"], None, "")
    message = (
        "This decides what code runs, or what it reaches. Changing it needs the role "
        f"{error.role} in all pools."
    )
    way_out = f"Leave it as it is in {pool.name}, or ask an admin of all pools to change it."
    named = [FieldError(field, message, way_out) for field in fields[:MOST_NAMED]]
    return Forbidden(
        f"{fields[0]}: {message}", role=error.role, way_out=error.way_out, fields=named
    )
