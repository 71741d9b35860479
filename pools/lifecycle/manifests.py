"""Pools as files: `apply -f`, `diff -f`, `export`. A file has the same fields as the API, and may
list the members.
"""

from collections.abc import Iterable, Mapping, Sequence

from pools.config.spec import parse_pool
from pools.lifecycle.policy import diff_values
from pools.lifecycle.preflight import check_outside
from pools.lifecycle.selectors import config_of, find_pool, list_pools
from pools.lifecycle.services import check_config, create_pool, update_pool
from pools.providers.base import option_readers
from project.kernel.errors import FieldError
from project.kernel.manifests import ManifestChange, ManifestKind, Spec, register_kind


def validate_pool(name: str, spec: Spec) -> Sequence[FieldError]:
    return check_config(_config(name, spec))


def preflight_pool(name: str, spec: Spec) -> Sequence[FieldError]:
    return check_outside(_config(name, spec))


def diff_pool(name: str, spec: Spec) -> Sequence[ManifestChange]:
    """The changes between the canonical forms, in which shorthands do not differ. Members are
    compared by name, if the file lists them.
    """
    after = parse_pool(_config(name, spec), option_readers())
    pool = find_pool(name)
    if pool is None:
        return [ManifestChange("", None, after.as_config())]
    before = config_of(pool, with_members=after.declared is not None)
    changes = diff_values(_name_members(before), _name_members(after.as_config()))
    return [ManifestChange(change.field, change.before, change.after) for change in changes]


def _name_members(config: Spec) -> Spec:
    """The configuration with a mapping of the members by name in place of the list."""
    members = {member["name"]: member for member in config["members"].get("list", ())}
    return {**config, "members": {**config["members"], "list": members}}


def apply_pool(name: str, spec: Spec, reason: str) -> None:
    config = _config(name, spec)
    if find_pool(name) is None:
        create_pool(config, reason=reason)
    else:
        update_pool(name, config, reason=reason)


def export_pools() -> Iterable[tuple[str, Spec]]:
    for pool in list_pools().exclude(state="deleting"):
        yield pool.name, {k: v for k, v in config_of(pool).items() if k not in ("kind", "name")}


def _config(name: str, spec: Spec) -> Mapping[str, object]:
    return {**spec, "name": name}


register_kind(
    ManifestKind(
        name="Pool",
        validate=validate_pool,
        diff=diff_pool,
        apply=apply_pool,
        export=export_pools,
        ask=preflight_pool,
    )
)
