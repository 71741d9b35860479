"""The place of a pool's pods. A context of a kubeconfig is only a name, and may lead to another
cluster tomorrow, which has none of the pods.

The uid of the namespace and the address and authority of the server identify a place. This needs
only the right to read the namespace; without that right a new address counts as a new place.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pools.providers.base import MemberSnapshot, PoolSnapshot
from pools.providers.kubernetes.pod_status import recorded
from project.kernel.kubernetes.objects import Object, uid_of
from project.kernel.outbox.operations import Misconfigured

if TYPE_CHECKING:
    from project.kernel.kubernetes.client import Api


def check_place(api: "Api", pool: PoolSnapshot) -> None:
    """Raises Misconfigured at another place, where a missing pod is not proof that the pod is gone.
    A namespace that was created again on the same server is the same place, and its old pods are
    gone.
    """
    if not pool.place or _is_same(api, pool):
        return
    namespace, uid, _ = pool.place.split("/")
    if namespace == api.namespace and uid and api.check_namespace() == uid:
        return  # the server has a new address or authority
    raise Misconfigured(
        f"{api.place[0].upper()}{api.place[1:]} leads to another place, which has no pods of "
        f"{pool.name}. Berth calls no pod gone and creates none. Make the context lead to the old "
        f"place; if that is gone for good, run: manage.py confirm_place {pool.name} --reason …"
    )


def find_place(api: "Api", pool: PoolSnapshot, pods: Iterable[Object]) -> str:
    """The present place, as Berth stores it. Raises Misconfigured if the pods are elsewhere."""
    made = [member for member in pool.members if recorded(member)[1]]
    if made and not _is_any_there(made, pods):
        check_place(api, pool)
    if pool.place and _is_same(api, pool):
        return pool.place
    return f"{api.namespace}/{api.check_namespace()}/{api.server}"


def _is_same(api: "Api", pool: PoolSnapshot) -> bool:
    namespace, _, server = pool.place.split("/")
    return (namespace, server) == (api.namespace, api.server)


def _is_any_there(members: Iterable[MemberSnapshot], pods: Iterable[Object]) -> bool:
    return not {recorded(member)[1] for member in members}.isdisjoint(uid_of(pod) for pod in pods)
