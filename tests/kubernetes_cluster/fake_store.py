"""The objects of the fake API server and their history: every version can be listed and watched
until it is forgotten.
"""

import copy
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.kubernetes_cluster.fake_checks import check_pod_status, check_pod_update, complete_secret
from tests.kubernetes_cluster.fake_objects import Refused, Thing, conflict, invalid, missing

Key = tuple[str, str, str]  # plural, namespace, name
FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Resource:
    kind: str
    is_namespaced: bool = True
    group: str = ""

    @property
    def version(self) -> str:
        return f"{self.group}/v1" if self.group else "v1"


RBAC = "rbac.authorization.k8s.io"
RESOURCES = {
    "pods": Resource("Pod"),
    "secrets": Resource("Secret"),
    "configmaps": Resource("ConfigMap"),
    "events": Resource("Event"),
    "serviceaccounts": Resource("ServiceAccount"),
    "nodes": Resource("Node", is_namespaced=False),
    "namespaces": Resource("Namespace", is_namespaced=False),
    "roles": Resource("Role", group=RBAC),
    "rolebindings": Resource("RoleBinding", group=RBAC),
    "clusterroles": Resource("ClusterRole", is_namespaced=False, group=RBAC),
    "clusterrolebindings": Resource("ClusterRoleBinding", is_namespaced=False, group=RBAC),
}


@dataclass(frozen=True)
class Change:
    version: int
    word: str  # ADDED, MODIFIED, DELETED
    key: Key
    now: Thing
    before: Thing | None


