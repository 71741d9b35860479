"""Authorisation on the fake API server, by the roles that are stored in it."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.kubernetes_cluster.fake_objects import Refused, Thing
from tests.kubernetes_cluster.fake_store import Store

MASTERS = "system:masters"


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...] = ()


def may(
    store: Store, user: User, verb: str, group: str, namespace: str, plural: str, name: str
) -> None:
    """Or refuse, in the real server's words."""
    if MASTERS in user.groups:
        return
    for rule in _rules(store, user, namespace):
        groups, plurals, verbs = (
            rule.get("apiGroups") or [],
            rule.get("resources") or [],
            rule.get("verbs") or [],
        )
        names = rule.get("resourceNames") or []
        if (
            _has(groups, group)
            and _has(plurals, plural)
            and _has(verbs, verb)
            and (not names or name in names)
        ):
            return
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    whole = plural.partition("/")[0]
    what = f'{whole} "{name}"' if name else whole
    said = (
        f'{what} is forbidden: User "{user.name}" cannot {verb} resource "{plural}" in API group '
        f'"{group}" {where}'
    )
    raise Refused(
        403,
        said,
        details={
            "kind": whole,
            **({"name": name} if name else {}),
            **({"group": group} if group else {}),
        },
    )


def _has(listed: list[str], wanted: str) -> bool:
    return "*" in listed or wanted in listed


def _rules(store: Store, user: User, namespace: str) -> Iterator[Thing]:
    for key, binding in store.things.items():
        if key[0] not in ("rolebindings", "clusterrolebindings") or (
            key[1] and key[1] != namespace
        ):
            continue
        if not any(_is_meant(subject, user) for subject in binding.get("subjects") or []):
            continue
        reference = binding["roleRef"]
        place = ("roles", key[1]) if reference["kind"] == "Role" else ("clusterroles", "")
        yield from (store.things.get((*place, reference["name"])) or {}).get("rules") or []


def _is_meant(subject: Thing, user: User) -> bool:
    if subject["kind"] == "ServiceAccount":
        return (
            user.name == f"system:serviceaccount:{subject.get('namespace', '')}:{subject['name']}"
        )
    return bool(
        subject["name"] == user.name
        if subject["kind"] == "User"
        else subject["name"] in user.groups
    )
