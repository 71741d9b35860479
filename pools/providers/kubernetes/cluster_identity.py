"""Where a pool's pods are: a context of a kubeconfig is only a name, and may lead to another
cluster tomorrow, in which none of them is.

A place is known by the uid of its namespace, and by the address and authority of its server. All
of that needs no right but that to read the namespace, and without it a new address counts as a
new place."""

from collections.abc import Iterable
from typing import Protocol

from pools.providers.base import MemberSnapshot, PoolSnapshot
from pools.providers.kubernetes.pod_status import recorded
from project.kernel.kubernetes.objects import Object, uid_of
from project.kernel.outbox.operations import Misconfigured


class Located(Protocol):
    namespace: str
    place: str  # in words
    server: str

    def check_namespace(self) -> str: ...


def check_place(api: Located, pool: PoolSnapshot) -> None:
    """Raises where nothing that is not found may be called gone. A namespace that was made anew on
    the same server is the same place: what was in the old one is gone."""
    if not pool.place or _is_same(api, pool):
        return
    namespace, uid, _ = pool.place.split("/")
    if namespace == api.namespace and uid and api.check_namespace() == uid:
        return  # the server has got another address, or another authority
    raise Misconfigured(
        f"{api.place[0].upper()}{api.place[1:]} leads to another place than the one where the pods "
        f"of {pool.name} were made, and none of them is there. Nobody is called gone, and nothing "
        "is made. Let it lead to where it led before; if that is gone for good, say so: manage.py "
        f"confirm_place {pool.name} --reason …"
    )


def find_place(api: Located, pool: PoolSnapshot, pods: Iterable[Object]) -> str:
    """Where it is now, as it is to be remembered. Raises where that is another one than where
    its pods are.
    """
    made = [member for member in pool.members if recorded(member)[1]]
    if made and not _is_any_there(made, pods):
        check_place(api, pool)
    if pool.place and _is_same(api, pool):
        return pool.place
    return f"{api.namespace}/{api.check_namespace()}/{api.server}"


def _is_same(api: Located, pool: PoolSnapshot) -> bool:
    namespace, _, server = pool.place.split("/")
    return (namespace, server) == (api.namespace, api.server)


def _is_any_there(members: Iterable[MemberSnapshot], pods: Iterable[Object]) -> bool:
    return not {recorded(member)[1] for member in members}.isdisjoint(uid_of(pod) for pod in pods)