def stamp(ahead: float = 0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=ahead)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """Objects in it are never changed, only replaced. The caller holds `news`."""

    def __init__(self) -> None:
        self.news = threading.Condition()
        self.version = 1
        self.things: dict[Key, Thing] = {}
        self.log: list[Change] = []
        self.floor = 0  # what is older has been forgotten
        with self.news:
            for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
                self.create(("namespaces", "", name), {"metadata": {"name": name}})

    # -- reading -----------------------------------------------------------------------------------
    def get(self, key: Key) -> Thing:
        if key not in self.things:
            raise missing(key[0], key[2])
        return self.things[key]

    def at(self, version: int) -> dict[Key, Thing]:
        """As it was then."""
        if version < self.floor:
            raise Refused(410, f"The provided resource version is too old: {version}")
        past = dict(self.things)
        for change in reversed(self.log):
            if change.version <= version:
                break
            if change.before is None:
                past.pop(change.key, None)
            else:
                past[change.key] = change.before
        return past

    def since(self, version: int) -> Iterator[Change]:
        """What came after it. Few are asked for, and they are at the end."""
        first = len(self.log)
        while first and self.log[first - 1].version > version:
            first -= 1
        yield from self.log[first:]

    def is_newer(self, version: int) -> bool:
        return self.version > version

    def forget(self) -> None:
        """No earlier version can be listed or watched from any more. To be called without
        connected clients, because open watches do not notice."""
        self.version += 1
        self.floor = self.version
        self.log.clear()
        self.news.notify_all()

    # -- writing -----------------------------------------------------------------------------------
    def create(self, key: Key, thing: Thing) -> Thing:
        meta = thing["metadata"]
        for name in (
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ):
            meta.pop(name, None)
        meta |= {
            "uid": str(uuid.uuid4()),
            "creationTimestamp": stamp(),
            "name": key[2],
            **({"namespace": key[1]} if key[1] else {}),
        }
        if key[0] in ("pods", "namespaces"):
            meta["generation"] = 1
        if key[0] == "namespaces":
            thing |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
            meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = key[2]
        return self.write(key, thing, "ADDED")

    def update(self, key: Key, wanted: Thing, part: str = "") -> Thing:
        """A whole new object, or its part `status`; with a version of its own only if it is
        still that one.
        """
        old, wanted = self.get(key), copy.deepcopy(wanted)
        meta, was = wanted.setdefault("metadata", {}), old["metadata"]
        if meta.get("uid", was["uid"]) != was["uid"]:
            said = f'Invalid value: "{meta["uid"]}": field is immutable'
            raise invalid(
                RESOURCES[key[0]].kind, key[2], [("FieldValueInvalid", "metadata.uid", said)]
            )
        if meta.get("resourceVersion", was["resourceVersion"]) != was["resourceVersion"]:
            why = (
                "the object has been modified; please apply your changes to the latest "
                "version and try again"
            )
            raise conflict(key[0], key[2], why)
        for name in (
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "name",
            "namespace",
            "resourceVersion",
            "generation",
        ):
            meta.pop(name, None)
            if name in was:
                meta[name] = was[name]
        if part == "status":
            new = {**copy.deepcopy(old), "metadata": meta, "status": wanted.get("status") or {}}
        elif key[0] in ("pods", "namespaces", "nodes"):
            new = {**wanted, "status": copy.deepcopy(old.get("status") or {})}
        else:
            new = wanted
        self._check(key, old, new, part)
        if _content(new) == _content(old):
            return old
        if (
            "deletionTimestamp" in meta
            and not meta.get("finalizers")
            and not meta.get("deletionGracePeriodSeconds")
        ):
            return self.write(key, new, "DELETED")
        return self.write(key, new, "MODIFIED")

    def delete(self, key: Key, options: Thing) -> tuple[Thing, bool]:
        """What is left of it or was, and whether it is gone."""
        old = self.get(key)
        meta = old["metadata"]
        wanted = options.get("preconditions") or {}
        for name, word, what in (
            ("uid", "UID", "deleted and then recreated"),
            ("resourceVersion", "ResourceVersion", "modified"),
        ):
            if wanted.get(name) not in (None, meta[name]):
                why = (
                    f"the {word} in the precondition ({wanted[name]}) does not match the {word} in "
                    f"record ({meta[name]})."
                )
                raise conflict(
                    RESOURCES[key[0]].kind, key[2], f"{why} The object might have been {what}"
                )
        grace = self._grace(key, old, options)
        finalizers = list(meta.get("finalizers") or [])
        if (
            options.get("propagationPolicy") == "Foreground"
            and "foregroundDeletion" not in finalizers
        ):
            finalizers.append("foregroundDeletion")
        if key[0] == "namespaces":
            return self._end_namespace(key, old), False
        is_marked = "deletionTimestamp" in meta
        new = copy.deepcopy(old)
        if finalizers:
            new["metadata"]["finalizers"] = finalizers
        if grace or finalizers:
            if (
                is_marked
                and meta["deletionGracePeriodSeconds"] <= grace
                and finalizers == (meta.get("finalizers") or [])
            ):
                return old, False
            new["metadata"] |= {
                "deletionTimestamp": stamp(grace),
                "deletionGracePeriodSeconds": grace,
            }
            return self.write(key, new, "MODIFIED"), False
        if key[0] == "pods" and (not is_marked or meta["deletionGracePeriodSeconds"]):
            new["metadata"] |= {
                "deletionTimestamp": meta.get("deletionTimestamp", stamp()),
                "deletionGracePeriodSeconds": 0,
            }
            new = self.write(key, new, "MODIFIED")
        return self.write(key, copy.deepcopy(new), "DELETED"), True

    def finalize(self, key: Key, wanted: Thing) -> Thing:
        """A namespace goes with its last finalizer. Objects in it stay: deleting them is the work
        of another controller.
        """
        new = copy.deepcopy(self.get(key))
        new["spec"] = {"finalizers": list((wanted.get("spec") or {}).get("finalizers") or [])}
        is_last = "deletionTimestamp" in new["metadata"] and not new["spec"]["finalizers"]
        return self.write(key, new, "DELETED" if is_last else "MODIFIED")

    # -- parts -------------------------------------------------------------------------------------
    def write(self, key: Key, thing: Thing, word: str) -> Thing:
        before, kind = self.things.get(key), RESOURCES[key[0]]
        self.version += 1
        thing["metadata"]["resourceVersion"] = str(self.version)
        if (
            before is not None
            and before.get("spec") != thing.get("spec")
            and "generation" in thing["metadata"]
        ):
            thing["metadata"]["generation"] += 1
        for name in ("labels", "annotations", "finalizers", "ownerReferences"):
            if not thing["metadata"].get(name, True):
                del thing["metadata"][name]
        thing = {
            "kind": kind.kind,
            "apiVersion": kind.version,
            **{k: v for k, v in thing.items() if k not in ("kind", "apiVersion")},
        }
        if word == "DELETED":
            del self.things[key]
        else:
            self.things[key] = thing
        self.log.append(Change(self.version, word, key, thing, before))
        self.news.notify_all()
        return thing

    def _check(self, key: Key, old: Thing, new: Thing, part: str) -> None:
        if "deletionTimestamp" in old["metadata"]:
            added = [
                f
                for f in new["metadata"].get("finalizers") or []
                if f not in (old["metadata"].get("finalizers") or [])
            ]
            if added:
                said = (
                    "Forbidden: no new finalizers can be added if the object is being deleted, "
                    f"found new finalizers {added}"
                )
                raise invalid(
                    RESOURCES[key[0]].kind,
                    key[2],
                    [("FieldValueForbidden", "metadata.finalizers", said)],
                )
        if key[0] == "pods":
            (check_pod_status if part == "status" else check_pod_update)(old, new)
        if key[0] == "secrets":
            complete_secret(new, old)

    def _grace(self, key: Key, old: Thing, options: Thing) -> int:
        if key[0] != "pods":
            return 0
        if not old["spec"].get("nodeName") or (old.get("status") or {}).get("phase") in FINISHED:
            return 0
        asked: Any = options.get("gracePeriodSeconds")
        grace = int(
            old["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
        )
        return min(grace, old["metadata"].get("deletionGracePeriodSeconds", grace))

    def _end_namespace(self, key: Key, old: Thing) -> Thing:
        if "deletionTimestamp" in old["metadata"]:
            return old
        new = copy.deepcopy(old)
        new["metadata"]["deletionTimestamp"] = stamp()
        new["status"] = {"phase": "Terminating"}
        return self.write(key, new, "MODIFIED")


def _content(thing: Thing) -> Thing:
    meta = {
        k: v
        for k, v in thing["metadata"].items()
        if k != "resourceVersion" and v not in ({}, [], None)
    }
    return {**{k: v for k, v in thing.items() if k not in ("kind", "apiVersion")}, "metadata": meta}


Selects = Callable[[Thing], bool]
