"""Pools as files: `apply -f`, `diff -f`, `export`. A file has the same fields as the API, and may
list the members.
"""

from collections.abc import Iterable, Mapping, Sequence

from pools.config.spec import parse_pool
from pools.lifecycle.policy import diff_values
from pools.lifecycle.preflight import check_outside
from pools.lifecycle.selectors import LIVE, config_of, list_pools
from pools.lifecycle.services import check_config, create_pool, update_pool
from pools.models import Pool
from pools.providers.base import option_readers
from project.kernel.errors import FieldError
from project.kernel.manifests import ManifestChange, ManifestKind, Spec, register_kind

MEMBERS = "members.list"


def validate_pool(name: str, spec: Spec) -> Sequence[FieldError]:
    return check_config(_config(name, spec))


def preflight_pool(name: str, spec: Spec) -> Sequence[FieldError]:
    return check_outside(_config(name, spec))


def diff_pool(name: str, spec: Spec) -> Sequence[ManifestChange]:
    """The changes between the canonical forms, in which shorthands do not differ. Members are
    compared by name, if the file lists them.
    """
    after = parse_pool(_config(name, spec), option_readers())
    pool = _find(name)
    if pool is None:
        return [ManifestChange("", None, after.as_config())]
    mine, theirs = config_of(pool), after.as_config()
    members, declared = mine["members"].pop("list", []), theirs["members"].pop("list", None)
    changes = [ManifestChange(c.field, c.before, c.after) for c in diff_values(mine, theirs)]
    return changes if declared is None else changes + _diff_members(members, declared)


def apply_pool(name: str, spec: Spec, reason: str) -> None:
    config = _config(name, spec)
    if _find(name) is None:
        create_pool(config, reason=reason)
    else:
        update_pool(name, config, reason=reason)


def export_pools() -> Iterable[tuple[str, Spec]]:
    for pool in list_pools().exclude(state="deleting"):
        yield pool.name, {k: v for k, v in config_of(pool).items() if k not in ("kind", "name")}


def _diff_members(
    before: list[dict[str, object]], after: list[dict[str, object]]
) -> list[ManifestChange]:
    mine, theirs = ({str(m["name"]): m for m in members} for members in (before, after))
    found = [
        ManifestChange(f"{MEMBERS}.{name}", mine[name], None) for name in mine if name not in theirs
    ]
    found += [
        ManifestChange(f"{MEMBERS}.{name}", None, theirs[name])
        for name in theirs
        if name not in mine
    ]
    for name in mine:
        if name in theirs:
            found += [
                ManifestChange(c.field, c.before, c.after)
                for c in diff_values(mine[name], theirs[name], f"{MEMBERS}.{name}")
            ]
    return found


def _find(name: str) -> Pool | None:
    return Pool.objects.filter(LIVE, name=name).first()


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
